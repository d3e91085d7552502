"""The names of the weights in the modules that people copied, and what the weights do not state."""

from collections.abc import Mapping
from typing import Any, NamedTuple

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
    # Patterns of the arrays outside of stacks, by CTranslate2's name. The first one that matches
    # one array counts.
    tables: Mapping[str, tuple[str, ...]]
    special_ids: Mapping[str, int]  # of the tutorial
    options: Mapping[str, Any]  # of a `TransformerConfig`
    norm_weights: tuple[str, str] = ("weight", "bias")
    unbiased_norm: bool = False  # whether norms divide by the standard deviation of a sample


ROLES = ("query", "key", "value", "output")
SOURCE_POSITIONS, TARGET_POSITIONS = (
    f"{stack}/position_encodings/encodings" for stack in ("encoder", "decoder")
)
EMBEDDING = r"(?=.*emb)(?!.*pos).*\.weight$"
TORCHTEXT_IDS = {"unknown": 0, "pad": 1, "start": 2, "end": 3}
LAYOUTS = {
    # torch.nn.Transformer between embeddings and a projection, whose names differ: in PyTorch's
    # tutorial, they are src_tok_emb.embedding, tgt_tok_emb.embedding and generator.
    "torch": Layout(
        attentions=("self_attn.", "multihead_attn."),
        products={"in_proj_": ROLES[:3], "out_proj.": ROLES[3:]},
        feed_forward=("linear1.", "linear2."),
        norms={"encoder": ("norm1.", "norm2."), "decoder": ("norm1.", "norm2.", "norm3.")},
        tables={
            SOURCE: (rf"^(?=.*(src|source|enc|inp)){EMBEDDING}", rf"^{EMBEDDING}"),
            TARGET: (rf"^(?=.*(tgt|trg|target|dec)){EMBEDDING}", rf"^{EMBEDDING}"),
            OUTPUT: (r"(generator|out|fc|proj|linear|head|classifier)[^.]*\.weight$",),
            SOURCE_POSITIONS: (r"(src|source|enc).*(pos|\bpe$)", r"(pos|\bpe$)"),
            TARGET_POSITIONS: (r"(tgt|trg|target|dec).*(pos|\bpe$)", r"(pos|\bpe$)"),
        },
        special_ids=TORCHTEXT_IDS,
        options={"norm": "post", "norm_epsilon": 1e-5},
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
        tables={
            SOURCE: (r"src_embed\.\d+\.lut\.weight$",),
            TARGET: (r"tgt_embed\.\d+\.lut\.weight$",),
            OUTPUT: (r"generator\.proj\.weight$",),
            SOURCE_POSITIONS: (r"src_embed\.\d+\.pe$",),
            TARGET_POSITIONS: (r"tgt_embed\.\d+\.pe$",),
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
        tables={
            SOURCE: (r"encoder\.tok_embedding\.weight$",),
            TARGET: (r"decoder\.tok_embedding\.weight$",),
            OUTPUT: (r"decoder\.fc_out\.weight$",),
            SOURCE_POSITIONS: (r"encoder\.pos_embedding\.weight$",),
            TARGET_POSITIONS: (r"decoder\.pos_embedding\.weight$",),
        },
        special_ids=TORCHTEXT_IDS,
        options={"norm": "post", "norm_epsilon": 1e-5},
    ),
}
