"""The options of a model, which Marian stores as YAML in the file of its arrays."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.record import Record
from tfk_transformer.importing.arrays import Arrays
from tfk_transformer.importing.marian_files.files import OPTIONS, load_error
from tfk_transformer.importing.vocabulary import Vocabulary

MAX_OPTIONS_BYTES = 1_000_000  # Marian writes about 2,000
# Marian's sinusoids are unbounded, and a file does not have the length of its training texts.
MAX_LENGTH = 512
MARIAN_EPSILON = 1e-6
MARIAN_ACTIVATIONS: dict[str, Any] = {"relu": "relu", "swish": "silu", "gelu": "gelu_sigmoid"}


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
    return MarianOptions(**parse_yaml(text, file.path, f"'{OPTIONS}' of {file.path}"))


def parse_yaml(text: bytes, path: Path, name: str) -> dict[str, Any]:
    """Return the values by name in YAML; the name of the YAML is for error messages."""
    import yaml

    try:
        options = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise load_error(path, error) from None
    if not isinstance(options, dict):
        raise ValueError(
            f"Marian: expected options by name as {name}, got {type(options).__name__}."
        )
    return {str(name): value for name, value in options.items()}
