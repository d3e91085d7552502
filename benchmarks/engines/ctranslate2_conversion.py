"""Write a CTranslate2 model of our weights, through CTranslate2's public specification classes.

python -m engines.ctranslate2_conversion WEIGHTS OUT [QUANTIZATION]
"""

import sys
from pathlib import Path

import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation

from engines.weights import read_weights

ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "silu": Activation.SWISH}


def convert(folder: Path, out: Path, quantization: str = "float32") -> None:
    """Write a CTranslate2 model.

    Args:
        folder: what `engines.weights.write_weights` wrote.
        out: of the model; a new folder.
        quantization: of the weights in the file: "float32", "int8" and so on.
    """
    config, weights = read_weights(folder)
    spec = TransformerSpec.from_config(
        (config["encoder_layers"], config["decoder_layers"]),
        config["num_heads"],
        pre_norm=config["norm"] == "pre",
        activation=ACTIVATIONS[config["ff_activation"]],
    )
    _describe(spec, config)
    _fill_ends(spec, config, weights)
    _fill_layers(spec, config, weights)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    out.mkdir(parents=True)
    spec.save(str(out))


def _describe(spec, config):
    """Set what is no weight; a token of the vocabulary is its id, written out."""
    spec.register_source_vocabulary([str(i) for i in range(config["source_vocab_size"])])
    spec.register_target_vocabulary([str(i) for i in range(config["target_vocab_size"])])
    spec.config.bos_token = spec.config.decoder_start_token = "1"
    spec.config.eos_token, spec.config.unk_token = "2", "3"
    spec.config.layer_norm_epsilon = config["norm_epsilon"]
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = config["scale_embeddings"]


def _fill_ends(spec, config, weights):
    """Fill what stands before and after the layers."""
    shared = config["tie_embeddings"] == "all"
    source = weights["source_embedding/embeddings"]
    target = source if shared else weights["target_embedding/embeddings"]
    spec.encoder.embeddings[0].weight, spec.decoder.embeddings.weight = source, target
    spec.encoder.position_encodings.encodings = weights["source_positions/table"]
    spec.decoder.position_encodings.encodings = weights["target_positions/table"]
    spec.decoder.projection.weight = target if config["tie_embeddings"] != "none" else _transposed(weights["output/kernel"])
    if config["output_bias"]:
        spec.decoder.projection.bias = weights["output/bias"]
    if config["norm"] == "pre":
        _fill_norm(spec.encoder.layer_norm, weights, "encoder/final_norm")
        _fill_norm(spec.decoder.layer_norm, weights, "decoder/final_norm")


def _fill_layers(spec, config, weights):
    for i, layer in enumerate(spec.encoder.layer):
        name = f"encoder/layer_{i}"
        _fill_attention(layer.self_attention, config, weights, f"{name}/attention", [["query", "key", "value"]])
        _fill_norm(layer.self_attention.layer_norm, weights, f"{name}/attention_residual/norm")
        _fill_feed_forward(layer.ffn, weights, name)
    for i, layer in enumerate(spec.decoder.layer):
        name = f"decoder/layer_{i}"
        _fill_attention(layer.self_attention, config, weights, f"{name}/self_attention", [["query", "key", "value"]])
        _fill_norm(layer.self_attention.layer_norm, weights, f"{name}/self_residual/norm")
        _fill_attention(layer.attention, config, weights, f"{name}/cross_attention", [["query"], ["key", "value"]])
        _fill_norm(layer.attention.layer_norm, weights, f"{name}/cross_residual/norm")
        _fill_feed_forward(layer.ffn, weights, name)


def _fill_attention(spec, config, weights, name, products):
    """Fill an attention layer whose roles are projected together as `products` says."""
    *inputs, output = spec.linear
    for linear, roles in zip(inputs, products, strict=True):
        linear.weight = np.concatenate([_as_rows(weights[f"{name}/{role}"]) for role in roles])
        if any(role in config["attention_bias"] for role in roles):
            linear.bias = np.concatenate([_bias(weights, f"{name}/{role}") for role in roles])
    output.weight = _transposed(weights[f"{name}/output"])
    if "output" in config["attention_bias"]:
        output.bias = weights[f"{name}/output_bias"]
    if config["attention_scale"] == "key_dim":
        spec.queries_scale = np.float32(1 / weights[f"{name}/query"].shape[2])


def _bias(weights, name):
    """Return a role's bias, heads side by side; zeros where another role of the same product has one and this has none."""
    heads, _, width = weights[name].shape
    return weights.get(f"{name}_bias", np.zeros((heads, 1, width), "float32")).reshape(-1)


def _fill_feed_forward(spec, weights, layer):
    for linear, name in ((spec.linear_0, "inner"), (spec.linear_1, "outer")):
        linear.weight = _transposed(weights[f"{layer}/feed_forward/{name}/kernel"])
        linear.bias = weights[f"{layer}/feed_forward/{name}/bias"]
    _fill_norm(spec.layer_norm, weights, f"{layer}/ff_residual/norm")


def _fill_norm(spec, weights, name):
    spec.gamma, spec.beta = weights[f"{name}/gamma"], weights[f"{name}/beta"]


def _as_rows(weight):
    """(H, D, width) -> (H*width, D), heads one below the other."""
    return weight.transpose(0, 2, 1).reshape(-1, weight.shape[1])


def _transposed(weight):
    return np.ascontiguousarray(weight.T)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
