"""Models that Marian itself wrote: one .npz file, and a SentencePiece model for each side.

What an option means is taken from Marian's source: src/models/transformer.h, src/layers and
src/graph.
"""

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
    Special,
    Vocabulary,
    arranged,
    parsed_model,
    sentencepiece_model,
)
from tfk_transformer.models.base import array_problems
from tfk_transformer.pipelines.weights import check_sizes

NPZ = ".npz"
OPTIONS = "special:model.yml"
MOST_OPTIONS = 1_000_000  # bytes; Marian writes some two thousand
SHARED, OUTPUT = "Wemb", "decoder_ff_logit_out"
# Marian's sinusoids have no end, and a file does not say how long its training texts were.
MAX_LENGTH = 512
MARIAN_EPSILON = 1e-6
MARIAN_ACTIVATIONS: dict[str, Any] = {"relu": "relu", "swish": "silu"}
# The attentions of a layer: Marian's name, and this project's names of the attention and of its
# residual connection.
MARIAN_PARTS = {
    "encoder": {"self": ("attention", "attention_residual")},
    "decoder": {
        "self": ("self_attention", "self_residual"),
        "context": ("cross_attention", "cross_residual"),
    },
}


class MarianOptions(Record):
    """The options of a Marian model on which results depend. Those with one allowed value choose
    other architectures otherwise.
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
        if self.one_input_table and len(set(self.dim_vocabs)) > 1:
            raise ValueError(
                f"dim-vocabs: expected one size for tables that are one, got {self.dim_vocabs}"
            )
        return self

    @property
    def one_input_table(self) -> bool:
        """Whether source and target have one table of embeddings."""
        return self.tied_embeddings_all or self.tied_embeddings_src

    @property
    def tied(self) -> Literal["none", "target", "all"]:
        """Which tables are one, as `TransformerConfig.tie_embeddings` has it."""
        if self.tied_embeddings_all or (self.tied_embeddings and self.tied_embeddings_src):
            return "all"
        return "target" if self.tied_embeddings else "none"

    def to_options(self, source: Vocabulary, target: Vocabulary) -> TransformerConfig:
        """Return the options of a `Transformer` that computes the same."""
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
            tie_embeddings=self.tied,
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
        models: the SentencePiece model of both sides, or those of the source and of the target.

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
    file = NpzFile(path)
    try:
        return _read(file, models)
    except BaseException:
        file.close()
        raise


def _read(file: "NpzFile", models: Sequence[Path]) -> Imported:
    """Describe the model of an open file. The arrays are read later, one by one."""
    given = MarianOptions(**file.options())
    sides = [
        _side(model, rows)
        for model, rows in zip((models[0], models[-1]), given.dim_vocabs, strict=True)
    ]
    if given.tied == "all" and sides[0] != sides[1]:
        raise ValueError(
            f"vocab: expected one SentencePiece model, since the tables of {file.path} are one, "
            "got two that differ."
        )
    vocabularies = [
        _vocabulary(side, rows) for side, rows in zip(sides, given.dim_vocabs, strict=True)
    ]
    config = given.to_options(*vocabularies)
    made = [
        sentencepiece_model(side.proto, vocabulary)
        for side, vocabulary in zip(sides, vocabularies, strict=True)
    ]
    return Imported(
        config, _arrays(file, given, config, *vocabularies), made[0], made[1], "Marian", {}, ()
    )


class NpzFile:
    """A NumPy archive. The shapes are read first, and then the arrays one by one; objects are never
    unpickled.

    Raises:
        ValueError: if the file is broken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # NumPy would read a single array whole, of whatever size its header tells.
            if not zipfile.is_zipfile(path):
                raise ValueError("expected an archive of arrays, got something else")
            with zipfile.ZipFile(path) as archive:
                self.shapes: Shapes = dict(_headers(archive))
            self._arrays = np.load(path, allow_pickle=False)
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise self._unreadable(error) from None

    def close(self) -> None:
        """Close the file."""
        self._arrays.close()

    def read(self, name: str) -> np.ndarray:
        """Return an array as float32."""
        return self._loaded(name).astype("float32")

    def options(self) -> dict[str, Any]:
        """Return the options of the model.

        Raises:
            ValueError: if the file has none.
            ImportError: if PyYAML is not installed.
        """
        import yaml

        if math.prod(self.shapes.get(OPTIONS, (0,))) not in range(1, MOST_OPTIONS):
            raise ValueError(
                f"Marian: expected a file that Marian wrote, got {self.path} without '{OPTIONS}' "
                "or with one of another form."
            )
        try:
            found = yaml.safe_load(self._loaded(OPTIONS).astype("uint8").tobytes().rstrip(b"\0"))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise self._unreadable(error) from None
        if not isinstance(found, dict):
            raise ValueError(
                f"Marian: expected options by name as '{OPTIONS}' of {self.path}, got something "
                "else."
            )
        return {str(name): value for name, value in found.items()}

    def _loaded(self, name: str) -> np.ndarray:
        try:
            found: np.ndarray = self._arrays[name]
            return found
        except (zipfile.BadZipFile, ValueError, OSError, EOFError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> ValueError:
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
    """The SentencePiece model of a side, whose ids are Marian's."""

    proto: Any
    pieces: tuple[str, ...]
    special: Special


def _side(path: Path, rows: int) -> SidePieces:
    proto = parsed_model(path.read_bytes(), str(path))
    pieces = tuple(piece.piece for piece in proto.pieces)
    end, unknown = proto.trainer_spec.eos_id, proto.trainer_spec.unk_id
    if not (0 <= end < len(pieces) and 0 <= unknown < len(pieces) and len(pieces) <= rows):
        raise ValueError(
            "tokenizer: expected a SentencePiece model with an end and an unknown piece and at "
            f"most {rows:,} pieces, as many as the "
            f"model has, got {path} with {len(pieces):,} pieces, end {end} and unknown {unknown}."
        )
    # Padding and the start token have no row in Marian: theirs is one of zeros after the last.
    return SidePieces(proto, pieces, Special(pad=rows, start=rows, end=end, unknown=unknown))


def _vocabulary(side: SidePieces, rows: int) -> Vocabulary:
    controls = {
        row for row, piece in enumerate(side.proto.pieces) if piece.type == Piece.CONTROL
    } - {side.special.end}
    return arranged(
        {piece: row for row, piece in enumerate(side.pieces)},
        rows + 1,
        side.special,
        never={rows, *controls},
    )


def _arrays(
    file: NpzFile,
    given: MarianOptions,
    config: TransformerConfig,
    source: Vocabulary,
    target: Vocabulary,
) -> dict[str, np.ndarray]:
    """Return all weights of the model, read from a file.

    Raises:
        ValueError: if the arrays of the file are not those of its options.
    """
    check_sizes(config, file.shapes, file.path)
    wanted = {**dict(_layers(config)), **dict(_tables(file, given, source, target))}
    shapes = {name: shape for name, shape in file.shapes.items() if not name.startswith("special:")}
    bias = f"{OUTPUT}_b"
    optional = {bias: (1, given.dim_vocabs[1])} if bias in shapes else {}
    if problems := array_problems(
        {**{array.name: array.shape for array in wanted.values()}, **optional}, shapes, most=20
    ):
        raise ValueError(
            f"Marian: expected the arrays of the options in {file.path}, got {problems}"
        )
    found = {name: array.convert(file.read(array.name)) for name, array in wanted.items()}
    biases = file.read(bias)[0] if optional else np.zeros(given.dim_vocabs[1], "float32")
    return {**found, "output/bias": target.bias(np.append(biases, np.float32(0)))}


def _tables(
    file: NpzFile, given: MarianOptions, source: Vocabulary, target: Vocabulary
) -> Iterator[tuple[str, Array]]:
    """Yield the tables over the vocabularies."""

    def rows_of(vocabulary: Vocabulary, name: str, rows: int) -> Array:
        return Array(
            name,
            (rows, given.dim_emb),
            lambda table: np.append(table, np.zeros_like(table[:1]), axis=0)[vocabulary.rows],
        )

    names = [SHARED, SHARED] if given.one_input_table else ["encoder_Wemb", "decoder_Wemb"]
    yield "source_embedding/embeddings", rows_of(source, names[0], given.dim_vocabs[0])
    if given.tied != "all":
        yield "target_embedding/embeddings", rows_of(target, names[1], given.dim_vocabs[1])
    if given.tied == "none":
        by_rows = rows_of(target, f"{OUTPUT}_Wt", given.dim_vocabs[1])
        if f"{OUTPUT}_W" in file.shapes:  # of earlier versions of Marian
            yield (
                "output/kernel",
                Array(
                    f"{OUTPUT}_W", by_rows.shape[::-1], lambda kernel: by_rows.convert(kernel.T).T
                ),
            )
        else:
            yield "output/kernel", by_rows._replace(convert=lambda table: by_rows.convert(table).T)


def _layers(config: TransformerConfig) -> Iterator[tuple[str, Array]]:
    """Yield the arrays of all layers by the names that they have in a `Transformer`."""
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
    width, inner = config.model_dim, config.ff_width
    for theirs, (attention, residual) in parts.items():
        yield from _attention(config, attention, theirs)
        yield from _norm(width, residual, f"{theirs}_Wo")
    for name, number, inputs, outputs in (("inner", 1, width, inner), ("outer", 2, inner, width)):
        yield f"feed_forward/{name}/kernel", Array(f"ffn_W{number}", (inputs, outputs))
        yield f"feed_forward/{name}/bias", Array(f"ffn_b{number}", (1, outputs), np.ravel)
    yield from _norm(width, "ff_residual", "ffn_ffn")


def _attention(config: TransformerConfig, ours: str, theirs: str) -> Iterator[tuple[str, Array]]:
    width, heads = config.model_dim, (config.num_heads, config.query_width)  # H, K; H * K = D
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
