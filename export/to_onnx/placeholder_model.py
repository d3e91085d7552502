"""A model whose encoder and step are single nodes, for the conversion to leave and another hand to fill."""

import tensorflow as tf

from tfk_transformer.export.to_onnx.conversion import DOMAIN, READ, STEP
from tfk_transformer.layers.attention import KeyValue
from tfk_transformer.models.base import Beams, Step, Stepper, TokenModel


class PlaceholderModel:
    """What `TranslationFunctions` needs of a model, with nothing inside.

    `Read` (source (B, S)) -> for each decoder layer keys (B, H, S, K) and values (B, H, S, V), then the source's additive
    mask (B, 1, 1, S); a model without an encoder has none. `Step` (ids (A, M, t+1), lineage (A, 1, M, (t+1)*M), each layer's
    keys and values so far, what `Read` gave, for the A sentences still searched) -> logits (A, M, V), attention (A, M, S),
    each layer's keys and values.

    Args:
        model: the model that it stands for.
    """

    def __init__(self, model: TokenModel):
        self.config = model.config
        self._first_cache = model.decoder.empty_cache

    def start_search(self, source, use_cache=True) -> Stepper:
        """Return the steps of a search; see `Transformer.start_search`."""
        memory = [] if self.config.architecture == "decoder" else self._read(source)
        return Stepper(self._step, self._first_cache, memory)

    def _read(self, source):
        layers = self._layers()
        found = _node(READ, [source], [*layers, (None, 1, 1, None)])
        return [_pairs(found[:-1]), found[-1]]

    def _step(self, beams: Beams, cache, memory) -> Step:
        shapes = [(None, None, self.config.target_vocab_size), (None, None, None), *self._layers()]
        logits, attention, *cache = _node(STEP, [*beams, *tf.nest.flatten(cache), *tf.nest.flatten(memory)], shapes)
        return Step(logits, _pairs(cache), attention)

    def _layers(self):
        """Return the shapes of each decoder layer's keys and values."""
        c = self.config
        return [(None, c.num_heads, None, width) for _ in range(c.decoder_layers) for width in (c.query_width, c.value_width)]


def _node(name: str, inputs, shapes):
    # A Python function in a graph is an operator with any number of inputs and outputs; this one is never run.
    outputs = tf.numpy_function(_never_run, inputs, [tf.float32] * len(shapes), stateful=False, name=f"{DOMAIN}_{name}")
    for output, shape in zip(outputs, shapes, strict=True):
        output.set_shape(shape)
    return outputs


def _never_run(*inputs):
    raise RuntimeError("this graph is for conversion alone.")


def _pairs(tensors):
    return [KeyValue(*pair) for pair in zip(tensors[::2], tensors[1::2], strict=True)]
