"""Multi-head attention ("Attention Is All You Need", section 3.2), with one weight per role."""

import inspect
import itertools
import warnings
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

import keras
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.config.layer_options import ROLES
from tfk_transformer.layers.base import BaseLayer, Dropout
from tfk_transformer.layers.masks import as_additive

# Arguments of keras.layers.MultiHeadAttention that the layer here has under another name.
KERAS_ARGUMENTS = {
    "value": "pass keys and values as one tensor, context=value",
    "key": "pass keys and values as one tensor, context=value",
    "use_causal_mask": "pass attention_mask=causal_mask(ids)",
    "return_attention_scores": "the result has them as its field `weights`",
}


class KeyValue(NamedTuple):
    """Projected keys and values: the KV cache of past tokens, or the memory of encoder outputs."""

    key: Tensor  # (B, H, S, K)
    value: Tensor  # (B, H, S, V)

    def append(self, newer: "KeyValue") -> "KeyValue":
        """Return the keys and values of both, with the newer positions last."""
        return KeyValue(
            ops.concatenate([self.key, newer.key], axis=2),
            ops.concatenate([self.value, newer.value], axis=2),
        )


class Attended(NamedTuple):
    """The result of an attention layer, or of a layer that contains one."""

    output: Tensor  # (B, T, D)
    weights: Tensor  # float32 (B, H, T, S); each row is a distribution over S


