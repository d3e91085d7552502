"""Five descriptions of the Transformer computed from their formulas, in NumPy float64, one sentence
and one head at a time.

The letters are those of `tfk_transformer/config/layer_options.py`. Nothing here uses the library's
layers: the tests compare the two. There is no batch axis: x is (T, D). A mask is added to the
scores: 0 for a visible token and -1e9 for a hidden one.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

HIDDEN = -1e9


class Reference(NamedTuple):
    """What a description computes on a batch; the weights of attention are lists with one array a
    layer.
    """

    encoder_output: np.ndarray  # (B, S, D)
    encoder_weights: list[np.ndarray]  # (B, H, S, S)
    decoder_weights: list[np.ndarray]  # (B, H, T, T)
    cross_weights: list[np.ndarray]  # (B, H, T, S)
    decoder_output: np.ndarray  # (B, T, D)
    # (B, T, Vt): logits, or probabilities where the description ends in a softmax.
    output: np.ndarray


class Parts(NamedTuple):
    """In what the descriptions differ."""

    embed: Callable  # (side, ids (T,)) -> (T, D)
    # (weights, x (T, D), context (S, D), mask) -> output (T, D), attention (H, T, S)
    attend: Callable
    residual: Callable  # (x (T, D), sublayer, norm weights) -> (T, D)
    finish: Callable  # (side, x (T, D)) -> (T, D), after a whole stack
    project: Callable  # (y (T, D)) -> (T, Vt)


# The five descriptions.


def yet_another_explanation(weights, source, target):
    """Compute "Yet another explanation and implementation of the transformer model": x +
    sub(norm(x)), biases everywhere.
    """
    return run(weights, yet_another_parts(weights), source, target)


def yet_another_decoder(weights, rows):
    """Compute the decoder that its collection trains alone, on ids (B, T): every layer without the
    second attention; logits.
    """
    parts, logits = yet_another_parts(weights), []
    for ids in rows:
        # (T, D), (T, T)
        y, mask = parts.embed("target", ids), hide(ids != 0)[None] + hide(np.tri(len(ids)))
        for w in layers(weights, "decoder"):
            y, _ = attention_sublayer(parts, w, "self_attention", "self_residual", y, None, mask)
            y = feed_forward_sublayer(parts, w, y)
        logits.append(parts.project(parts.finish("decoder", y)))
    return np.stack(logits)


def yet_another_classifier(weights, rows):
    """Compute the encoder that its collection trains to classify ids (B, S): the mean of its
    outputs, then a linear layer; logits.

    The collection's mean counts padding too, and so depends on the other sentences of a batch; ours
    is over the tokens.
    """
    parts, logits = yet_another_parts(weights), []
    for ids in rows:
        x, _ = encode(weights, parts, ids, hide(ids != 0)[None])
        logits.append(x[ids != 0].mean(0) @ weights["head/kernel"] + weights["head/bias"])
    return np.stack(logits)


def yet_another_parts(weights):
    """Return the parts of that description."""
    norm = partial(layer_norm, epsilon=1e-5)
    return Parts(
        embed=lambda side, ids: (
            embeddings(weights, side, ids) + weights[f"{side}_positions/table"][: len(ids)]
        ),
        attend=biased_attention,
        residual=lambda x, sublayer, w: x + sublayer(norm(x, w)),
        finish=lambda side, x: norm(x, scope(weights, f"{side}/final_norm")),
        project=lambda y: y @ weights["output/kernel"] + weights["output/bias"],
    )


def from_zero(weights, source, target):
    """Compute the Transformer "made from zero" whose values are its keys, with a mask that is
    added, not multiplied.

    Its formulas read softmax(S)^T V; transposed, the weights of a row would not sum to 1. We take
    softmax(S) V.
    """
    norm = partial(layer_norm, epsilon=1e-5)
    parts = Parts(
        embed=lambda side, ids: embeddings(weights, side, ids) + positions(weights, ids),
        attend=keyless_attention,
        residual=lambda x, sublayer, w: norm(x + sublayer(x), w),
        finish=lambda side, x: x,
        project=lambda y: softmax(y @ weights["output/kernel"] + weights["output/bias"]),
    )
    return run(weights, parts, source, target)


def step_by_step(weights, source, target, halves=False):
    """Compute the step-by-step description's first form, norm(x + sub(x)); `halves` takes the
    positions of tensor2tensor.
    """
    return run(weights, step_by_step_parts(weights, halves), source, target)


def step_by_step_pre(weights, source, target, halves=False):
    """Compute its second form, x + sub(norm(x)); such a stack needs a norm at its end, of which it
    says nothing.
    """
    norm = partial(layer_norm, epsilon=1e-6)
    parts = step_by_step_parts(weights, halves)._replace(
        residual=lambda x, sublayer, w: x + sublayer(norm(x, w)),
        finish=lambda side, x: norm(x, scope(weights, f"{side}/final_norm")),
    )
    return run(weights, parts, source, target)


def step_by_step_parts(weights, halves):
    """Return the parts of the first form."""
    norm = partial(layer_norm, epsilon=1e-6)
    return Parts(
        embed=lambda side, ids: embeddings(weights, side, ids) + positions(weights, ids, halves),
        attend=root_attention,
        residual=lambda x, sublayer, w: norm(x + sublayer(x), w),
        finish=lambda side, x: x,
        project=lambda y: y @ weights["output/kernel"] + weights["output/bias"],
    )


def transformer_details(weights, source, target, source_mask=None, look_ahead=True):
    """Compute "Transformer Details": scores over d_k, masks that are added; what it leaves out is
    the paper's.

    `source_mask` is its P (B, S), 1 for a token that is seen, made from ids if missing; without
    `look_ahead`, its L hides nothing.
    """
    norm = partial(layer_norm, epsilon=1e-6)
    parts = Parts(
        embed=lambda side, ids: (
            embeddings(weights, side, ids, scaled=True) + positions(weights, ids)
        ),
        attend=details_attention,
        residual=lambda x, sublayer, w: norm(x + sublayer(x), w),
        finish=lambda side, x: x,
        project=lambda y: y @ weights["output/kernel"],
    )
    return run(weights, parts, source, target, source_mask, look_ahead)


def from_scratch_pytorch(weights, source, target):
    """Compute "Implementing Transformers From Scratch Using Pytorch", as its text and pictures have
    it where its code errs.
    """
    norm = partial(layer_norm, epsilon=1e-5)
    parts = Parts(
        embed=lambda side, ids: (
            embeddings(weights, side, ids, scaled=True) + positions(weights, ids)
        ),
        attend=sliced_attention,
        residual=lambda x, sublayer, w: norm(x + sublayer(x), w),
        finish=lambda side, x: x,
        project=lambda y: softmax(y @ weights["output/kernel"] + weights["output/bias"]),
    )
    return run(weights, parts, source, target)


# Their attentions.


def biased_attention(w, x, context, mask):
    """Attend with softmax(Q K^T / sqrt(d_k)) V, each of the three a linear layer with a bias."""
    heads = []
    for h in range(len(w["query"])):
        q = x @ w["query"][h] + w["query_bias"][h]
        k = context @ w["key"][h] + w["key_bias"][h]
        v = context @ w["value"][h] + w["value_bias"][h]
        heads.append(averaged(q @ k.T / np.sqrt(k.shape[1]) + mask, v))
    joined, attention = join(heads)
    return joined @ w["output"] + w["output_bias"], attention


def keyless_attention(w, x, context, mask):
    """Attend with S = Q V^T / sqrt(l) and softmax(S) V: what is compared with the query is the
    value itself.
    """
    heads = []
    for h in range(len(w["query"])):
        q = x @ w["query"][h] + w["query_bias"][h]
        v = context @ w["value"][h] + w["value_bias"][h]
        heads.append(averaged(q @ v.T / np.sqrt(v.shape[1]) + mask, v))
    joined, attention = join(heads)
    return joined @ w["output"] + w["output_bias"], attention


def root_attention(w, x, context, mask):
    """Attend with softmax((X W^Q)(Y W^K)^T / sqrt(d_k)) (Y W^V), then W^O."""
    heads = []
    for h in range(len(w["query"])):
        q, k, v = x @ w["query"][h], context @ w["key"][h], context @ w["value"][h]
        heads.append(averaged(q @ k.T / np.sqrt(k.shape[1]) + mask, v))
    joined, attention = join(heads)
    return joined @ w["output"], attention


def details_attention(w, x, context, mask):
    """Attend with alpha = softmax(Q K^T / d_k + M), A' = alpha V and O = A W^O."""
    heads = []
    for h in range(len(w["query"])):
        q, k, v = x @ w["query"][h], context @ w["key"][h], context @ w["value"][h]
        heads.append(averaged(q @ k.T / k.shape[1] + mask, v))
    joined, attention = join(heads)
    return joined @ w["output"], attention


