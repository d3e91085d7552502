"""Models in Marian's own format: one .npz file, and a SentencePiece model for each side.

The meaning of the options is taken from Marian's source: src/models/transformer.h, src/layers and
src/graph.
"""

import contextlib
import math
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.record import Record
from tfk_transformer.importing.hugging_face.bart_layers import Array, layers_of, read_arrays
from tfk_transformer.importing.hugging_face.model_folder import Arrays, check_float, first_line
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.vocabulary import (
    Piece,
    SideTokenizer,
    SpecialRows,
    Vocabulary,
    read_sentencepiece,
    remap_vocabulary,
    sentencepiece_model,
)

NPY = ".npy"  # of each array in an archive
OPTIONS = "special:model.yml"
MAX_OPTIONS_BYTES = 1_000_000  # Marian writes about 2,000
MAX_ARRAYS = 10_000  # a model of 100 layers has 3,000
MARIAN_TABLE = "Wemb"
MARIAN_OUTPUT = "decoder_ff_logit_out"
# Marian's sinusoids are unbounded, and a file does not have the length of its training texts.
MAX_LENGTH = 512
MARIAN_EPSILON = 1e-6
MARIAN_ACTIVATIONS: dict[str, Any] = {"relu": "relu", "swish": "silu"}
# The arrays of a layer by their names in Hugging Face's layout of MarianMT.
MARIAN_NAMES = {
    "self_attn.q_proj.weight": "self_Wq",
    "self_attn.q_proj.bias": "self_bq",
    "self_attn.k_proj.weight": "self_Wk",
    "self_attn.k_proj.bias": "self_bk",
    "self_attn.v_proj.weight": "self_Wv",
    "self_attn.v_proj.bias": "self_bv",
    "self_attn.out_proj.weight": "self_Wo",
    "self_attn.out_proj.bias": "self_bo",
    "self_attn_layer_norm.weight": "self_Wo_ln_scale",
    "self_attn_layer_norm.bias": "self_Wo_ln_bias",
    "encoder_attn.q_proj.weight": "context_Wq",
    "encoder_attn.q_proj.bias": "context_bq",
    "encoder_attn.k_proj.weight": "context_Wk",
    "encoder_attn.k_proj.bias": "context_bk",
    "encoder_attn.v_proj.weight": "context_Wv",
    "encoder_attn.v_proj.bias": "context_bv",
    "encoder_attn.out_proj.weight": "context_Wo",
    "encoder_attn.out_proj.bias": "context_bo",
    "encoder_attn_layer_norm.weight": "context_Wo_ln_scale",
    "encoder_attn_layer_norm.bias": "context_Wo_ln_bias",
    "fc1.weight": "ffn_W1",
    "fc1.bias": "ffn_b1",
    "fc2.weight": "ffn_W2",
    "fc2.bias": "ffn_b2",
    "final_layer_norm.weight": "ffn_ffn_ln_scale",
    "final_layer_norm.bias": "ffn_ffn_ln_bias",
}


