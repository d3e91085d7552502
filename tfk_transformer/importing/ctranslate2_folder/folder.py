"""A folder of CTranslate2 becomes a translator."""

import itertools
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile, open_binary
from tfk_transformer.importing.ctranslate2_folder.layers import (
    layer_arrays,
    position_arrays,
    table_names,
)
from tfk_transformer.importing.ctranslate2_folder.options import (
    FolderOptions,
    check_supported,
    read_options,
    tied_tables,
)
from tfk_transformer.importing.ctranslate2_folder.tokens import (
    FolderConfig,
    LanguageTokens,
    Sides,
    find_tokenizers,
    language_tokens,
    read_sides,
    read_vocabularies,
)
from tfk_transformer.importing.hugging_face.bart_layers import Array, read_arrays
from tfk_transformer.importing.hugging_face.model_folder import Arrays
from tfk_transformer.importing.hugging_face.path_problems import (
    ARGOS_MODEL_FOLDER,
    CTRANSLATE2_BINARY,
    check_no_pointers,
)
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages, check_languages
from tfk_transformer.importing.vocabulary import read_sentencepiece
from tfk_transformer.pipelines.weights import check_sizes

VOCABULARY_MAP = "vmap.txt"
FAMILY = "CTranslate2"
# The output bias from which on a token is never predicted; the least that fits float16.
MAX_SILENT_BIAS = -6e4


def read_ctranslate2(path: Path, vocab: Sequence[Path], languages: Languages) -> Imported:
    """Read a folder of CTranslate2.

    Args:
        path: a folder with `model.bin`, `config.json` and vocabularies, or a folder that has such
            a folder as `model`. The SentencePiece models are in either.
        vocab: the SentencePiece models, if they are elsewhere: one for both sides, or one for the
            source and one for the target.
        languages: the languages of a model with language tokens.

    Raises:
        ValueError: if files are missing, broken or do not fit, or the model has layers that this
            library lacks.
    """
    is_package = not (path / CTRANSLATE2_BINARY).is_file()
    folder = path / ARGOS_MODEL_FOLDER if is_package else path
    check_no_pointers([folder / CTRANSLATE2_BINARY])
    file = open_binary(folder / CTRANSLATE2_BINARY)
    check_supported(file)
    values = FolderConfig.read(folder, file)
    paths = find_tokenizers(list(dict.fromkeys((folder, path))), vocab)
    vocabularies = read_vocabularies(folder, values.unk_token)
    arrays = file.arrays()
    model = read_options(file, arrays, values.layer_norm_epsilon)
    tokens = _language_tokens(vocabularies, paths[0], values, languages)
    tied = tied_tables(file, arrays, vocabularies[0] == vocabularies[1])
    silent = _never_predicted(arrays, model)
    sides = read_sides(
        values,
        vocabularies,
        paths,
        (model.source_rows, model.target_rows),
        silent,
        model.starts_with_zeros,
        tied == "all",
        tokens,
    )
    has_end = _reads_end(values, model)
    config = _config(model, sides, tied, has_end)
    weights = _read_weights(file, arrays, config, sides, silent)
    notes = []
    if has_end and not values.add_source_eos:
        notes.append(
            f"the model reads {values.eos_token} at the end of a source, as models with the start "
            f"token {values.decoder_start_token} do, although config.json has no add_source_eos"
        )
    if (folder / VOCABULARY_MAP).is_file():
        notes.append(f"{VOCABULARY_MAP}, the shortlist of the folder, is not imported")
    return Imported(
        config,
        weights,
        sides.source.model,
        sides.target.model,
        FAMILY,
        search={},
        notes=tuple(notes),
        languages=languages if tokens else Languages(),
    )


def _language_tokens(
    vocabularies: tuple[list[str], list[str]],
    source_model: Path,
    values: FolderConfig,
    languages: Languages,
) -> LanguageTokens | None:
    """Return the tokens of the languages of a multilingual model, or None for other models.

    Raises:
        ValueError: if a language is missing or unknown.
    """
    available = language_tokens(vocabularies[1], read_sentencepiece(source_model))
    if len(available) < 2 or values.decoder_start_token != values.eos_token:
        return None
    check_languages(languages, available, FAMILY)
    source, target = (available[str(language)] for language in languages)
    return LanguageTokens(source, target)


