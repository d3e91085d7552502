"""A file of Marian and its SentencePiece models become a translator."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.hugging_face.bart_layers import read_arrays
from tfk_transformer.importing.hugging_face.model_folder import Arrays
from tfk_transformer.importing.hugging_face.path_problems import NPZ, check_no_pointers
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages
from tfk_transformer.importing.marian_files.binary_file import open_binary
from tfk_transformer.importing.marian_files.folder import (
    check_rows,
    decoder_options,
    find_vocab,
    model_in,
    model_languages,
    search_settings,
)
from tfk_transformer.importing.marian_files.layers import (
    layer_arrays,
    output_bias,
    table_arrays,
    with_identity_projections,
)
from tfk_transformer.importing.marian_files.npz_file import open_npz
from tfk_transformer.importing.marian_files.options import MarianOptions, read_options
from tfk_transformer.importing.vocabulary import (
    Piece,
    SideTokenizer,
    SpecialRows,
    Vocabulary,
    read_sentencepiece,
    remap_vocabulary,
    sentencepiece_model,
)

# Arrays that are not weights: options, and the scales of inputs of Marian's int8 products.
SPECIAL = "special:"
INPUT_SCALE = "_QuantMultA"
SHORTLISTS = "lex*.s2t.bin"


def read_marian_model(path: Path, models: Sequence[Path], languages: Languages) -> Imported:
    """Read a file of Marian, or the one in a folder.

    Args:
        path: the folder, or the .npz or .bin file.
        models: one SentencePiece model for both sides, or one for the source and one for the
            target. Empty: those in the folder.
        languages: the languages that the user states.

    Raises:
        ValueError: if files or arrays are missing or do not fit, or options are not supported.
        ImportError: if PyYAML is not installed.
    """
    if path.is_dir():
        path = model_in(path)
        models = models or find_vocab(path)
    check_rows(path)
    search, notes = search_settings(decoder_options(path))
    notes += tuple(
        f"{shortlist.name}, a shortlist, is not imported; pass it to the export"
        for shortlist in sorted(path.parent.glob(SHORTLISTS))
    )
    imported = _read_model(path, models)._replace(search=search, notes=notes)
    stated = model_languages(path)
    if not any(stated):
        return imported
    selected = Languages(languages.source or stated.source, languages.target or stated.target)
    return imported._replace(languages=selected)


def _read_model(path: Path, models: Sequence[Path]) -> Imported:
    """Read a file, with its options.

    Raises:
        ValueError: see `read_marian_model`.
    """
    if len(models) not in (1, 2) or (
        missing := [str(model) for model in models if not model.is_file()]
    ):
        got = f"no {', '.join(missing)}" if len(models) in (1, 2) else f"{len(models)} files"
        raise ValueError(
            "vocab: expected one SentencePiece model for both sides, or one for the source and "
            f"one for the target, in addition to {path}, got {got}."
        )
    check_no_pointers([path, *models])
    with _opened(path) as file:
        options = read_options(file)
        source_rows, target_rows = options.dim_vocabs
        source = read_side(models[0], source_rows)
        target = read_side(models[-1], target_rows)
        if options.tie_embeddings == "all" and source.model != target.model:
            raise ValueError(
                "vocab: expected one SentencePiece model, since source and target share the "
                f"tables of {path}, got two that differ."
            )
        config = options.to_transformer_config(source.vocabulary, target.vocabulary)
        arrays = _read_arrays(file, options, config, source.vocabulary, target.vocabulary)
    return Imported(config, arrays, source.model, target.model, "Marian", search={}, notes=())


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Arrays]:
    if path.suffix != NPZ:
        yield open_binary(path)
        return
    with open_npz(path) as file:
        yield file


def read_side(path: Path, rows: int) -> SideTokenizer:
    """Read the SentencePiece model of a side, whose ids are Marian's rows."""
    proto = read_sentencepiece(path)
    count = len(proto.pieces)
    end = proto.trainer_spec.eos_id
    unknown = proto.trainer_spec.unk_id
    if not (0 <= end < count and 0 <= unknown < count and count <= rows):
        raise ValueError(
            "tokenizer: expected a SentencePiece model with an end and an unknown piece and at "
            f"most {rows:,} pieces, as many as the "
            f"model has, got {path} with {count:,} pieces, end {end} and unknown {unknown}."
        )
    controls = {row for row, piece in enumerate(proto.pieces) if piece.type == Piece.CONTROL}
    # Padding and the start token have no row in Marian. Here they share a row of zeros after the
    # last one.
    vocabulary = remap_vocabulary(
        {piece.piece: row for row, piece in enumerate(proto.pieces)},
        rows + 1,
        SpecialRows(pad=rows, start=rows, end=end, unknown=unknown),
        never_predicted={rows, *controls} - {end},
    )
    return SideTokenizer(vocabulary, sentencepiece_model(proto, vocabulary))


def _read_arrays(
    file: Arrays,
    options: MarianOptions,
    config: TransformerConfig,
    source: Vocabulary,
    target: Vocabulary,
) -> dict[str, np.ndarray]:
    """Return all weights of the model.

    Raises:
        ValueError: if the arrays of the file do not match its options.
    """
    layers = layer_arrays(file, options, config)
    arrays = {**layers, **table_arrays(file, options, source, target)}
    if options.transformer_no_projection:
        file = with_identity_projections(file, layers)
    ignored = [
        name for name in file.shapes if name.startswith(SPECIAL) or name.endswith(INPUT_SCALE)
    ]
    bias = output_bias(options.dim_vocabs[1])
    expectation = "Marian: expected the arrays of the options"
    return read_arrays(file, arrays, ignored, target, bias, expectation)
