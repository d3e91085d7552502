"""A folder of CTranslate2 becomes a translator."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.ctranslate2_folder.argos import Package
from tfk_transformer.importing.ctranslate2_folder.binary_file import open_binary
from tfk_transformer.importing.ctranslate2_folder.language_tokens import (
    PassedTokens,
    language_tokens,
    passed_tokens,
)
from tfk_transformer.importing.ctranslate2_folder.options import (
    FolderOptions,
    check_supported,
    read_options,
    tied_tables,
)
from tfk_transformer.importing.ctranslate2_folder.search import default_search
from tfk_transformer.importing.ctranslate2_folder.token_files import (
    FolderConfig,
    find_tokenizers,
    read_vocabularies,
)
from tfk_transformer.importing.ctranslate2_folder.tokens import Sides, read_sides
from tfk_transformer.importing.ctranslate2_folder.weights import read_weights
from tfk_transformer.importing.hugging_face.model_folder import Arrays
from tfk_transformer.importing.hugging_face.path_problems import (
    ARGOS_MODEL_FOLDER,
    CTRANSLATE2_BINARY,
    check_no_pointers,
)
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages
from tfk_transformer.importing.vocabulary import PAD_PIECE, read_sentencepiece

VOCABULARY_MAP = "vmap.txt"
FAMILY = "CTranslate2"
# The output bias from which on a token is never predicted; the least that fits float16.
MAX_SILENT_BIAS = -6e4


def read_ctranslate2(
    path: Path, package: Package, vocab: Sequence[Path], languages: Languages
) -> Imported:
    """Read a folder of CTranslate2.

    Args:
        path: a folder with `model.bin`, `config.json` and vocabularies, or a folder that has such
            a folder as `model`. The SentencePiece models are in either.
        package: the description of a package of Argos Translate.
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
    available = language_tokens(vocabularies[1], read_sentencepiece(paths[0]))
    passed, selected = passed_tokens(values, available, languages, package.target_prefix, FAMILY)
    _check_passed(passed, vocabularies[1], model, folder)
    tied = tied_tables(file, arrays, vocabularies[0] == vocabularies[1])
    silent = _never_predicted(arrays, model)
    sides = read_sides(
        values,
        vocabularies,
        paths,
        (model.source_rows, model.target_rows),
        silent,
        model.starts_with_zeros,
        tied in ("inputs", "all"),
        passed,
    )
    config = _config(model, sides, tied, _reads_end(values, model, is_package))
    return Imported(
        config,
        read_weights(file, arrays, config, sides, silent),
        sides.source.model,
        sides.target.model,
        FAMILY,
        search=default_search(config, is_package),
        notes=tuple(_notes(folder, values, config.source_end, is_package)),
        languages=selected,
    )


def _check_passed(
    passed: PassedTokens, tokens: Sequence[str], model: FolderOptions, folder: Path
) -> None:
    """Refuse a token before every target that the vocabulary or the decoder lacks.

    Raises:
        ValueError: with the token.
    """
    if passed.target_prefix and (passed.start not in tokens or model.starts_with_zeros):
        problem = "start_from_zero_embedding" if model.starts_with_zeros else "a vocabulary without"
        raise ValueError(
            f"folder: expected a decoder that reads '{shorten(str(passed.start))}' before every "
            f"target in {folder}, got {problem} it."
        )


def _reads_end(values: FolderConfig, model: FolderOptions, is_package: bool) -> bool:
    """Return whether the model reads the end token of a source.

    Models of Hugging Face and fairseq do, but their tokenizers add it, so that config.json does not
    mention it. Other than OpenNMT's, their decoders start with zeros, with another token than the
    one before a sentence, or with padding. Argos Translate adds no tokens.
    """
    if values.add_source_eos or is_package:
        return values.add_source_eos
    start = values.decoder_start_token
    return model.starts_with_zeros or start != values.bos_token or start == PAD_PIECE


def _notes(folder: Path, values: FolderConfig, has_end: bool, is_package: bool) -> Iterator[str]:
    """Yield a sentence on each difference from the program that reads the folder."""
    if has_end and not values.add_source_eos:
        yield (
            f"the model reads {values.eos_token} at the end of a source, which the tokenizers of "
            "transformers and fairseq add, although config.json has no add_source_eos"
        )
    if (folder / VOCABULARY_MAP).is_file():
        yield f"{VOCABULARY_MAP}, the shortlist of the folder, is not imported"
    if is_package:
        yield (
            "Argos Translate splits sentences by other rules, replaces unknown tokens by source "
            "tokens, and writes underscores as blanks"
        )


def _never_predicted(arrays: Arrays, model: FolderOptions) -> Collection[int]:
    """Return the rows of the target with a bias that leaves them no probability."""
    name = "decoder/projection/bias"
    if arrays.shapes.get(name) != (model.target_rows,):
        return frozenset()
    return frozenset(np.flatnonzero(arrays.read(name) <= MAX_SILENT_BIAS).tolist())


def _config(model: FolderOptions, sides: Sides, tied: str, has_end: bool) -> TransformerConfig:
    options = dict(model.options)
    if model.stored_positions:
        # The rows of a table also serve the tokens with every text.
        ids = sides.passed
        source = len(ids["source_prefix"]) + len(ids["source_suffix"])
        options["max_length"] -= max(source, len(ids["target_prefix"]))
    return TransformerConfig(
        source_vocab_size=len(sides.source.vocabulary.pieces),
        target_vocab_size=len(sides.target.vocabulary.pieces),
        tie_embeddings=tied,
        source_end=has_end,
        **sides.passed,
        **options,
    )