class MarianOptions(Record):
    """The options of a Marian model on which results depend.

    Any other value of an option with one allowed value selects an unsupported architecture.
    """

    model_config = ConfigDict(extra="ignore", alias_generator=lambda name: name.replace("_", "-"))
    proposes_values = False

    type: Literal["transformer"]
    dim_vocabs: tuple[int, int]
    dim_emb: int = Field(gt=0)
    enc_depth: int = Field(gt=0)
    dec_depth: int = Field(gt=0)
    transformer_heads: int = Field(gt=0)
    transformer_dim_ffn: int = Field(gt=0)
    transformer_decoder_dim_ffn: int = 0
    transformer_ffn_depth: Literal[2]
    transformer_decoder_ffn_depth: Literal[0, 2] = 0
    transformer_ffn_activation: Literal["relu", "swish"]
    transformer_preprocess: Literal[""]
    transformer_postprocess: Literal["dan"]
    transformer_postprocess_emb: Literal["", "d"]
    transformer_postprocess_top: Literal[""] = ""
    transformer_decoder_autoreg: Literal["self-attention"] = "self-attention"
    transformer_tied_layers: tuple[int, ...] = Field(default=(), max_length=0)
    transformer_no_projection: Literal[False] = False
    transformer_no_bias: Literal[False] = False
    transformer_no_affine: Literal[False] = False
    transformer_train_position_embeddings: Literal[False] = False
    transformer_disable_position_embeddings: Literal[False] = False
    transformer_attention_mask: Literal["default"] = "default"
    transformer_pool: Literal[False] = False
    input_types: tuple[str, ...] = Field(default=(), max_length=0)
    lemma_dim_emb: Literal[0] = 0
    right_left: Literal[False] = False
    ulr: Literal[False] = False
    tied_embeddings: bool = False
    tied_embeddings_src: bool = False
    tied_embeddings_all: bool = False

    @model_validator(mode="after")
    def _check_widths(self) -> Self:
        if self.transformer_decoder_dim_ffn not in (0, self.transformer_dim_ffn):
            raise ValueError(
                f"transformer-decoder-dim-ffn: expected 0 or {self.transformer_dim_ffn}, the value "
                f"of transformer-dim-ffn, got {self.transformer_decoder_dim_ffn}"
            )
        if self.shared_input_table and len(set(self.dim_vocabs)) > 1:
            raise ValueError(
                f"dim-vocabs: expected one size for a shared table, got {self.dim_vocabs}"
            )
        return self

    @property
    def shared_input_table(self) -> bool:
        """Whether source and target share a table of embeddings."""
        return self.tied_embeddings_all or self.tied_embeddings_src

    @property
    def tie_embeddings(self) -> Literal["none", "target", "all"]:
        """The value of `TransformerConfig.tie_embeddings`: which embedding tables are shared."""
        if self.tied_embeddings_all or (self.tied_embeddings and self.tied_embeddings_src):
            return "all"
        return "target" if self.tied_embeddings else "none"

    def to_transformer_config(self, source: Vocabulary, target: Vocabulary) -> TransformerConfig:
        """Return the configuration of an equivalent `Transformer`."""
        return TransformerConfig(
            source_vocab_size=len(source.pieces),
            target_vocab_size=len(target.pieces),
            model_dim=self.dim_emb,
            num_heads=self.transformer_heads,
            ff_dim=self.transformer_dim_ffn,
            encoder_layers=self.enc_depth,
            decoder_layers=self.dec_depth,
            max_length=MAX_LENGTH,
            ff_activation=MARIAN_ACTIVATIONS[self.transformer_ffn_activation],
            tie_embeddings=self.tie_embeddings,
            norm="post",
            norm_epsilon=MARIAN_EPSILON,
            positions="sinusoidal_halves",
            attention_bias=True,
            output_bias=True,
        )


def read_marian_file(path: Path, models: Sequence[Path]) -> Imported:
    """Read a file of Marian.

    Args:
        path: the .npz file.
        models: one SentencePiece model for both sides, or one for the source and one for the
            target.

    Raises:
        ValueError: if files or arrays are missing or do not fit, or options are not supported.
        ImportError: if PyYAML is not installed.
    """
    if len(models) not in (1, 2) or (
        missing := [str(model) for model in models if not model.is_file()]
    ):
        got = f"no {', '.join(missing)}" if len(models) in (1, 2) else f"{len(models)} files"
        raise ValueError(
            "vocab: expected one SentencePiece model for both sides, or one for the source and "
            f"one for the target, in addition to {path}, got {got}."
        )
    with _open_npz(path) as file:
        options = MarianOptions(**_read_options(file))
        source_rows, target_rows = options.dim_vocabs
        source = _read_side(models[0], source_rows)
        target = _read_side(models[-1], target_rows)
        if options.tie_embeddings == "all" and source.model != target.model:
            raise ValueError(
                "vocab: expected one SentencePiece model, since source and target share the "
                f"tables of {path}, got two that differ."
            )
        config = options.to_transformer_config(source.vocabulary, target.vocabulary)
        arrays = _read_arrays(file, options, config, source.vocabulary, target.vocabulary)
    return Imported(config, arrays, source.model, target.model, "Marian", search={}, notes=())


@contextlib.contextmanager
def _open_npz(path: Path) -> Iterator[Arrays]:
    """Open a NumPy archive, without unpickling. Shapes are read on opening, and arrays one by one.

    Raises:
        ValueError: if the file is broken.
    """
    with contextlib.ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(path))
            shapes = dict(_headers(archive))
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise _load_error(path, error) from None

        def read(name: str) -> np.ndarray:
            try:
                with archive.open(f"{name}{NPY}") as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
            except (zipfile.BadZipFile, ValueError, KeyError, OSError, EOFError) as error:
                raise _load_error(path, error) from None
            if name != OPTIONS:
                check_float(path, name, str(array.dtype))
            return array.astype("float32")

        yield Arrays(path, shapes, read)


