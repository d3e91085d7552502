"""A file of Marian and its SentencePiece models become a translator."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.arrays import Arrays
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.marian_files.files import MarianOptions, open_file, read_options
from tfk_transformer.importing.marian_files.folder import (
    check_rows,
    decoder_options,
    find_vocab,
    model_in,
    model_languages,
    search_settings,
)
from tfk_transformer.importing.model_paths import check_no_pointers
from tfk_transformer.importing.vocabulary import (
    Piece,
    Side,
    SpecialRows,
    Vocabulary,
    check_vocab,
    read_sentencepiece,
)
from tfk_transformer.importing.weights import STACKS, Array, layer_arrays, read_arrays, table_arrays
from tfk_transformer.pipelines.weights import check_sizes
from tfk_transformer.text.languages import Languages

SHORTLISTS = "lex*.s2t.bin"
MARIAN_TABLE = "Wemb"
MARIAN_OUTPUT = "decoder_ff_logit_out"
# Suffixes of the name of an attention.
ATTENTION_NAMES = {
    "query": "_Wq",
    "query_bias": "_bq",
    "key": "_Wk",
    "key_bias": "_bk",
    "value": "_Wv",
    "value_bias": "_bv",
    "output": "_Wo",
    "output_bias": "_bo",
    "gamma": "_Wo_ln_scale",
    "beta": "_Wo_ln_bias",
}
# The norm after the recurrent unit of a decoder layer, which has no self-attention.
RECURRENT_NAMES = {"gamma": "rnn_ffn_ln_scale", "beta": "rnn_ffn_ln_bias"}
OTHER_NAMES = {
    "feed_forward/inner/kernel": "ffn_W1",
    "feed_forward/inner/bias": "ffn_b1",
    "feed_forward/outer/kernel": "ffn_W2",
    "feed_forward/outer/bias": "ffn_b2",
    "ff_residual/norm/gamma": "ffn_ffn_ln_scale",
    "ff_residual/norm/beta": "ffn_ffn_ln_bias",
}
# The weights of a recurrent unit.
UNIT_NAMES = {"kernel": "W", "forget_kernel": "Wf", "forget_bias": "bf"}
# Arrays that are not weights: options, and the scales of inputs of Marian's int8 products.
SPECIAL = "special:"
INPUT_SCALE = "_QuantMultA"


def read_marian_model(path: Path, models: Sequence[Path], languages: Languages) -> Imported:
    """Read a file of Marian, or the one in a folder.

    The SentencePiece models are one for both sides, or two. Without any, the folder's are read.
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
    check_vocab(models, (1, 2), f", in addition to {path}")
    check_no_pointers([path, *models])
    file = open_file(path)
    options = read_options(file)
    source_rows, target_rows = options.dim_vocabs
    source, source_model = read_side(models[0], source_rows)
    target, target_model = read_side(models[-1], target_rows)
    if options.tie_embeddings == "all" and source_model != target_model:
        raise ValueError(
            "vocab: expected one SentencePiece model, since source and target share the tables of "
            f"{path}, got two that differ."
        )
    config = options.to_transformer_config(source, target)
    arrays = _read_weights(file, options, config, source, target)
    stated = model_languages(path)
    if any(stated):
        stated = Languages(languages.source or stated.source, languages.target or stated.target)
    return Imported(config, arrays, source_model, target_model, "Marian", search, notes, stated)


def read_side(path: Path, rows: int) -> Side:
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
    vocabulary = Vocabulary.remapped(
        {piece.piece: row for row, piece in enumerate(proto.pieces)},
        rows + 1,
        SpecialRows(pad=rows, start=rows, end=end, unknown=unknown),
        never_predicted={rows, *controls} - {end},
    )
    return vocabulary, vocabulary.sentencepiece_model(proto)


def _read_weights(
    file: Arrays,
    options: MarianOptions,
    config: TransformerConfig,
    source: Vocabulary,
    target: Vocabulary,
) -> dict[str, np.ndarray]:
    check_sizes(config, file.shapes, file.path)
    arrays = _all_layers(options, config)
    ignored = [
        name for name in file.shapes if name.startswith(SPECIAL) or name.endswith(INPUT_SCALE)
    ]
    identities: dict[str, np.ndarray] = {}
    if options.transformer_no_projection:  # of attentions; Marian ignores arrays of their names
        for name in [each for each in arrays if each.endswith(("/output", "/output_bias"))]:
            ignored.append(arrays.pop(name).name)
            identity = np.eye(config.model_dim, dtype="float32")
            identities[name] = np.zeros_like(identity[0]) if name.endswith("bias") else identity
    inputs = ["encoder_Wemb", "decoder_Wemb"]
    names = [MARIAN_TABLE] * 2 if options.shared_input_table else inputs
    names.append(f"{MARIAN_OUTPUT}_Wt")
    arrays |= table_arrays(config, names, options.dim_vocabs, source, target)
    early_name = f"{MARIAN_OUTPUT}_W"  # in files of earlier versions of Marian, it is transposed
    if "output/kernel" in arrays and early_name in file.shapes:
        kernel = arrays["output/kernel"].prepared(np.transpose)
        arrays["output/kernel"] = kernel._replace(name=early_name, shape=kernel.shape[::-1])
    bias = Array(f"{MARIAN_OUTPUT}_b", (1, options.dim_vocabs[1]), np.ravel)
    expectation = "Marian: expected the arrays of the options"
    return {**identities, **read_arrays(file, arrays, ignored, target, bias, expectation)}


def _all_layers(options: MarianOptions, config: TransformerConfig) -> dict[str, Array]:
    attentions = [
        {weight: f"{name}{suffix}" for weight, suffix in ATTENTION_NAMES.items()}
        for name in ("self", "context")
    ]
    arrays: dict[str, Array] = {}
    for stack in STACKS:
        is_recurrent = stack == "decoder" and options.is_recurrent
        names = [RECURRENT_NAMES, attentions[1]] if is_recurrent else attentions
        for i in range(getattr(config, f"{stack}_layers")):
            arrays |= layer_arrays(config, stack, i, f"{stack}_l{i + 1}_", names, OTHER_NAMES)
    for ours, array in arrays.items():  # kernels are (inputs, outputs), and vectors (1, width)
        is_vector = len(array.shape) == 1
        shape = (1, *array.shape) if is_vector else array.shape[::-1]
        arrays[ours] = array.prepared(np.ravel if is_vector else np.transpose)._replace(shape=shape)
    width = config.model_dim
    for i in range(config.decoder_layers if options.is_recurrent else 0):
        for name, part in UNIT_NAMES.items():
            shape = (1, width) if name.endswith("bias") else (width, width)
            convert = np.ravel if name.endswith("bias") else np.asarray
            theirs = f"decoder_l{i + 1}_rnn_{part}"
            arrays[f"decoder/layer_{i}/ssru/{name}"] = Array(theirs, shape, convert)
    return arrays
