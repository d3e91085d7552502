"""The names of the weights in the modules that people copied, and what the weights do not state.

They become the names of CTranslate2, whose reader converts the weights.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.arrays import Arrays
from tfk_transformer.importing.ctranslate2_folder.weights import (
    ATTENTION_PRODUCTS,
    OUTPUT_BIAS,
    STORED_POSITIONS,
)
from tfk_transformer.importing.weights import NORM

SOURCE, TARGET, OUTPUT = (
    f"{name}/weight" for name in ("encoder/embeddings", "decoder/embeddings", "decoder/projection")
)


class Layout(NamedTuple):
    """The names of a module's weights. A name in a layer is followed by "weight" or "bias"."""

    # Before the names: of the self-attention, and of the attention to the source.
    attentions: tuple[str, str]
    products: Mapping[str, tuple[str, ...]]  # of an attention: the roles in the rows of each
    feed_forward: tuple[str, str]  # the inner and the outer product
    norms: Mapping[str, tuple[str, ...]]  # of the sublayers of a layer, by stack
    # Options of a `TransformerConfig`.
    options: Mapping[str, Any] = {"norm": "post", "norm_epsilon": 1e-5}
    # Of the tutorial; by default, of torchtext's.
    special_ids: Mapping[str, int] = {"unknown": 0, "pad": 1, "start": 2, "end": 3}
    norm_weights: tuple[str, str] = ("weight", "bias")
    unbiased_norm: bool = False  # whether norms divide by the standard deviation of a sample


ROLES = ("query", "key", "value", "output")
EMBEDDING = r"(?=.*emb)(?!.*pos).*\.weight$"
# Patterns of the arrays outside of stacks, by CTranslate2's name. The first one that matches one
# array counts.
TABLES = {
    SOURCE: (rf"^(?=.*(src|source|enc|inp)){EMBEDDING}", rf"^{EMBEDDING}"),
    TARGET: (rf"^(?=.*(tgt|trg|target|dec)){EMBEDDING}", rf"^{EMBEDDING}"),
    OUTPUT: (r"(generator|out|fc|proj|linear|head|classifier)[^.]*\.weight$",),
    STORED_POSITIONS[0]: (r"(src|source|enc).*(pos|\bpe$)", r"(pos|\bpe$)"),
    STORED_POSITIONS[1]: (r"(tgt|trg|target|dec).*(pos|\bpe$)", r"(pos|\bpe$)"),
}
LAYOUTS = {
    # torch.nn.Transformer between embeddings and a projection, whose names differ: in PyTorch's
    # tutorial, they are src_tok_emb.embedding, tgt_tok_emb.embedding and generator.
    "torch": Layout(
        attentions=("self_attn.", "multihead_attn."),
        products={"in_proj_": ROLES[:3], "out_proj.": ROLES[3:]},
        feed_forward=("linear1.", "linear2."),
        norms={"encoder": ("norm1.", "norm2."), "decoder": ("norm1.", "norm2.", "norm3.")},
    ),
    # "The Annotated Transformer" of Harvard NLP.
    "annotated": Layout(
        attentions=("self_attn.", "src_attn."),
        products={f"linears.{number}.": (role,) for number, role in enumerate(ROLES)},
        feed_forward=("feed_forward.w_1.", "feed_forward.w_2."),
        norms={
            stack: tuple(f"sublayer.{number}.norm." for number in range(count))
            for stack, count in (("encoder", 2), ("decoder", 3))
        },
        special_ids={"start": 0, "end": 1, "pad": 2, "unknown": 3},
        # Its epsilon is added to the standard deviation, and not to the variance.
        options={"norm": "pre", "norm_epsilon": 1e-12},
        norm_weights=("a_2", "b_2"),
        unbiased_norm=True,
    ),
    # The last notebook of github.com/bentrevett/pytorch-seq2seq.
    "seq2seq": Layout(
        attentions=("self_attention.", "encoder_attention."),
        products={"fc_q.": ROLES[:1], "fc_k.": ROLES[1:2], "fc_v.": ROLES[2:3], "fc_o.": ROLES[3:]},
        feed_forward=("positionwise_feedforward.fc_1.", "positionwise_feedforward.fc_2."),
        norms={
            "encoder": ("self_attn_layer_norm.", "ff_layer_norm."),
            "decoder": ("self_attn_layer_norm.", "enc_attn_layer_norm.", "ff_layer_norm."),
        },
    ),
}
SUBLAYERS = {
    "encoder": ("self_attention", "ffn"),
    "decoder": ("self_attention", "attention", "ffn"),
}
FEED_FORWARD = ("ffn/linear_0", "ffn/linear_1")
IN_STACK = re.compile(r"(?:.*\.)?(encoder|decoder)\.(?:layers\.(\d+)\.(?!norm\.)|(?=norm\.))(.*)")
# Letters: D model_dim, H num_heads, K and V the widths of heads, F ff_dim, N the number of a layer.
OUR_TABLE = (
    "source_embedding/embeddings, target_embedding/embeddings (vocabulary, D); "
    "in encoder/layer_N/attention/, decoder/layer_N/self_attention/ and cross_attention/: query, "
    "key, value (H, D, K), query_bias, key_bias, value_bias (H, 1, K), output (H*V, D), "
    "output_bias (D,); in encoder/layer_N/ and decoder/layer_N/: feed_forward/inner/kernel (D, F) "
    "and bias (F,), feed_forward/outer/kernel (F, D) and bias (D,), attention_residual/norm/ "
    "(decoder: self_residual/norm/ and cross_residual/norm/) and ff_residual/norm/ gamma, beta "
    "(D,); encoder/final_norm/ and decoder/final_norm/ gamma, beta (D,); output/kernel (D, "
    "vocabulary), output/bias (vocabulary,)"
)