def _read_options(file: Arrays) -> dict[str, Any]:
    """Return the options of the model in a file.

    Raises:
        ValueError: if the file has none.
        ImportError: if PyYAML is not installed.
    """
    import yaml

    if math.prod(file.shapes.get(OPTIONS, (0,))) not in range(1, MAX_OPTIONS_BYTES):
        raise ValueError(
            f"Marian: expected a file that Marian wrote, got {file.path} without '{OPTIONS}', or "
            f"with {OPTIONS} of the wrong size."
        )
    text = file.read(OPTIONS).astype("int64").astype("uint8").tobytes().rstrip(b"\0")
    try:
        options = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _load_error(file.path, error) from None
    if not isinstance(options, dict):
        raise ValueError(
            f"Marian: expected options by name as '{OPTIONS}' of {file.path}, got "
            f"{type(options).__name__}."
        )
    return {str(name): value for name, value in options.items()}


def _load_error(path: Path, error: Exception) -> ValueError:
    return ValueError(f"Marian: {path} does not load: {first_line(error)}")


def _headers(archive: zipfile.ZipFile) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and the shape of each array."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if (count := len(archive.namelist())) > MAX_ARRAYS:
        raise ValueError(f"expected at most {MAX_ARRAYS:,} arrays, got {count:,}")
    for name in archive.namelist():
        with archive.open(name) as file:
            version = np.lib.format.read_magic(file)
            if version not in readers:
                raise ValueError(
                    f"expected arrays of version 1.0 or 2.0, got {version} for '{name}'"
                )
            yield name.removesuffix(NPY), readers[version](file)[0]


def _read_side(path: Path, rows: int) -> SideTokenizer:
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

    def table_array(vocabulary: Vocabulary, name: str, rows: int) -> Array:
        return Array(
            name,
            (rows, options.dim_emb),
            lambda table: np.append(table, np.zeros_like(table[:1]), axis=0)[vocabulary.rows],
        )

    arrays = {ours: _marian_array(array) for ours, array in layers_of(file, config).items()}
    source_rows, target_rows = options.dim_vocabs
    shared = [MARIAN_TABLE, MARIAN_TABLE]
    names = shared if options.shared_input_table else ["encoder_Wemb", "decoder_Wemb"]
    arrays["source_embedding/embeddings"] = table_array(source, names[0], source_rows)
    if options.tie_embeddings != "all":
        arrays["target_embedding/embeddings"] = table_array(target, names[1], target_rows)
    if options.tie_embeddings == "none":
        output = table_array(target, f"{MARIAN_OUTPUT}_Wt", target_rows)
        kernel = output._replace(convert=lambda table: output.convert(table).T)
        if f"{MARIAN_OUTPUT}_W" in file.shapes:  # of earlier versions of Marian
            kernel = Array(
                f"{MARIAN_OUTPUT}_W",
                output.shape[::-1],
                lambda transposed: output.convert(transposed.T).T,
            )
        arrays["output/kernel"] = kernel
    bias = Array(
        f"{MARIAN_OUTPUT}_b", (1, target_rows), lambda bias: np.append(bias, np.float32(0))
    )
    ignored = [name for name in file.shapes if name.startswith("special:")]
    expectation = "Marian: expected the arrays of the options"
    return read_arrays(file, arrays, ignored, target, bias, expectation)


def _marian_array(array: Array) -> Array:
    """Return the array of a layer in Marian's file, from the array in Hugging Face's layout.

    Marian's kernels have the shape (inputs, outputs) instead of (outputs, inputs), and its vectors
    have the shape (1, width).
    """
    _, stack, _, index, part = array.name.split(".", 4)
    name = f"{stack}_l{int(index) + 1}_{MARIAN_NAMES[part]}"
    if len(array.shape) == 1:
        return Array(name, (1, *array.shape), lambda vector: array.convert(vector[0]))
    return Array(name, array.shape[::-1], lambda kernel: array.convert(kernel.T))