@keras.saving.register_keras_serializable(package="tfk_transformer")
class MultiHeadAttention(BaseLayer):
    """Attend with H heads: softmax(Q K^T / sqrt(K) + mask) V, then join and project the heads.

    Weights: `query` (H, D, K), `key` (H, C, K), `value` (H, C, V), `output` (H*V, D), and biases
    (H, 1, K), (H, 1, V), (D,). C is the width of the context, by default D. Scores, mask and
    softmax are float32 whatever the compute dtype, so that -1e9 is representable and a fully masked
    row gives finite numbers.

    Args:
        num_heads: H.
        key_dim: K, width of a query or key head.
        value_dim: V, width of a value head. Defaults to K.
        use_bias: which projections have biases: True, False, or some of "query", "key", "value",
            "output". Defaults to False.
        dropout: probability of dropping an attention weight while training. Defaults to 0.
        output_dropout: probability of dropping an element of the output while training. Defaults to
            0.
        scale: the divisor of the attention scores: "sqrt_key_dim" (the default) or "key_dim".
        keys_are_values: whether the values also serve as keys, without a key projection. K and V
            must then be equal. Defaults to False.
        shared_projections: whether each head reads its own slice (…, D/H) of the input, and all
            heads share the projections `query` (1, D/H, K), `key` (1, C/H, K), `value` (1, C/H, V).
            Defaults to False.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    arguments = (
        "num_heads",
        "key_dim",
        "value_dim",
        "use_bias",
        "dropout",
        "output_dropout",
        "scale",
        "keys_are_values",
        "shared_projections",
    )

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        use_bias: bool | Iterable[str] = False,
        dropout: float = 0.0,
        output_dropout: float = 0.0,
        scale: str = "sqrt_key_dim",
        keys_are_values: bool = False,
        shared_projections: bool = False,
        **kwargs: object,
    ) -> None:
        # Autocast would turn a float32 mask's -1e9 into float16's -inf; inputs and weights are cast
        # where they are projected.
        super().__init__(autocast=False, **kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim or key_dim
        if isinstance(use_bias, bool):
            use_bias = ROLES if use_bias else ()
        self.use_bias = list(use_bias)
        self.dropout = dropout
        self.output_dropout = output_dropout
        self.scale = scale
        self.keys_are_values = keys_are_values
        self.shared_projections = shared_projections
        self.context_roles = ("value",) if keys_are_values else ("key", "value")
        self.weight_dropout = Dropout(dropout, dtype=self.dtype_policy)
        self.joined_dropout = Dropout(output_dropout, dtype=self.dtype_policy)

    def build(
        self,
        query_shape: Shape,
        context_shape: Shape | None = None,
        attention_mask_shape: Shape | None = None,
    ) -> None:
        """Make the weights for a query (…, D) and a context (…, C), by default the query."""
        model_dim = query_shape[-1] or 0
        context_dim = (context_shape or query_shape)[-1] or 0
        self.input_spec = keras.InputSpec(axes={-1: model_dim}, name="query")
        heads, slices = (1, self.num_heads) if self.shared_projections else (self.num_heads, 1)
        widths = {"query": self.key_dim, "key": self.key_dim, "value": self.value_dim}
        for role in ("query", *self.context_roles):
            rows = (model_dim if role == "query" else context_dim) // slices
            self._add_projection(role, (heads, rows, widths[role]), (heads, 1, widths[role]))
        self._add_projection("output", (self.num_heads * self.value_dim, model_dim), (model_dim,))

    def compute_output_spec(self, *args: Tensor, **kwargs: Tensor) -> Attended:
        """Return the shapes and types of both fields."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def _add_projection(
        self, role: str, shape: tuple[int, ...], bias_shape: tuple[int, ...]
    ) -> None:
        # Glorot's limit for the projection as one matrix, D x (H * width). Keras would take the
        # head axis for the axis of a convolution.
        fan_out = shape[-1] * (shape[0] if len(shape) == 3 else 1)
        limit = (6.0 / (shape[-2] + fan_out)) ** 0.5
        initializer = keras.initializers.RandomUniform(-limit, limit)
        weight = self.add_weight(name=role, shape=shape, initializer=initializer)
        setattr(self, f"{role}_weight", weight)
        bias = None
        if role in self.use_bias:
            bias = self.add_weight(name=f"{role}_bias", shape=bias_shape, initializer="zeros")
        setattr(self, f"{role}_bias", bias)

    def __call__(self, *args: Tensor, **kwargs: Tensor) -> Attended:
        """Refuse arguments of `keras.layers.MultiHeadAttention` that `call` lacks; see `call`."""
        for name in kwargs:
            if name in KERAS_ARGUMENTS and name not in inspect.signature(self.call).parameters:
                raise ValueError(
                    f"{name}: expected query, context and attention_mask, got '{name}'; "
                    f"{KERAS_ARGUMENTS[name]}."
                )
        return super().__call__(*args, **kwargs)

    @property
    def enable_lora(self) -> NoReturn:
        """Raise an AttributeError that names the layers with LoRA."""
        raise AttributeError(
            "enable_lora: expected a Dense or Embedding layer, got MultiHeadAttention; call "
            "enable_lora of feed_forward.inner and feed_forward.outer, which are Dense."
        )

    def project_query(self, query: Tensor) -> Tensor:
        """Project (B, T, D) to heads (B, H, T, K)."""
        return self._split_heads(query, ("query",))[0]

    def project_context(self, context: Tensor) -> KeyValue:
        """Project (B, S, C) to keys (B, H, S, K) and values (B, H, S, V)."""
        parts = self._split_heads(context, self.context_roles)
        return KeyValue(parts[0], parts[-1])

    def project_self(self, x: Tensor) -> tuple[Tensor, KeyValue]:
        """Project (B, T, D) to the queries, keys and values of self-attention in one product."""
        query, *parts = self._split_heads(x, ("query", *self.context_roles))
        return query, KeyValue(parts[0], parts[-1])

    def attend(
        self,
        query: Tensor,
        context: KeyValue,
        attention_mask: Tensor = None,
        training: bool | None = None,
    ) -> Attended:
        """Attend from projected queries to projected keys and values.

        Args:
            query: (B, H, T, K).
            context: keys (B, H, S, K) and values (B, H, S, V).
            attention_mask: booleans, True for a visible position, or floats that are added to the
                scores; see `masks.as_additive`. None hides nothing.
            training: whether dropout is applied.

        Returns:
            Output (B, T, D) and weights (B, H, T, S).

        Raises:
            ValueError: for a mask of integers.
        """
        divisor = self.key_dim if self.scale == "key_dim" else self.key_dim**0.5
        # (B, H, T, S)
        scores = ops.matmul(query * (1.0 / divisor), ops.swapaxes(context.key, -1, -2))
        scores = ops.cast(scores, "float32")
        if attention_mask is not None:
            scores = scores + as_additive(attention_mask)
        with warnings.catch_warnings():
            # Keras warns about a softmax over a single key. The first decoding step has only one.
            warnings.filterwarnings("ignore", message="You are using a softmax over axis")
            weights = ops.softmax(scores, axis=-1)
        dropped = self.weight_dropout(ops.cast(weights, query.dtype), training=training)
        heads = ops.matmul(dropped, context.value)  # (B, H, T, V)
        batch, _, length = ops.shape(heads)[:3]
        joined = ops.transpose(heads, (0, 2, 1, 3))  # (B, T, H, V)
        rows = ops.reshape(joined, (-1, self.num_heads * self.value_dim))
        rows = ops.matmul(rows, ops.cast(self.output_weight, rows.dtype))
        rows = self._add_bias(rows, "output")
        output = ops.reshape(rows, (batch, length, self.output_weight.shape[1]))  # (B, T, D)
        return Attended(self.joined_dropout(output, training=training), weights)

    def call(
        self,
        query: Tensor,
        context: Tensor = None,
        attention_mask: Tensor = None,
        training: bool | None = None,
    ) -> Attended:
        """Attend from `query` (B, T, D) to `context` (B, S, C); see `attend`.

        Without a context, attend from `query` to itself.
        """
        if context is None:
            projected = self.project_self(query)
        else:
            projected = self.project_query(query), self.project_context(context)
        return self.attend(*projected, attention_mask, training)

    def _split_heads(self, x: Tensor, roles: tuple[str, ...]) -> list[Tensor]:
        """Project (B, T, D) to (B, H, T, width) for each of the roles, in one matrix product."""
        batch, length, _ = ops.shape(x)
        weights = [getattr(self, f"{role}_weight") for role in roles]
        matrices = [  # (D, H*width), with the heads next to each other
            ops.reshape(ops.transpose(w, (1, 0, 2)), (w.shape[1], w.shape[0] * w.shape[2]))
            for w in weights
        ]
        kernel = ops.concatenate(matrices, axis=1)
        # (B*T, D), or (B*T*H, D/H) with shared projections.
        rows = ops.reshape(ops.cast(x, self.compute_dtype), (-1, kernel.shape[0]))
        projected = ops.matmul(rows, ops.cast(kernel, rows.dtype))
        parts = [projected]
        if len(weights) > 1:
            widths = [weight.shape[0] * weight.shape[2] for weight in weights]
            parts = ops.split(projected, list(itertools.accumulate(widths[:-1])), axis=-1)
        parts = [self._add_bias(part, role) for part, role in zip(parts, roles, strict=True)]
        split = [
            ops.reshape(part, (batch, length, self.num_heads, w.shape[2]))
            for part, w in zip(parts, weights, strict=True)
        ]
        return [ops.transpose(part, (0, 2, 1, 3)) for part in split]  # (B, H, T, width)

    def _add_bias(self, rows: Tensor, role: str) -> Tensor:
        bias = getattr(self, f"{role}_bias")
        # The bias has the heads next to each other, as in the rows.
        return rows if bias is None else rows + ops.cast(ops.reshape(bias, (-1,)), rows.dtype)
