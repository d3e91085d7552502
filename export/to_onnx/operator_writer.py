"""Operators of ONNX for what the encoder and the decoder's step have in common, written from configuration and weights.

Products are of rows: A, B sentences, M beams a sentence, R = A*M rows (for the encoder B*S); D, H, K, V as everywhere.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import tape

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.config.model_options import ModelOptions
from tfk_transformer.export.to_onnx.onnx_matmul import Float32MatMul
from tfk_transformer.layers.position_encoding import sinusoids


class OperatorWriter:
    """Writes operators and constants.

    Args:
        graph: the main graph, which keeps the weights; what one body alone reads moves into it later.
        config: of the model.
        options: of its encoder's, or its decoder's, layers.
        weights: arrays by name, as `named_weights` has them.
        matmul: how rows are multiplied by weights.
    """

    def __init__(
        self,
        graph: ir.Graph,
        config: ModelOptions,
        options: LayerOptions,
        weights: Mapping[str, np.ndarray],
        matmul: Callable[..., Float32MatMul],
    ):
        self.graph, self.config, self.options, self.weights = graph, config, options, weights
        self.tape = tape.Tape()
        self.matmul = matmul(self.op, self.constant)

    @property
    def nodes(self) -> Sequence[ir.Node]:
        """What was written."""
        return self.tape.nodes

    def op(self, name: str, inputs, domain="", **attributes) -> ir.Value:
        """Write an operator of one output."""
        return self.tape.op(name, inputs, attributes, domain=domain)

    def ops(self, name: str, inputs, outputs: int, domain="", **attributes) -> Sequence[ir.Value]:
        """Write an operator of several outputs."""
        return self.tape.op_multi_out(name, inputs, attributes, num_outputs=outputs, domain=domain)

    def constant(self, name: str, array) -> ir.Value:
        """Return the main graph's constant of this name."""
        initializers = self.graph.initializers
        if name not in initializers:
            value = ir.Value(name=name, const_value=ir.tensor(np.asarray(array, order="C"), name=name))
            self.graph.register_initializer(value)
        return initializers[name]

    def ints(self, *values: int) -> ir.Value:
        """Return an int64 vector, for shapes and axes."""
        return self.constant("ints/" + "_".join(map(str, values)), np.array(values, "int64"))

    def table(self, side: str) -> str:
        """Return the name of a side's embedding table; one that both share has the source's."""
        own = f"{side}_embedding/embeddings"
        return own if own in self.weights else "source_embedding/embeddings"

    def positions(self, side: str) -> ir.Value:
        """Return the table of positions (max_length, D)."""
        name, c = f"{side}_positions/table", self.config
        if name in self.weights:
            return self.constant(name, self.weights[name])
        return self.constant("positions", sinusoids(c.max_length, c.model_dim, halves=c.positions == "sinusoidal_halves"))

    def embed(self, side: str, ids, positions) -> ir.Value:
        """Look up ids (A, M), scale, and add positions (…, D): rows (R, D)."""
        table = self.table(side)
        x = self.matmul.look_up(table, self.weights[table], ids)
        if self.config.scale_embeddings:
            x = self.op("Mul", [x, self.constant("embedding_scale", np.float32(self.config.model_dim**0.5))])
        return self.op("Reshape", [self.op("Add", [x, positions]), self.ints(-1, self.config.model_dim)])

    def normalize(self, x, path: str) -> ir.Value:
        """Normalize rows (R, D)."""
        # Not SkipLayerNormalization of onnxruntime: one operator less, and five times as slow as Add and this one.
        weights = [self.constant(f"{path}/{part}", self.weights[f"{path}/{part}"]) for part in ("gamma", "beta")]
        return self.op("LayerNormalization", [x, *weights], axis=-1, epsilon=self.options.norm_epsilon)

    def enter(self, x, path: str) -> ir.Value:
        """Return what a sublayer reads of rows (R, D), as `residual.Residual.enter` does."""
        return self.normalize(x, path) if self.options.norm == "pre" else x

    def leave(self, x, output, path: str) -> ir.Value:
        """Join a sublayer's input and output, both rows (R, D), as `residual.Residual` does."""
        total = self.op("Add", [x, output])
        return total if self.options.norm == "pre" else self.normalize(total, path)

    def finish(self, x, stack: str) -> ir.Value:
        """Normalize a stack's output (R, D), if it has a final norm."""
        return self.normalize(x, f"{stack}/final_norm") if f"{stack}/final_norm/gamma" in self.weights else x

    def feed_forward(self, x, path: str) -> ir.Value:
        """Apply a layer's feed-forward block to rows (R, D), inside its residual connection."""
        norm, block = f"{path}/ff_residual/norm", f"{path}/feed_forward"
        hidden = self._activate(self._dense(self.enter(x, norm), f"{block}/inner"))
        return self.leave(x, self._dense(hidden, f"{block}/outer"), norm)

    def _dense(self, x, path: str) -> ir.Value:
        return self.matmul.multiply(x, f"{path}/kernel", self.weights[f"{path}/kernel"], self.weights[f"{path}/bias"])

    def _activate(self, x):
        if self.options.ff_activation == "relu":
            return self.op("Relu", [x])
        if self.options.ff_activation == "silu":
            return self.op("Mul", [x, self.op("Sigmoid", [x])])
        half, one, root = (self.constant(f"gelu/{value}", np.float32(value)) for value in (0.5, 1.0, 2.0**0.5))
        doubled = self.op("Add", [self.op("Erf", [self.op("Div", [x, root])]), one])  # twice the normal distribution
        return self.op("Mul", [self.op("Mul", [x, doubled]), half])
