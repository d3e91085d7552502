"""The common configuration of BART and its descendants in Hugging Face's layout."""

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import ConfigDict, model_validator

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.record import Record

# Activations with another name here. The first of several names is written.
BART_ACTIVATIONS = {
    "swish": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
}
BART_EPSILON = 1e-5  # of every layer norm


class BartConfig(Record):
    """The values of a config.json on which results depend. Other values are ignored."""

    model_config = ConfigDict(extra="ignore")
    proposes_values = False

    vocab_size: int
    d_model: int
    encoder_layers: int
    decoder_layers: int
    encoder_attention_heads: int
    decoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_ffn_dim: int
    max_position_embeddings: int
    activation_function: Literal[
        "relu",
        "gelu",
        "swish",
        "silu",
        "gelu_new",
        "gelu_pytorch_tanh",
        "gelu_fast",
        "quick_gelu",
    ]
    scale_embedding: bool
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    pad_token_id: int
    eos_token_id: int
    decoder_start_token_id: int

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if problems := list(self._problems()):
            raise ValueError("; ".join(problems))
        return self

    def _problems(self, *equal_values: tuple[str, str]) -> Iterator[str]:
        """Describe the values that do not fit together.

        Args:
            equal_values: pairs of fields that must be equal in this family. The second value of a
                pair may be None.
        """
        for name, equal_name in (
            ("encoder_attention_heads", "decoder_attention_heads"),
            *equal_values,
        ):
            value = getattr(self, name)
            equal_value = getattr(self, equal_name)
            if equal_value not in (None, value):
                yield f"{equal_name}: expected {value}, the value of {name}, got {equal_value}"

    def common_options(self) -> dict[str, Any]:
        """Return the `TransformerConfig` options that all families derive from these values."""
        is_same = self.decoder_ffn_dim == self.encoder_ffn_dim
        decoder_width = None if is_same else self.decoder_ffn_dim
        return {
            "model_dim": self.d_model,
            "num_heads": self.encoder_attention_heads,
            "ff_dim": self.encoder_ffn_dim,
            "decoder_ff_dim": decoder_width,
            "encoder_layers": self.encoder_layers,
            "decoder_layers": self.decoder_layers,
            "ff_activation": BART_ACTIVATIONS.get(
                self.activation_function, self.activation_function
            ),
            "scale_embeddings": self.scale_embedding,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "ff_dropout": self.activation_dropout,
            "norm_epsilon": BART_EPSILON,
            "attention_bias": True,
            "output_bias": True,
        }


def common_values(config: TransformerConfig) -> dict[str, Any]:
    """Return the values of a config.json that all families derive from a `TransformerConfig`.

    This is the reverse of `common_options`.
    """
    activations = {ours: theirs for theirs, ours in reversed(BART_ACTIVATIONS.items())}
    return {
        "d_model": config.model_dim,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        **{f"{stack}_attention_heads": config.num_heads for stack in ("encoder", "decoder")},
        "encoder_ffn_dim": config.ff_width,
        "decoder_ffn_dim": config.decoder_options().ff_width,
        "activation_function": activations.get(config.ff_activation, config.ff_activation),
        "scale_embedding": config.scale_embeddings,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.ff_dropout,
    }