def _reads_end(values: FolderConfig, model: FolderOptions) -> bool:
    """Return whether the model reads the end token of a source.

    Models of Hugging Face and fairseq do, but their tokenizers add it, so that config.json does not
    mention it. Other than OpenNMT's, their decoders start with zeros or with another token than the
    one before a sentence.
    """
    other_start = values.decoder_start_token != values.bos_token
    return values.add_source_eos or model.starts_with_zeros or other_start


def _never_predicted(arrays: Arrays, model: FolderOptions) -> Collection[int]:
    """Return the rows of the target with a bias that leaves them no probability."""
    name = "decoder/projection/bias"
    if arrays.shapes.get(name) != (model.target_rows,):
        return frozenset()
    return frozenset(np.flatnonzero(arrays.read(name) <= MAX_SILENT_BIAS).tolist())


def _config(model: FolderOptions, sides: Sides, tied: str, has_end: bool) -> TransformerConfig:
    options = dict(model.options)
    if model.stored_positions:
        # The rows of a table also serve the tokens before a text.
        options["max_length"] -= max(map(len, sides.prefixes.values()))
    return TransformerConfig(
        source_vocab_size=len(sides.source.vocabulary.pieces),
        target_vocab_size=len(sides.target.vocabulary.pieces),
        tie_embeddings=tied,
        source_end=has_end,
        **sides.prefixes,
        **options,
    )


def _read_weights(
    file: BinaryFile,
    arrays: Arrays,
    config: TransformerConfig,
    sides: Sides,
    silent: Collection[int],
) -> dict[str, np.ndarray]:
    """Return all weights of the model.

    Raises:
        ValueError: if the arrays of the file do not match the options.
    """
    check_sizes(config, arrays.shapes, arrays.path)
    source, target = sides.source.vocabulary, sides.target.vocabulary
    tables = table_names(file)

    source_rows, target_rows = (arrays.shapes[name][0] for name in tables[:2])

    def table_array(name: str, count: int, extra: int, rows: np.ndarray) -> Array:
        return Array(
            name,
            (count, config.model_dim),
            lambda table: np.pad(table, [(0, extra), (0, 0)])[rows],
        )

    expected = layer_arrays(file, arrays.shapes, config) | position_arrays(arrays.shapes, config)
    expected["source_embedding/embeddings"] = table_array(
        tables[0], source_rows, sides.source_extra, source.rows
    )
    if config.tie_embeddings != "all":
        expected["target_embedding/embeddings"] = table_array(
            tables[1], target_rows, sides.target_extra, target.rows
        )
    if config.tie_embeddings == "none":
        output = table_array(tables[2], target_rows, sides.target_extra, target.rows)
        expected["output/kernel"] = output._replace(convert=lambda table: output.convert(table).T)
    bias = Array(
        "decoder/projection/bias",
        (target_rows,),
        lambda values: np.pad(values, (0, sides.target_extra)),
    )
    # Tables of positions are read before, and other names of a shared table are equal to it.
    positions = [name for name in arrays.shapes if "/position_encodings/" in name]
    texts = [name for name in arrays.shapes if "/" not in name]  # before version 6
    weights = read_arrays(
        arrays,
        expected,
        {*tables, *positions, *texts},
        target,
        bias,
        "CTranslate2: expected the arrays of the layers",
    )
    return {**_zero_biases(config), **weights}


def _zero_biases(config: TransformerConfig) -> dict[str, np.ndarray]:
    """Return zeros for all biases that a file may lack, by their names in a `Transformer`."""
    width = config.model_dim
    shapes: dict[str, tuple[int, ...]] = {}
    for stack in ("encoder", "decoder"):
        names = ["attention"] if stack == "encoder" else ["self_attention", "cross_attention"]
        for i, name in itertools.product(range(getattr(config, f"{stack}_layers")), names):
            layer = f"{stack}/layer_{i}"
            shapes |= {
                f"{layer}/{name}/{role}_bias": (
                    (width,) if role == "output" else (config.num_heads, 1, config.query_width)
                )
                for role in config.attention_bias
            }
            shapes[f"{layer}/feed_forward/inner/bias"] = (config.ff_width,)
            shapes[f"{layer}/feed_forward/outer/bias"] = (width,)
    return {name: np.zeros(shape, "float32") for name, shape in shapes.items()}
