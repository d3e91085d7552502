"""Marian's files: NumPy archives (.npz), and .bin files, which may be quantized.

Both have named arrays, of which one has the options of a model as YAML. The header of a .bin file
has a version, the number of arrays, four sizes for each array (of its name, type, shape and data),
the names, the shapes, and the number of bytes before the data.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, Field

from tfk_transformer.config import array_files
from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.small_files import (
    MAX_OPTIONS_BYTES,
    first_line,
    one_line_error,
    parse_yaml,
)
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.arrays import Arrays, HeaderReader, StoredArray, check_float
from tfk_transformer.importing.imported import ForeignConfig
from tfk_transformer.importing.model_paths import MARIAN_VERSION, NPZ
from tfk_transformer.importing.vocabulary import Vocabulary

OPTIONS = "special:model.yml"  # the array of the options
MAX_RANK = 8  # of an array; those of Marian have at most 4 axes
# By type number.
OPTIONS_TYPE = 0x101
PLAIN_TYPES = {OPTIONS_TYPE: "int8", 0x402: "float16", 0x404: "float32"}
# The second number is of Marian's fork for Firefox.
QUANTIZED_TYPES = {0x10001: "int8", 0x4101: "int8", 0x10002: "int16", 0x4102: "int16"}
# Types whose layout depends on a processor and a library.
PACKED_TYPES = {
    0x802: "packed16",
    0x1801: "packed8avx2",
    0x2801: "packed8avx512",
    0x18001: "intgemm8ssse3",
    0x11001: "intgemm8avx2",
    0x12001: "intgemm8avx512",
    0x13001: "intgemm8avx512vnni",
    0x14002: "intgemm16sse2",
    0x11002: "intgemm16avx2",
    0x12002: "intgemm16avx512",
}
FACTOR_BYTES = 4  # of the float32 that follows the integers of a quantized array
MIN_FACTOR = 1e-30  # with a smaller one, products of float32 overflow
# Marian's sinusoids are unbounded, and a file does not have the length of its training texts.
MAX_LENGTH = 512
MARIAN_EPSILON = 1e-6
MARIAN_ACTIVATIONS: dict[str, Any] = {"relu": "relu", "swish": "silu", "gelu": "gelu_sigmoid"}
TABLE = "Wemb"  # part of the names of tables, the only quantized arrays that are not transposed


def open_file(path: Path) -> Arrays:
    """Open a file. The arrays of an archive are all read, and those of a .bin file one by one."""
    if path.suffix != NPZ:
        return open_binary(path)
    with one_line_error(_does_not_load(path)), array_files.open_archive(path) as archive:
        names = array_files.npz_headers(archive)  # which checks the sizes
        arrays = {name: array_files.read_npz(archive, name) for name in names}

    def read(name: str) -> np.ndarray:
        dtype = str(arrays[name].dtype)
        if name == OPTIONS and dtype not in ("int8", "uint8"):  # Marian's, and of scripts
            raise load_error(path, f"expected bytes as '{OPTIONS}', got {shorten(dtype)}")
        if name != OPTIONS:
            check_float(path, name, dtype)
        return arrays[name].astype("float32", copy=False)

    return Arrays(path, {name: array.shape for name, array in arrays.items()}, read)


def open_binary(path: Path) -> Arrays:
    """Read the header of a .bin file. Arrays are read and dequantized one by one."""
    try:
        with path.open("rb") as file:
            items = _binary_items(HeaderReader(path, file, load_error))
    except OSError as error:
        raise load_error(path, error) from None
    shapes = {name: item.shape for name, (item, _) in items.items()}
    return Arrays(path, shapes, lambda name: _read_binary(path, name, *items[name]))


def _binary_items(reader: HeaderReader) -> dict[str, tuple[StoredArray, bool]]:
    """Return the arrays by name, and whether they are quantized."""
    if (version := reader.number(8)) != MARIAN_VERSION:
        reader.refuse(
            f"expected version {MARIAN_VERSION} of Marian's binary format, got {version:,}; "
            "check that it is a file of Marian that is not encrypted"
        )
    count = reader.count(8)
    sizes = [tuple(reader.number(8) for _ in range(4)) for _ in range(count)]
    names = [reader.take(size[0]).rstrip(b"\0").decode(errors="replace") for size in sizes]
    shapes = []
    for name, (_, _, rank, _) in zip(names, sizes, strict=True):
        if not 1 <= rank <= MAX_RANK:
            reader.refuse(f"expected 1 to {MAX_RANK} axes for '{shorten(name)}', got {rank:,}")
        shapes.append(tuple(reader.number(4) for _ in range(rank)))
    offset = reader.number(8)
    offset += reader.file.tell()
    items = {}
    for name, shape, (_, number, _, size) in zip(names, shapes, sizes, strict=True):
        quantized = number in QUANTIZED_TYPES
        dtype = {**PLAIN_TYPES, **QUANTIZED_TYPES}.get(number)
        if dtype is None:
            reader.refuse(
                f"expected float32, float16, intgemm8 or intgemm16, got "
                f"{PACKED_TYPES.get(number, f'type {number:#x}')} for '{shorten(name)}'; use the "
                ".npz file, or convert it with marian-conv --gemm-type float32"
            )
        array = StoredArray(dtype, shape, offset)
        needed = array.size + quantized * FACTOR_BYTES
        if not needed <= size <= reader.size - offset:
            reader.refuse_size(name, array, needed, size)
        items[name] = (array, quantized)
        offset += size
    if len(items) < count:
        reader.refuse(f"{count - len(items):,} names appear twice")
    return items


def _read_binary(path: Path, name: str, item: StoredArray, quantized: bool) -> np.ndarray:
    values = item.read(path)
    if not quantized:
        return values
    # The integers are the products of the array and this factor.
    factor = StoredArray("float32", (1,), item.offset + item.size).read(path)[0]
    if not MIN_FACTOR < factor < np.inf:
        raise load_error(
            path,
            f"expected a positive factor for '{shorten(name)}', got {factor}; convert it again",
        )
    values *= np.float32(1) / factor
    if TABLE in name:
        return values
    return values.reshape(item.shape[-1], -1).T.reshape(item.shape)


def load_error(path: Path, error: Exception | str) -> ValueError:
    """Return the error for a file that cannot be read."""
    return ValueError(f"{_does_not_load(path)}{first_line(error)}")


def _does_not_load(name: Path | str) -> str:
    return f"Marian: {name} does not load: "


class MarianOptions(ForeignConfig):
    """The options of a model. Other values of the literal ones select unsupported architectures."""

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))

    type: Literal["transformer"]
    dim_vocabs: tuple[int, int]
    dim_emb: int = Field(gt=0)
    enc_depth: int = Field(gt=0)
    dec_depth: int = Field(gt=0)
    dec_cell: str = ""
    layer_normalization: bool = False  # of recurrent cells
    transformer_heads: int = Field(gt=0)
    transformer_dim_ffn: int = Field(gt=0)
    transformer_decoder_dim_ffn: int = Field(default=0, ge=0)
    transformer_ffn_depth: Literal[2]
    transformer_decoder_ffn_depth: Literal[0, 2] = 0
    transformer_ffn_activation: Literal["relu", "swish", "gelu"]
    transformer_preprocess: Literal[""]
    transformer_postprocess: Literal["dan"]
    transformer_postprocess_emb: Literal["", "d"]
    transformer_postprocess_top: Literal[""] = ""
    transformer_decoder_autoreg: Literal["self-attention", "rnn"] = "self-attention"
    transformer_rnn_projection: Literal[False] = False
    transformer_tied_layers: tuple[int, ...] = Field(default=(), max_length=0)
    transformer_no_projection: bool = False
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

    def _problems(self) -> Iterator[str]:
        if self.shared_input_table and len(set(self.dim_vocabs)) > 1:
            yield f"dim-vocabs: expected one size for a shared table, got {self.dim_vocabs}"
        elif self.is_recurrent and (self.dec_cell != "ssru" or self.layer_normalization):
            yield (
                "dec-cell: expected 'ssru' without layer-normalization for the decoder 'rnn', got "
                f"{self.dec_cell!r}{' with it' if self.layer_normalization else ''}"
            )

    @property
    def is_recurrent(self) -> bool:
        """Whether recurrent units combine the target tokens, instead of self-attention."""
        return self.transformer_decoder_autoreg == "rnn"

    @property
    def shared_input_table(self) -> bool:
        """Whether source and target share a table of embeddings."""
        return self.tied_embeddings_all or self.tied_embeddings_src

    @property
    def tie_embeddings(self) -> Literal["none", "target", "all"]:
        """The value of `TransformerConfig.tie_embeddings`."""
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
            decoder_ff_dim=self.transformer_decoder_dim_ffn or None,
            encoder_layers=self.enc_depth,
            decoder_layers=self.dec_depth,
            decoder_mixer="ssru" if self.is_recurrent else "attention",
            max_length=MAX_LENGTH,
            ff_activation=MARIAN_ACTIVATIONS[self.transformer_ffn_activation],
            tie_embeddings=self.tie_embeddings,
            norm="post",
            norm_epsilon=MARIAN_EPSILON,
            positions="sinusoidal_halves",
            attention_bias=True,
            output_bias=True,
        )


def read_options(file: Arrays) -> MarianOptions:
    """Return the options of the model in a file."""
    if math.prod(file.shapes.get(OPTIONS, (0,))) not in range(1, MAX_OPTIONS_BYTES):
        raise ValueError(
            f"Marian: expected a file that Marian wrote, got {file.path} without '{OPTIONS}', or "
            f"with {OPTIONS} of the wrong size."
        )
    text = file.read(OPTIONS).astype("int64").astype("uint8").tobytes().rstrip(b"\0")
    return MarianOptions(**named_options(text, f"'{OPTIONS}' of {file.path}"))


def named_options(text: bytes, name: str) -> dict[str, Any]:
    """Return the values by name in YAML; the name of the YAML is for error messages."""
    with one_line_error(_does_not_load(name)):
        options = parse_yaml(text)
    if not isinstance(options, dict):
        raise ValueError(
            f"Marian: expected options by name as {name}, got {type(options).__name__}."
        )
    return {str(name): value for name, value in options.items()}
