"""Models in Marian's own format: one .npz file, and a SentencePiece model for each side.

The meaning of the options is taken from Marian's source: src/models/transformer.h, src/layers and
src/graph.
"""

import contextlib
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.record import Record
from tfk_transformer.importing.hugging_face.bart_layers import Array
from tfk_transformer.importing.hugging_face.model_folder import Shapes
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.vocabulary import (
    Piece,
    SpecialRows,
    Vocabulary,
    parse_sentencepiece,
    remap_vocabulary,
    sentencepiece_model,
)
from tfk_transformer.models.base import array_problems
from tfk_transformer.pipelines.weights import check_sizes

NPZ = ".npz"
OPTIONS = "special:model.yml"
MAX_OPTIONS_BYTES = 1_000_000  # Marian writes about 2,000
MARIAN_TABLE = "Wemb"
MARIAN_OUTPUT = "decoder_ff_logit_out"
# Marian's sinusoids are unbounded, and a file does not have the length of its training texts.
MAX_LENGTH = 512
MARIAN_EPSILON = 1e-6
MARIAN_ACTIVATIONS: dict[str, Any] = {"relu": "relu", "swish": "silu"}
# The attention sublayers of a layer, by Marian's name: this project's names of the attention and of
# the residual connection.
MARIAN_PARTS = {
    "encoder": {"self": ("attention", "attention_residual")},
    "decoder": {
        "self": ("self_attention", "self_residual"),
        "context": ("cross_attention", "cross_residual"),
    },
}


class MarianOptions(Record):
    """The options of a Marian model on which results depend.

    Any other value of an option with one allowed value selects an unsupported architecture.
    """

    model_config = ConfigDict(extra="ignore", alias_generator=lambda name: name.replace("_", "-"))

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
                "of transformer-dim-ffn, "
                f"got {self.transformer_decoder_dim_ffn}"
            )
        if self.shared_input_table and len(set(self.dim_vocabs)) > 1:
            raise ValueError(
                f"dim-vocabs: expected one size for tables that are one, got {self.dim_vocabs}"
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
            "vocab: expected the SentencePiece model of both sides, or those of source and "
            f"target, beside {path}, got {got}."
        )
    with contextlib.closing(NpzFile(path)) as file:
        return _read(file, models)


def _read(file: "NpzFile", models: Sequence[Path]) -> Imported:
    """Return the model in an open file."""
    options = MarianOptions(**file.options())
    source_rows, target_rows = options.dim_vocabs
    source = _read_side(models[0], source_rows)
    target = _read_side(models[-1], target_rows)
    if options.tie_embeddings == "all" and source != target:
        raise ValueError(
            f"vocab: expected one SentencePiece model, since the tables of {file.path} are one, "
            "got two that differ."
        )
    source_vocabulary = _vocabulary(source, source_rows)
    target_vocabulary = _vocabulary(target, target_rows)
    config = options.to_transformer_config(source_vocabulary, target_vocabulary)
    return Imported(
        config=config,
        source_model=sentencepiece_model(source.proto, source_vocabulary),
        target_model=sentencepiece_model(target.proto, target_vocabulary),
        arrays=_read_arrays(file, options, config, source_vocabulary, target_vocabulary),
        family="Marian",
        search={},
        notes=(),
    )


