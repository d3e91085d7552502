"""An imported file of Marian, and a reference in NumPy float64 written from Marian's source."""

import math

import numpy as np
from marian_npz_folder import DECODER_LAYERS, LAYERS, D, H, write_file

from tfk_transformer.importing.model_import import import_model


class MarianFileReference:
    """Marian in NumPy float64, one sentence pair at a time."""

    def __init__(self, path, activation):
        with np.load(path) as arrays:
            self.arrays = {name: array.astype("float64") for name, array in arrays.items()}
        self.activation = activation

    def logits(self, source, target):
        """The logits (T, rows) after a start of zeros and after each of the rows `target`, for the
        rows `source`.
        """
        tables = [
            self.arrays.get(f"{stack}_Wemb", self.arrays.get("Wemb"))
            for stack in ("encoder", "decoder")
        ]
        memory = self.stack("encoder", LAYERS, tables[0][source])
        output = self.stack(
            "decoder", DECODER_LAYERS, np.vstack([np.zeros((1, D)), tables[1][target]]), memory
        )
        kernel = self.arrays.get(
            "decoder_ff_logit_out_W", self.arrays.get("decoder_ff_logit_out_Wt", tables[1]).T
        )
        return output @ kernel + self.arrays["decoder_ff_logit_out_b"]

    def stack(self, name, layers, x, memory=None):
        x = x * math.sqrt(D) + sinusoids(len(x))
        for i in range(layers):
            layer = f"{name}_l{i + 1}"
            if f"{layer}_rnn_W" in self.arrays:
                x = self.normalized(f"{layer}_rnn_ffn", x + self.remembered(f"{layer}_rnn", x))
            else:
                x = self.normalized(
                    f"{layer}_self_Wo",
                    x + self.attended(f"{layer}_self", x, x, causal=memory is not None),
                )
            if memory is not None:
                x = self.normalized(
                    f"{layer}_context_Wo", x + self.attended(f"{layer}_context", x, memory)
                )
            inner = self.activation(self.projected(f"{layer}_ffn", "1", x))
            x = self.normalized(f"{layer}_ffn_ffn", x + self.projected(f"{layer}_ffn", "2", inner))
        return x

    def attended(self, name, x, memory, causal=False):
        query, key, value = (
            self.projected(name, role, y)
            for role, y in zip("qkv", (x, memory, memory), strict=True)
        )
        outputs = []
        for own in np.split(np.arange(D), H):
            scores = query[:, own] @ key[:, own].T / math.sqrt(len(own))
            if causal:
                scores[np.triu_indices(len(x), 1)] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            outputs.append(weights / weights.sum(axis=1, keepdims=True) @ value[:, own])
        joined = np.hstack(outputs)
        return self.projected(name, "o", joined) if f"{name}_Wo" in self.arrays else joined

    def remembered(self, name, x):
        """The outputs of a recurrent unit (SSRU) after each position."""
        update = x @ self.arrays[f"{name}_W"]
        keep = 1 / (1 + np.exp(-self.projected(name, "f", x)))
        states = [np.zeros(D)]
        for u, f in zip(update, keep, strict=True):
            states.append(f * states[-1] + (1 - f) * u)
        return np.maximum(states[1:], 0)

    def projected(self, name, part, x):
        return x @ self.arrays[f"{name}_W{part}"] + self.arrays[f"{name}_b{part}"]

    def normalized(self, name, x):
        centered = x - x.mean(axis=1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-6)
        return scaled * self.arrays[f"{name}_ln_scale"] + self.arrays[f"{name}_ln_bias"]


def sinusoids(length):
    """Sines in the first half of the columns, cosines in the second: wavelengths from 2 pi to 2 pi
    * 10000, both included.
    """
    half = D // 2
    angles = np.array(
        [
            [position * math.exp(-i * math.log(10000) / (half - 1)) for i in range(half)]
            for position in range(length)
        ]
    )
    return np.hstack([np.sin(angles), np.cos(angles)])


def relu(x):
    return np.maximum(x, 0)


def swish(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    """Marian's."""
    return x / (1 + np.exp(-1.702 * x))


ACTIVATIONS = {"relu": relu, "swish": swish, "gelu": gelu}


class MarianFileCase:
    """A translator of a file, and the rows of its ids in the file's tables."""

    def __init__(self, folder, **changes):
        self.path = write_file(folder, **changes)
        self.vocab = [folder / "source.spm", folder / "target.spm"]
        self.translator = import_model(self.path, vocab=self.vocab)
        default = "relu" if changes.get("student") else "swish"
        activation = ACTIVATIONS[changes.get("transformer-ffn-activation", default)]
        self.reference = MarianFileReference(folder / "weights", activation)
        sizes = [
            tokenizer.vocab_size
            for tokenizer in (self.translator.source_tokenizer, self.translator.target_tokenizer)
        ]
        # End and unknown are the first pieces there, too.
        self.rows = [np.array([-1, -1, *range(size - 2)]) for size in sizes]
