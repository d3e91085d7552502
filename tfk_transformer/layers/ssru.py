"""The simpler simple recurrent unit, which a decoder layer can have in place of self-attention."""

import keras
from keras import ops

from tfk_transformer.array_types import Shape, Tensor
from tfk_transformer.layers.base import BaseLayer


@keras.saving.register_keras_serializable(package="tfk_transformer")
class SSRU(BaseLayer):
    """Combine each position with the earlier ones in a state of one vector.

    The simpler simple recurrent unit of "From Research to Production and Back: Ludicrously Fast
    Neural Machine Translation" (D19-5632), section 2.2:

        f_t = sigmoid(h_t W_f + b_f)
        c_t = f_t * c_(t-1) + (1 - f_t) * (h_t W),  c_0 = 0
        output_t = max(0, c_t)

    Weights: `kernel` W (D, D), `forget_kernel` W_f (D, D) and `forget_bias` b_f (D,). The gates and
    the state are float32 whatever the compute dtype, since a state adds up all earlier positions.

    Args:
        max_length: the largest T of a call, where T is unknown when TensorFlow traces it.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    arguments = ("max_length",)

    def __init__(self, max_length: int, **kwargs: object) -> None:
        super().__init__(autocast=False, **kwargs)
        self.max_length = max_length

    def build(self, x_shape: Shape) -> None:
        """Make the weights for inputs (…, D)."""
        width = x_shape[-1]
        shape = (width, width)
        self.kernel = self.add_weight(name="kernel", shape=shape)
        self.forget_kernel = self.add_weight(name="forget_kernel", shape=shape)
        self.forget_bias = self.add_weight(name="forget_bias", shape=(width,), initializer="zeros")

    def call(self, x: Tensor) -> Tensor:
        """Map all positions (B, T, D) to (B, T, D)."""
        forget, update = self._gates(x)
        state = _accumulate(forget, update, x.shape[1] or self.max_length)
        return ops.cast(ops.relu(state), self.compute_dtype)

    def step(self, x: Tensor, past: Tensor, lineage: Tensor = None) -> tuple[Tensor, Tensor]:
        """Map the next position (B, M, D) of M beams to (B, M, D), and their states (B, 1, M, D).

        The past, float32 (B, 1, M, D), has the states at the previous position, which are never
        reordered; it is (B, 1, 0, D) in the first step. The columns of the previous position in the
        lineage, see `DecoderLayer.step`, show each beam the one that it continues. A lineage of
        None is correct for M = 1.
        """
        forget, update = (gate[:, None] for gate in self._gates(x))
        if lineage is None:
            # Of at most one position. onnxruntime cannot sum over an empty axis.
            kept_and_new = ops.concatenate([forget * past, update], axis=2)
            state = ops.sum(kept_and_new, axis=2, keepdims=True)
        else:
            beams = ops.shape(x)[1]
            continued = ops.equal(lineage[:, :, :, -2 * beams : -beams], 0.0)
            state = forget * ops.matmul(ops.cast(continued, past.dtype), past) + update
        return ops.cast(ops.relu(state[:, 0]), self.compute_dtype), state

    def _gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return f and (1 - f) * (x W), float32 (B, T, D)."""
        shape = ops.shape(x)
        width = self.kernel.shape[1]
        kernel = ops.concatenate([self.kernel, self.forget_kernel], axis=1)
        rows = ops.reshape(ops.cast(x, self.compute_dtype), (-1, kernel.shape[0]))
        projected = ops.cast(ops.matmul(rows, ops.cast(kernel, rows.dtype)), "float32")
        forget = ops.sigmoid(projected[:, width:] + ops.cast(self.forget_bias, "float32"))
        update = (1.0 - forget) * projected[:, :width]
        return ops.reshape(forget, shape), ops.reshape(update, shape)


def _accumulate(forget: Tensor, update: Tensor, length: int) -> Tensor:
    """Return c_t = f_t * c_(t-1) + u_t for all positions of (B, T, D), where T is at most `length`.

    After the pass with the shift s, the state of a position adds up the last 2 s updates, so that
    the number of passes is the logarithm of the length ("Data Parallel Algorithms",
    doi:10.1145/7902.7903). XLA and a trace with an unknown T need a fixed number of passes. Passes
    beyond T change nothing.
    """
    state = update
    decay = forget[:, 1:]  # of the positions from the shift on, over the last s positions
    shift = 1
    while shift < length:
        later = state[:, shift:] + decay * state[:, :-shift]
        state = ops.concatenate([state[:, :shift], later], axis=1)
        decay = decay[:, shift:] * decay[:, :-shift]
        shift *= 2
    return state