class NpzFile:
    """A NumPy archive. Shapes are read on opening, and arrays one by one. Nothing is unpickled.

    Raises:
        ValueError: if the file is broken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # NumPy would read a whole .npy file, of any size that its header declares.
            if not zipfile.is_zipfile(path):
                raise ValueError("expected an archive of arrays, got something else")
            with zipfile.ZipFile(path) as archive:
                self.shapes: Shapes = dict(_headers(archive))
            self._arrays = np.load(path, allow_pickle=False)
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise self._load_error(error) from None

    def close(self) -> None:
        """Close the file."""
        self._arrays.close()

    def read(self, name: str) -> np.ndarray:
        """Return an array as float32."""
        return self._load(name).astype("float32")

    def options(self) -> dict[str, Any]:
        """Return the options of the model.

        Raises:
            ValueError: if the file has none.
            ImportError: if PyYAML is not installed.
        """
        import yaml

        if math.prod(self.shapes.get(OPTIONS, (0,))) not in range(1, MAX_OPTIONS_BYTES):
            raise ValueError(
                f"Marian: expected a file that Marian wrote, got {self.path} without '{OPTIONS}' "
                "or with one of another form."
            )
        try:
            text = self._load(OPTIONS).astype("uint8").tobytes().rstrip(b"\0")
            options = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise self._load_error(error) from None
        if not isinstance(options, dict):
            raise ValueError(
                f"Marian: expected options by name as '{OPTIONS}' of {self.path}, got something "
                "else."
            )
        return {str(name): value for name, value in options.items()}

    def _load(self, name: str) -> np.ndarray:
        try:
            array: np.ndarray = self._arrays[name]
            return array
        except (zipfile.BadZipFile, ValueError, OSError, EOFError) as error:
            raise self._load_error(error) from None

    def _load_error(self, error: Exception) -> ValueError:
        return ValueError(
            f"Marian: {self.path} does not load: "
            f"{(str(error).splitlines() or [type(error).__name__])[0][:300]}"
        )


def _headers(archive: zipfile.ZipFile) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and the shape of each array."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    for name in archive.namelist():
        with archive.open(name) as file:
            version = np.lib.format.read_magic(file)
            if version not in readers:
                raise ValueError(
                    f"expected arrays of version 1.0 or 2.0, got {version} for '{name}'"
                )
            yield name.removesuffix(".npy"), readers[version](file)[0]


class SidePieces(NamedTuple):
    """The SentencePiece model of a side, whose ids are Marian's rows."""

    proto: Any
    special: SpecialRows


def _read_side(path: Path, rows: int) -> SidePieces:
    proto = parse_sentencepiece(path.read_bytes(), str(path))
    count = len(proto.pieces)
    end = proto.trainer_spec.eos_id
    unknown = proto.trainer_spec.unk_id
    if not (0 <= end < count and 0 <= unknown < count and count <= rows):
        raise ValueError(
            "tokenizer: expected a SentencePiece model with an end and an unknown piece and at "
            f"most {rows:,} pieces, as many as the "
            f"model has, got {path} with {count:,} pieces, end {end} and unknown {unknown}."
        )
    # Padding and the start token have no row in Marian. Here they share a row of zeros after the
    # last one.
    return SidePieces(proto, SpecialRows(pad=rows, start=rows, end=end, unknown=unknown))


def _vocabulary(side: SidePieces, rows: int) -> Vocabulary:
    controls = {row for row, piece in enumerate(side.proto.pieces) if piece.type == Piece.CONTROL}
    return remap_vocabulary(
        {piece.piece: row for row, piece in enumerate(side.proto.pieces)},
        rows + 1,
        side.special,
        never_predicted={rows, *controls} - {side.special.end},
    )


def _read_arrays(
    file: NpzFile,
    options: MarianOptions,
    config: TransformerConfig,
    source: Vocabulary,
    target: Vocabulary,
) -> dict[str, np.ndarray]:
    """Return all weights of the model, read from a file.

    Raises:
        ValueError: if the arrays of the file do not match its options.
    """
    check_sizes(config, file.shapes, file.path)
    arrays = {**dict(_layers(config)), **dict(_tables(file, options, source, target))}
    expected = {array.name: array.shape for array in arrays.values()}
    shapes = {name: shape for name, shape in file.shapes.items() if not name.startswith("special:")}
    bias = f"{MARIAN_OUTPUT}_b"
    if bias in shapes:
        expected[bias] = (1, options.dim_vocabs[1])
    if problems := array_problems(expected, shapes, most=20):
        raise ValueError(
            f"Marian: expected the arrays of the options in {file.path}, got {problems}"
        )
    weights = {name: array.convert(file.read(array.name)) for name, array in arrays.items()}
    biases = file.read(bias)[0] if bias in shapes else np.zeros(options.dim_vocabs[1], "float32")
    return {**weights, "output/bias": target.bias(np.append(biases, np.float32(0)))}


