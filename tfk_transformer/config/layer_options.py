"""Options of encoder and decoder layers.

Letters in all docstrings of this package: B batch, S source length, T target length, D model_dim, F
ff_dim, H num_heads, K key_dim, V value_dim, L number of layers, M number of beams of a sentence.
"""

from typing import Any, Literal, get_args

from pydantic import Field, field_validator

from tfk_transformer.config.record import Record

Role = Literal["query", "key", "value", "output"]
ROLES: tuple[Role, ...] = get_args(Role)


def option(default: Any, description: str, **rules: Any) -> Any:
    """Return the field of an option, with pydantic's rules of its value."""
    return Field(default=default, description=description, **rules)


class LayerOptions(Record):
    """Options of one encoder or decoder layer.

    Sizes are counts. Dropouts are probabilities in [0, 1).
    """

    model_dim: int = option(512, "width of the embeddings and of the output of each layer", gt=0)
    num_heads: int = option(8, "number of attention heads", gt=0)
    key_dim: int | None = option(
        None, "width of a query or key head; by default, model_dim / num_heads", gt=0
    )
    value_dim: int | None = option(
        None, "width of a value head; by default, model_dim / num_heads", gt=0
    )
    attention_bias: tuple[Role, ...] = option(
        (), "projections that have a bias; true: all, false: none"
    )
    attention_scale: Literal["sqrt_key_dim", "key_dim"] = option(
        "sqrt_key_dim", "divisor of the attention scores"
    )
    keys_are_values: bool = option(
        False, "the values also serve as keys; there is no key projection"
    )
    shared_projections: bool = option(
        False,
        "each head reads its slice of the input, and one query, key and value "
        "projection serves all heads",
    )
    attention_dropout: float = option(0.0, "on attention probabilities", ge=0, lt=1)
    attention_output_dropout: float = option(
        0.0, "on the output of attention, before the residual connection", ge=0, lt=1
    )
    ff_dim: int | None = option(
        None, "inner width of the feed-forward block; by default, ff_expansion * model_dim", gt=0
    )
    ff_expansion: int = option(
        4, "inner width as a multiple of model_dim, if ff_dim is not set", gt=0
    )
    ff_activation: Literal["relu", "gelu", "gelu_tanh", "gelu_sigmoid", "silu"] = option(
        "relu",
        "'gelu' is exact, 'gelu_tanh' its approximation by tanh, and 'gelu_sigmoid' is "
        "x * sigmoid(1.702 * x)",
    )
    ff_gated: bool = option(
        False, "multiply the activated inner product by a second, linear product of the input"
    )
    ff_bias: bool = option(True, "whether the products of the feed-forward block have biases")
    ff_dropout: float = option(0.0, "inside the feed-forward block", ge=0, lt=1)
    norm: Literal["pre", "post", "post_dropout"] = option(
        "pre",
        "what is normalized: 'pre' the input of each sublayer, 'post' its sum with the "
        "residual connection, 'post_dropout' that sum before dropout",
    )
    norm_type: Literal["layer", "rms"] = option(
        "layer", "'rms' divides by the root mean square, without a mean and a bias"
    )
    norm_epsilon: float = option(1e-6, "number that normalization adds to the variance", gt=0)
    dropout: float = option(0.1, "of each residual connection", ge=0, lt=1)

    @field_validator(
        "attention_bias", mode="before", json_schema_input_type=bool | tuple[Role, ...]
    )
    @classmethod
    def _name_all_or_none(cls, value: object) -> object:
        if isinstance(value, bool):
            return ROLES if value else ()
        return value

    @field_validator("attention_bias")
    @classmethod
    def _sort_roles(cls, value: tuple[Role, ...]) -> tuple[Role, ...]:
        return tuple(role for role in ROLES if role in value)

    def _problems(self) -> list[str]:
        problems = []
        uneven = self.model_dim % self.num_heads
        if uneven and (self.shared_projections or None in (self.key_dim, self.value_dim)):
            condition = "unless key_dim and value_dim are given"
            if self.shared_projections:
                condition = "with shared_projections"
            problems.append(
                f"model_dim must be a multiple of num_heads {condition}, got {self.model_dim} and "
                f"{self.num_heads}"
            )
        if self.keys_are_values and self.query_width != self.value_width:
            problems.append(
                f"keys_are_values needs key_dim and value_dim to be equal, got {self.query_width} "
                f"and {self.value_width}"
            )
        return problems

    @property
    def query_width(self) -> int:
        """K: the width of a query or key head."""
        return self.key_dim or self.model_dim // self.num_heads

    @property
    def value_width(self) -> int:
        """V: the width of a value head."""
        return self.value_dim or self.model_dim // self.num_heads

    @property
    def ff_width(self) -> int:
        """F: the inner width of the feed-forward block."""
        return self.ff_dim or self.ff_expansion * self.model_dim

    @property
    def normalizes_input(self) -> bool:
        """Whether the input of each sublayer is normalized, and not its output."""
        return self.norm == "pre"

    @property
    def has_rms_norm(self) -> bool:
        """Whether norms divide by the root mean square, without a mean and a bias."""
        return self.norm_type == "rms"

    def layer_options(self, **changes: Any) -> "LayerOptions":
        """Return the layer options of a model's configuration, with changes of some values."""
        options = {name: getattr(self, name) for name in LayerOptions.model_fields}
        return LayerOptions(**{**options, **changes})
