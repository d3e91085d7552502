"""The names of the weights in the modules that people copied, and what the weights do not state."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Layout(NamedTuple):
    """The names of a module's weights. A name in a layer is followed by "weight" or "bias"."""

    # Before the names: of the self-attention, and of the attention to the source.
    attentions: tuple[str, str]
    # The products of an attention by role. Roles with one name share an array, rows below rows.
    products: Mapping[str, str]
    feed_forward: tuple[str, str]  # the inner and the outer product
    norms: Mapping[str, tuple[str, ...]]  # of the sublayers of a layer, by stack
    final_norm: str  # of a stack
    # Patterns of the arrays outside of stacks, by role. The first pattern that matches one counts.
    tables: Mapping[str, tuple[str, ...]]
    special_ids: Mapping[str, int]  # of the tutorial
    options: Mapping[str, Any]  # of a `TransformerConfig`
    norm_weights: tuple[str, str] = ("weight", "bias")
    unbiased_norm: bool = False  # whether norms divide by the standard deviation of a sample


TORCHTEXT_IDS = {"unknown": 0, "pad": 1, "start": 2, "end": 3}
POSITIONS = r"(pos|\bpe$)"
LAYOUTS = {
    # torch.nn.Transformer between embeddings and a projection, whose names differ: in PyTorch's
    # tutorial, they are src_tok_emb.embedding, tgt_tok_emb.embedding and generator.
    "torch": Layout(
        attentions=("self_attn.", "multihead_attn."),
        products={
            **dict.fromkeys(("query", "key", "value"), "in_proj_"),
            "output": "out_proj.",
        },
        feed_forward=("linear1.", "linear2."),
        norms={"encoder": ("norm1.", "norm2."), "decoder": ("norm1.", "norm2.", "norm3.")},
        final_norm="norm.",
        tables={
            "source": (r"(src|source|enc|inp)(?!.*pos).*\.weight$", r"emb(?!.*pos).*\.weight$"),
            "target": (
                r"(tgt|trg|target|dec)(?!.*(pos|out)).*emb.*\.weight$",
                r"emb(?!.*pos).*\.weight$",
            ),
            "output": (r"(generator|out|fc|proj|linear|head|classifier)[^.]*\.weight$",),
            "source_positions": (f"(src|source|enc).*{POSITIONS}", POSITIONS),
            "target_positions": (f"(tgt|trg|target|dec).*{POSITIONS}", POSITIONS),
        },
        special_ids=TORCHTEXT_IDS,
        options={"norm": "post", "norm_epsilon": 1e-5, "positions": "sinusoidal"},
    ),
    # "The Annotated Transformer" of Harvard NLP.
    "annotated": Layout(
        attentions=("self_attn.", "src_attn."),
        products={
            role: f"linears.{i}." for i, role in enumerate(("query", "key", "value", "output"))
        },
        feed_forward=("feed_forward.w_1.", "feed_forward.w_2."),
        norms={
            "encoder": ("sublayer.0.norm.", "sublayer.1.norm."),
            "decoder": ("sublayer.0.norm.", "sublayer.1.norm.", "sublayer.2.norm."),
        },
        final_norm="norm.",
        tables={
            "source": (r"src_embed\.\d+\.lut\.weight$",),
            "target": (r"tgt_embed\.\d+\.lut\.weight$",),
            "output": (r"generator\.proj\.weight$",),
            "source_positions": (r"src_embed\.\d+\.pe$",),
            "target_positions": (r"tgt_embed\.\d+\.pe$",),
        },
        special_ids={"start": 0, "end": 1, "pad": 2, "unknown": 3},
        # Its epsilon is added to the standard deviation, and not to the variance.
        options={"norm": "pre", "norm_epsilon": 1e-12, "positions": "sinusoidal"},
        norm_weights=("a_2", "b_2"),
        unbiased_norm=True,
    ),
    # The last notebook of github.com/bentrevett/pytorch-seq2seq.
    "seq2seq": Layout(
        attentions=("self_attention.", "encoder_attention."),
        products={"query": "fc_q.", "key": "fc_k.", "value": "fc_v.", "output": "fc_o."},
        feed_forward=("positionwise_feedforward.fc_1.", "positionwise_feedforward.fc_2."),
        norms={
            "encoder": ("self_attn_layer_norm.", "ff_layer_norm."),
            "decoder": ("self_attn_layer_norm.", "enc_attn_layer_norm.", "ff_layer_norm."),
        },
        final_norm="layer_norm.",  # which it lacks
        tables={
            "source": (r"encoder\.tok_embedding\.weight$",),
            "target": (r"decoder\.tok_embedding\.weight$",),
            "output": (r"decoder\.fc_out\.weight$",),
            "source_positions": (r"encoder\.pos_embedding\.weight$",),
            "target_positions": (r"decoder\.pos_embedding\.weight$",),
        },
        special_ids=TORCHTEXT_IDS,
        options={"norm": "post", "norm_epsilon": 1e-5, "positions": "learned"},
    ),
}