def _tables(
    file: NpzFile, options: MarianOptions, source: Vocabulary, target: Vocabulary
) -> Iterator[tuple[str, Array]]:
    """Yield the embedding tables and the output kernel by their names in a `Transformer`."""

    def table_array(vocabulary: Vocabulary, name: str, rows: int) -> Array:
        return Array(
            name,
            (rows, options.dim_emb),
            lambda table: np.append(table, np.zeros_like(table[:1]), axis=0)[vocabulary.rows],
        )

    source_rows, target_rows = options.dim_vocabs
    shared = [MARIAN_TABLE, MARIAN_TABLE]
    names = shared if options.shared_input_table else ["encoder_Wemb", "decoder_Wemb"]
    yield "source_embedding/embeddings", table_array(source, names[0], source_rows)
    if options.tie_embeddings != "all":
        yield "target_embedding/embeddings", table_array(target, names[1], target_rows)
    if options.tie_embeddings == "none":
        output = table_array(target, f"{MARIAN_OUTPUT}_Wt", target_rows)
        kernel = output._replace(convert=lambda table: output.convert(table).T)
        if f"{MARIAN_OUTPUT}_W" in file.shapes:  # of earlier versions of Marian
            kernel = Array(
                f"{MARIAN_OUTPUT}_W",
                output.shape[::-1],
                lambda transposed: output.convert(transposed.T).T,
            )
        yield "output/kernel", kernel


def _layers(config: TransformerConfig) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of all layers by their names in a `Transformer`."""
    for stack, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for i in range(count):
            for ours, array in _layer(config, MARIAN_PARTS[stack]):
                yield (
                    f"{stack}/layer_{i}/{ours}",
                    array._replace(name=f"{stack}_l{i + 1}_{array.name}"),
                )


def _layer(
    config: TransformerConfig, parts: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[str, Array]]:
    width = config.model_dim
    for theirs, (attention, residual) in parts.items():
        yield from _attention(config, attention, theirs)
        yield from _norm(width, residual, f"{theirs}_Wo")
    dense_layers = (
        ("inner", 1, width, config.ff_width),
        ("outer", 2, config.ff_width, width),
    )
    for name, number, inputs, outputs in dense_layers:
        yield f"feed_forward/{name}/kernel", Array(f"ffn_W{number}", (inputs, outputs))
        yield f"feed_forward/{name}/bias", Array(f"ffn_b{number}", (1, outputs), np.ravel)
    yield from _norm(width, "ff_residual", "ffn_ffn")


def _attention(config: TransformerConfig, ours: str, theirs: str) -> Iterator[tuple[str, Array]]:
    width = config.model_dim  # D = H * K
    heads = (config.num_heads, config.query_width)  # H, K
    for role in ("query", "key", "value"):
        # (D, H*K) -> (H, D, K), and (1, H*K) -> (H, 1, K)
        yield (
            f"{ours}/{role}",
            Array(
                f"{theirs}_W{role[0]}",
                (width, width),
                lambda w: w.reshape(width, *heads).transpose(1, 0, 2),
            ),
        )
        yield (
            f"{ours}/{role}_bias",
            Array(f"{theirs}_b{role[0]}", (1, width), lambda b: b.reshape(heads[0], 1, heads[1])),
        )
    yield f"{ours}/output", Array(f"{theirs}_Wo", (width, width))
    yield f"{ours}/output_bias", Array(f"{theirs}_bo", (1, width), np.ravel)


def _norm(width: int, ours: str, theirs: str) -> Iterator[tuple[str, Array]]:
    yield f"{ours}/norm/gamma", Array(f"{theirs}_ln_scale", (1, width), np.ravel)
    yield f"{ours}/norm/beta", Array(f"{theirs}_ln_bias", (1, width), np.ravel)