def sliced_attention(w, x, context, mask):
    """Attend with heads that each read a slice of the input, all through the same three
    matrices.
    """
    heads, num_heads = [], x.shape[1] // w["query"].shape[1]
    for x_slice, context_slice in zip(
        np.split(x, num_heads, axis=1), np.split(context, num_heads, axis=1), strict=True
    ):
        # (T, D/H) and (S, D/H)
        q, k, v = (
            x_slice @ w["query"][0],
            context_slice @ w["key"][0],
            context_slice @ w["value"][0],
        )
        heads.append(averaged(q @ k.T / np.sqrt(k.shape[1]) + mask, v))
    joined, attention = join(heads)
    return joined @ w["output"] + w["output_bias"], attention


def averaged(scores, v):
    """Return the values (S, V) averaged with the weights softmax(scores) (T, S), and these."""
    attention = softmax(scores)
    return attention @ v, attention


def join(heads):
    """Put the heads' outputs side by side: (T, H*V), and their weights one behind the other: (H, T,
    S).
    """
    outputs, attention = zip(*heads, strict=True)
    return np.concatenate(outputs, axis=1), np.stack(attention)


# The pieces they share.


def softmax(scores, axis=-1):
    """Return exp(scores) over their sum along an axis."""
    exponentials = np.exp(scores - scores.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


def layer_norm(x, w, epsilon):
    """Give every row of x mean 0 and variance 1, then scale and shift its columns."""
    centered = x - x.mean(-1, keepdims=True)
    return (
        w["gamma"] * centered / np.sqrt((centered**2).mean(-1, keepdims=True) + epsilon) + w["beta"]
    )


def feed_forward(x, w):
    """Compute max(0, x W1 + b1) W2 + b2."""
    return (
        np.maximum(0.0, x @ w["inner/kernel"] + w["inner/bias"]) @ w["outer/kernel"]
        + w["outer/bias"]
    )


def embeddings(weights, side, ids, scaled=False):
    """Look up ids (T,): (T, D), times sqrt(D) if scaled."""
    vectors = weights[f"{side}_embedding/embeddings"][ids]
    return vectors * np.sqrt(vectors.shape[1]) if scaled else vectors


def positions(weights, ids, halves=False):
    """Return the sinusoids (T, D) for ids (T,)."""
    width = weights["source_embedding/embeddings"].shape[1]
    return (halved_sinusoids if halves else paper_sinusoids)(len(ids), width)


def paper_sinusoids(length, width):
    """Return sin(pos / 10000^(2i/D)) in column 2i and cos(pos / 10000^(2i/D)) in column 2i + 1:
    (length, D).
    """
    table = np.zeros((length, width))
    for pos in range(length):
        for column in range(width):
            angle = pos / 10000 ** (2 * (column // 2) / width)
            table[pos, column] = np.cos(angle) if column % 2 else np.sin(angle)
    return table


def halved_sinusoids(length, width):
    """Return tensor2tensor's: every sine, then every cosine, of frequencies 10000^(-i / (D/2 - 1));
    an odd last column is 0.
    """
    table, count = np.zeros((length, width)), width // 2
    for pos in range(length):
        for i in range(count):
            angle = pos * 10000.0 ** (-i / max(count - 1, 1))
            table[pos, i], table[pos, count + i] = np.sin(angle), np.cos(angle)
    return table


# The model around them.


def run(weights, parts, source, target, source_mask=None, look_ahead=True):
    """Compute every sentence pair of a batch and stack what comes out."""
    seen = source != 0 if source_mask is None else source_mask
    pairs = [
        sentence_pair(weights, parts, *pair, look_ahead)
        for pair in zip(source, target, seen, strict=True)
    ]
    return Reference(*(stacked(field) for field in zip(*pairs, strict=True)))


def stacked(sentences):
    """Stack the arrays of the sentences, or, of lists of arrays, those of each layer."""
    if isinstance(sentences[0], list):
        return [np.stack(layer) for layer in zip(*sentences, strict=True)]
    return np.stack(sentences)


def sentence_pair(weights, parts, source, target, source_seen, look_ahead):
    """Compute one sentence pair, without an axis for the batch."""
    source_mask = hide(source_seen)[None]  # (1, S)
    target_mask = hide(target != 0)[None]  # (1, T)
    if look_ahead:
        target_mask = target_mask + hide(np.tri(len(target)))  # (T, T)
    memory, encoder_weights = encode(weights, parts, source, source_mask)
    y, decoder_weights, cross_weights = decode(
        weights, parts, target, target_mask, memory, source_mask
    )
    return Reference(memory, encoder_weights, decoder_weights, cross_weights, y, parts.project(y))


def hide(seen):
    """Return the mask (1 - seen) * -1e9."""
    return (1 - np.asarray(seen, "float64")) * HIDDEN


def encode(weights, parts, source, mask):
    """Return the encoder's output (S, D) and its attention a layer, (H, S, S)."""
    x, attentions = parts.embed("source", source), []
    for w in layers(weights, "encoder"):
        x, attention = attention_sublayer(
            parts, w, "attention", "attention_residual", x, None, mask
        )
        x = feed_forward_sublayer(parts, w, x)
        attentions.append(attention)
    return parts.finish("encoder", x), attentions


def decode(weights, parts, target, target_mask, memory, source_mask):
    """Return the decoder's output (T, D) and its two attentions a layer, (H, T, T) and (H, T,
    S).
    """
    y, self_attentions, cross_attentions = parts.embed("target", target), [], []
    for w in layers(weights, "decoder"):
        y, self_attention = attention_sublayer(
            parts, w, "self_attention", "self_residual", y, None, target_mask
        )
        y, cross_attention = attention_sublayer(
            parts, w, "cross_attention", "cross_residual", y, memory, source_mask
        )
        y = feed_forward_sublayer(parts, w, y)
        self_attentions.append(self_attention)
        cross_attentions.append(cross_attention)
    return parts.finish("decoder", y), self_attentions, cross_attentions


def attention_sublayer(parts, w, name, residual, x, context, mask):
    """Attend to the context, or without one to what the sublayer itself is given, inside the
    residual connection.
    """
    attentions = []

    def sublayer(given):
        output, attention = parts.attend(
            scope(w, name), given, given if context is None else context, mask
        )
        attentions.append(attention)
        return output

    return parts.residual(x, sublayer, scope(w, f"{residual}/norm")), attentions[0]


def feed_forward_sublayer(parts, w, x):
    """Apply the feed-forward network inside the residual connection."""
    return parts.residual(
        x, partial(feed_forward, w=scope(w, "feed_forward")), scope(w, "ff_residual/norm")
    )


def layers(weights, side):
    """Return the weights of every layer of a side, first layer first."""
    numbers = {
        int(name.split("/")[1].removeprefix("layer_"))
        for name in weights
        if name.startswith(f"{side}/layer_")
    }
    return [scope(weights, f"{side}/layer_{number}") for number in sorted(numbers)]


def scope(weights, prefix):
    """Return the weights below a prefix, by the rest of their names."""
    return {
        name.removeprefix(f"{prefix}/"): array
        for name, array in weights.items()
        if name.startswith(f"{prefix}/")
    }


# Their loss.


REFERENCES = {
    "yet_another_explanation": yet_another_explanation,
    "from_zero": from_zero,
    "step_by_step": step_by_step,
    "step_by_step_pre": step_by_step_pre,
    "step_by_step_halves": partial(step_by_step, halves=True),
    "transformer_details": transformer_details,
    "from_scratch_pytorch": from_scratch_pytorch,
}
PROBABILITIES = {"from_zero", "from_scratch_pytorch"}


def loss(name, weights, source, target, labels):
    """Return the mean of -log p over the labels (B, T) that are not padding."""
    output = REFERENCES[name](weights, source, target).output
    probabilities = output if name in PROBABILITIES else softmax(output)
    chosen = np.take_along_axis(probabilities, labels[..., None], axis=-1)[..., 0]  # (B, T)
    return -np.log(chosen[labels != 0]).mean()
