"""The tensors that pass between an encoder, the steps of a decoder and the host that calls them: names and shapes, all float32.

N sources, each with a hypothesis; S source tokens; P positions so far.
"""

# What a step chooses its token by; the other search settings are of beams, or of when to stop.
STEP_SETTINGS = ("min_length", "temperature", "top_k", "top_p", "seed", "repetition_penalty", "no_repeat_ngram_size")


def memory_shapes(config) -> dict[str, tuple]:
    """Return what an encoder gives and each step reads; nothing, for a decoder that stands alone."""
    if config.architecture == "decoder":
        return {}
    return {**_layers(config, "memory", "S"), "source_mask": ("N", 1, 1, "S")}


def cache_shapes(config, prefix: str = "", positions: str = "P") -> dict[str, tuple]:
    """Return what each step reads of those before it, or with another prefix what it hands on."""
    return _layers(config, f"{prefix}cache", positions)


def _layers(config, name, length) -> dict[str, tuple]:
    widths = {"key": config.query_width, "value": config.value_width}
    layers = range(config.decoder_layers)
    return {f"{name}_{i}_{part}": ("N", config.num_heads, length, width) for i in layers for part, width in widths.items()}
