"""A configuration of encoders and decoders, and the shapes of their weights by path."""

from tfk_transformer.config.model_options import TransformerConfig

D = 22
CONFIG = TransformerConfig(
    source_vocab_size=29,
    target_vocab_size=31,
    model_dim=D,
    ff_dim=37,
    num_heads=11,
    key_dim=13,
    value_dim=17,
    encoder_layers=2,
    decoder_layers=3,
    dropout=0.0,
)
CROSS = ("self_attention", "cross_attention")


def layer_weights(*attentions):
    """The shape of each weight of a layer, by its path."""
    shapes = {
        "query": (11, D, 13),
        "query_bias": (11, 1, 13),
        "key": (11, D, 13),
        "value": (11, D, 17),
        "output": (11 * 17, D),
    }
    actual = {
        f"{attention}/{role}": shape for attention in attentions for role, shape in shapes.items()
    }
    residuals = [
        attention.replace("attention", "residual")
        if attentions != ("attention",)
        else "attention_residual"
        for attention in attentions
    ]
    actual |= {
        f"{residual}/norm/{name}": (D,)
        for residual in (*residuals, "ff_residual")
        for name in ("gamma", "beta")
    }
    feed_forward = {
        "inner/kernel": (D, 37),
        "inner/bias": (37,),
        "outer/kernel": (37, D),
        "outer/bias": (D,),
    }
    return actual | {f"feed_forward/{name}": shape for name, shape in feed_forward.items()}


def stack_weights(layers, *attentions):
    each = {
        f"layer_{i}/{name}": shape
        for i in range(layers)
        for name, shape in layer_weights(*attentions).items()
    }
    return each | {"final_norm/gamma": (D,), "final_norm/beta": (D,)}
