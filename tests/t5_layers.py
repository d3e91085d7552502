"""The options of T5's layers, with buckets for short texts."""

T5_LAYERS = {
    "positions": "relative",
    "position_buckets": 6,
    "position_max_distance": 4,
    "norm_type": "rms",
    "ff_gated": True,
    "ff_bias": False,
    "ff_activation": "gelu_tanh",
}
