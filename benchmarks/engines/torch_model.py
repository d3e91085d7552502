"""Greedy search as a plain PyTorch loop: a naive baseline."""

import torch
from torch.nn import functional

from engines.batches import END_ID, START_ID, Search, padded_batches, unpadded
from engines.weights import read_weights

ACTIVATIONS = {"relu": functional.relu, "gelu": functional.gelu, "silu": functional.silu}


class Engine:
    """See the package. Only greedy search is supported."""

    version = f"PyTorch {torch.__version__}"

    def __init__(self, path: str, threads: int, cache: str):
        torch.set_num_threads(threads)
        self.model, self.use_cache = TorchTransformer(path), cache == "cache"

    def prepare(self, rows):
        """Leave lists of ids as they are: padding them is timed."""
        return rows

    @torch.inference_mode()
    def translate(self, rows, search: Search):
        """Run one batch after the other."""
        batches = padded_batches(rows, search.batch_size)
        return [self._greedy(torch.from_numpy(ids).long(), search) for ids in batches]

    def read(self, found):
        """Return lists of ids."""
        return unpadded(found)

    def _greedy(self, source, search: Search):
        """Extend every row of source (B, S) until the last one has ended; return (B, T)."""
        memory, mask = self.model.encode(source)
        projected = self.model.project(memory)
        ids, past = torch.full((len(source), 1), START_ID), None
        ended = torch.zeros(len(source), dtype=torch.bool)
        while ids.shape[1] <= search.max_length and not ended.all():
            if self.use_cache:
                logits, past = self.model.decode(ids[:, -1:], projected, mask, past)
            else:
                logits, _ = self.model.decode(ids, self.model.project(memory), mask)
            # Never padding or start.
            logits[:, : END_ID + 1 if search.forced else END_ID] = -torch.inf
            last = logits.argmax(-1).masked_fill(ended, 0)
            ended |= last == END_ID
            ids = torch.cat([ids, last[:, None]], dim=1)
        return ids[:, 1:].numpy()


class TorchTransformer:
    """The model as functions over its weights.

    Args:
        folder: what `engines.weights.write_weights` wrote.
    """

    def __init__(self, folder):
        self.config, arrays = read_weights(folder)
        self.weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
        for name in [
            name for name, array in arrays.items() if array.ndim == 3 and not name.endswith("_bias")
        ]:
            # (D, H*width), heads side by side.
            self.weights[name] = self.weights[name].permute(1, 0, 2).flatten(1).contiguous()

    def encode(self, source):
        """Encode source ids (B, S) to (B, S, D) and the mask (B, 1, 1, S) of real tokens."""
        mask = (source != 0)[:, None, None]
        x = self._embed("source", source, 0)
        for i in range(self.config["encoder_layers"]):
            layer = f"encoder/layer_{i}"
            x = self._connect(
                x,
                f"{layer}/attention_residual",
                lambda y, n=f"{layer}/attention": self._self_attention(n, y, mask)[0],
            )
            x = self._feed_forward(layer, x)
        return self._final_norm("encoder", x), mask

    def project(self, memory):
        """Return each decoder layer's keys and values (B, H, S, K) of the source."""
        names = [f"decoder/layer_{i}/cross_attention" for i in range(self.config["decoder_layers"])]
        return [[self._heads(name, role, memory) for role in ("key", "value")] for name in names]

    def decode(self, tokens, projected, mask, past=None):
        """Decode tokens (B, t) after those in `past`, each layer's keys and values; return the last
        one's logits (B, V), and more past.
        """
        x = self._embed("target", tokens, 0 if past is None else past[0][0].shape[2])
        grown = []
        for i, memory in enumerate(projected):
            layer = f"decoder/layer_{i}"
            x, own = self._decode_layer(layer, x, memory, mask, None if past is None else past[i])
            grown.append(own)
        return self._logits(self._final_norm("decoder", x[:, -1])), grown

    def _decode_layer(self, layer, x, memory, mask, past):
        own = []

        def look_back(y):
            output, found = self._self_attention(
                f"{layer}/self_attention", y, None, past, causal=past is None
            )
            own.extend(found)
            return output

        def read_source(y):
            name = f"{layer}/cross_attention"
            return self._attend(name, self._heads(name, "query", y), *memory, mask)

        x = self._connect(x, f"{layer}/self_residual", look_back)
        x = self._connect(x, f"{layer}/cross_residual", read_source)
        return self._feed_forward(layer, x), own

    def _self_attention(self, name, x, mask, past=None, causal=False):
        query, key, value = (self._heads(name, role, x) for role in ("query", "key", "value"))
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        return self._attend(name, query, key, value, mask, causal), (key, value)

    def _attend(self, name, query, key, value, mask, causal=False):
        scale = 1 / query.shape[-1] if self.config["attention_scale"] == "key_dim" else None
        heads = functional.scaled_dot_product_attention(
            query, key, value, mask, is_causal=causal, scale=scale
        )
        output = heads.transpose(1, 2).flatten(2) @ self.weights[f"{name}/output"]
        return output + self.weights.get(f"{name}/output_bias", 0)

    def _heads(self, name, role, x):
        """Project (B, T, D) to (B, H, T, K)."""
        projected = x @ self.weights[f"{name}/{role}"]
        if role in self.config["attention_bias"]:
            projected = projected + self.weights[f"{name}/{role}_bias"].flatten()
        return projected.unflatten(-1, (self.config["num_heads"], -1)).transpose(1, 2)

    def _feed_forward(self, layer, x):
        def run(y):
            inner, outer = (f"{layer}/feed_forward/{name}" for name in ("inner", "outer"))
            y = ACTIVATIONS[self.config["ff_activation"]](
                y @ self.weights[f"{inner}/kernel"] + self.weights[f"{inner}/bias"]
            )
            return y @ self.weights[f"{outer}/kernel"] + self.weights[f"{outer}/bias"]

        return self._connect(x, f"{layer}/ff_residual", run)

    def _connect(self, x, name, run):
        if self.config["norm"] == "pre":
            return x + run(self._norm(f"{name}/norm", x))
        return self._norm(f"{name}/norm", x + run(x))

    def _final_norm(self, stack, x):
        return self._norm(f"{stack}/final_norm", x) if self.config["norm"] == "pre" else x

    def _norm(self, name, x):
        return functional.layer_norm(
            x,
            x.shape[-1:],
            self.weights[f"{name}/gamma"],
            self.weights[f"{name}/beta"],
            self.config["norm_epsilon"],
        )

    def _embed(self, side, ids, first):
        shared = self.config["tie_embeddings"] == "all"
        table = self.weights[
            "source_embedding/embeddings" if shared else f"{side}_embedding/embeddings"
        ]
        scale = table.shape[1] ** 0.5 if self.config["scale_embeddings"] else 1.0
        return (
            table[ids] * scale
            + self.weights[f"{side}_positions/table"][first : first + ids.shape[1]]
        )

    def _logits(self, x):
        tied = self.config["tie_embeddings"]
        table = {"all": "source_embedding/embeddings", "target": "target_embedding/embeddings"}.get(
            tied
        )
        logits = x @ (self.weights[table].T if table else self.weights["output/kernel"])
        return logits + self.weights.get("output/bias", 0)