def find_layout(file: Arrays, name: str) -> Layout:
    """Return the layout of this name, whose names a file must have."""
    hint = f"for others, fill Transformer.from_weights (docs/pytorch.md): {OUR_TABLE}"
    for other, layout in LAYOUTS.items():
        first = f"encoder.layers.0.{layout.attentions[0]}{next(iter(layout.products))}weight"
        if sum(theirs.endswith(first) for theirs in file.shapes) == 1:
            if name == other:
                return layout
            hint = f"the names fit '{other}'"
    listed = ", ".join(map(shorten, list(file.shapes)[:3]))
    raise ValueError(
        f"layout: expected one of {', '.join(LAYOUTS)} whose names are in {file.path}, got "
        f"'{shorten(str(name))}' and names such as {listed}; {hint}."
    )


def named_arrays(file: Arrays, name: str, layout: Layout) -> dict[str, np.ndarray]:
    """Return the arrays of a file by CTranslate2's names."""
    ours = {theirs: _layer_name(theirs, layout) for theirs in file.shapes}
    outside = [theirs for theirs, new in ours.items() if new is None]
    arrays = {new: file.read(theirs) for theirs, new in ours.items() if new is not None}
    used = set()
    for table, patterns in TABLES.items():
        matches = ([each for each in outside if re.search(pattern, each)] for pattern in patterns)
        for theirs in next((names for names in matches if len(names) == 1), ()):
            used.add(theirs)
            array = file.read(theirs)
            # PyTorch's tutorial stores a table of positions as (rows, 1, D).
            arrays[table] = array.reshape(-1, array.shape[-1])
            bias = theirs.removesuffix("weight") + "bias"
            if table == OUTPUT and bias in outside:
                used.add(bias)
                arrays[OUTPUT_BIAS] = file.read(bias)
    missing = [table for table in (SOURCE, TARGET, OUTPUT) if table not in arrays]
    others = [each for each in outside if each not in used and not each.endswith("mask")]
    if missing or others:
        got = f"no {', '.join(missing)}" if missing else "also"
        listed = ", ".join(f"'{shorten(each)}' {file.shapes[each]}" for each in others[:5])
        raise ValueError(
            f"layout: expected the embeddings, positions and output of '{name}' outside of the "
            f"layers in {file.path}, got {got} {listed}; rename them in the state_dict, or remove "
            "what the module does not compute with."
        )
    _join_products(arrays, layout)
    width = arrays[SOURCE].shape[1]
    factor = np.float32(np.sqrt((width - 1) / width) if layout.unbiased_norm else 1)
    for norm in [each.removesuffix("gamma") for each in arrays if each.endswith("/gamma")]:
        arrays[f"{norm}gamma"] = arrays[f"{norm}gamma"] * factor
        # Without a beta, CTranslate2's norm would be one by the root mean square.
        arrays.setdefault(f"{norm}beta", np.zeros(width, "float32"))
    return arrays


def _layer_name(name: str, layout: Layout) -> str | None:
    """Return CTranslate2's name of an array of a stack; None: it is outside of the stacks.

    Arrays of an attention still have the layout's names after the attention's.
    """
    if not (match := IN_STACK.fullmatch(name)):
        return None
    stack, number, rest = match.groups()
    path = f"{stack}/layer_{number}/" if number else f"{stack}/"
    sublayers = SUBLAYERS[stack]
    norms = ("norm.", *layout.norms[stack])
    for theirs, prefix in zip(norms, ("", *(f"{each}/" for each in sublayers)), strict=True):
        if rest.startswith(theirs):
            weight = rest.removeprefix(theirs)
            weights = dict(zip(layout.norm_weights, NORM, strict=True))
            return f"{path}{prefix}layer_norm/{weights.get(weight, weight)}"
    names = dict(zip(layout.feed_forward, FEED_FORWARD, strict=True))
    names |= zip(layout.attentions, sublayers[:-1], strict=False)
    for theirs, ours in names.items():
        if rest.startswith(theirs):
            return f"{path}{ours}/{rest.removeprefix(theirs)}"
    return path + rest


def _join_products(arrays: dict[str, np.ndarray], layout: Layout) -> None:
    """Give the products of attentions the names and the rows that they have in CTranslate2."""
    first = next(iter(layout.products))
    ends = tuple(f"attention/{first}{part}" for part in ("weight", "bias"))
    for name in [each for each in arrays if each.endswith(ends)]:
        path, _, last = name.rpartition(first)
        roles: dict[str, np.ndarray] = {}
        for product, names in layout.products.items():
            if (array := arrays.pop(f"{path}{product}{last}", None)) is not None:
                roles |= zip(names, np.split(array, len(names)), strict=True)
        numbers = ATTENTION_PRODUCTS[path.split("/")[-2]]
        for number in set(numbers.values()):
            parts = [roles[role] for role in roles if numbers[role] == number]
            if parts:
                arrays[f"{path}linear_{number}/{last}"] = np.concatenate(parts)
