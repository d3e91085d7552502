"""Folders that CTranslate2's own specification classes write, with random weights, as the
converters for OpenNMT-py, OpenNMT-tf, fairseq and Marian fill them.
"""

import json
import zipfile

import numpy as np
from marian_folder import pieces_of, trained

from tfk_transformer.layers.positions import position_table

D, H, F, LAYERS, POSITIONS = 22, 2, 29, (2, 3), 47
ATTENTION_ROWS = {
    "self_attention/linear_0": 3 * D,
    "/attention/linear_1": 2 * D,
    "ffn/linear_0": F,
}


def models_of(**options):
    """The SentencePiece models of source and target."""
    return [trained(side, pieces, **options) for side, pieces in (("source", 71), ("target", 67))]


def tokens_of(model, specials, dropped=3):
    """The tokens of a vocabulary: the special ones and the pieces of a model, without some."""
    return [*specials, *pieces_of(model)[dropped:]]


def shape_of(name, rows):
    """The shape of an array by its name."""
    if "embeddings" in name.split("/")[1] or "projection" in name:
        return (rows[name.split("/")[0]], D)
    if name.endswith(("gamma", "beta")):
        return (D,)
    count = next((count for part, count in ATTENTION_ROWS.items() if part in name), D)
    return (count, F if "ffn/linear_1" in name else D)


def fill(spec, rows, seed, bias):
    """Fill all arrays of a specification with random numbers, such that probabilities differ."""
    random = np.random.default_rng(seed)

    def set_array(layer, name, value):
        last = name.rpartition("/")[2]
        if value is None:
            mean = float(last == "gamma")
            width = 3 * D**-0.5 if "embeddings" in name or "projection" in name else 0.3
            array = random.normal(mean, width, shape_of(name, rows)).astype("float32")
            setattr(layer, last, array)
        if last == "bias" and (bias or "ffn" in name or "projection" in name):
            layer.bias = random.normal(0, 0.3, len(layer.weight)).astype("float32")

    spec._visit(set_array)


def write_spec(
    folder,
    source,
    target,
    *,
    config,
    quantization=None,
    positions=None,
    tied="none",
    scale=True,
    zeros=False,
    bias=True,
    seed=1,
    **options,
):
    """Write a folder.

    Args:
        folder: a new folder.
        source: the source tokens.
        target: the target tokens.
        config: values of config.json.
        quantization: the type of the weights.
        positions: the table of positions; None: CTranslate2 computes it.
        tied: as `tie_embeddings`.
        scale: `scale_embeddings`.
        zeros: `start_from_zero_embedding`.
        bias: whether attention has biases.
        seed: of the weights.
        **options: of `TransformerSpec.from_config`.
    """
    from ctranslate2.specs import TransformerSpec

    spec = TransformerSpec.from_config(LAYERS, H, **options)
    fill(spec, {"encoder": len(source), "decoder": len(target)}, seed, bias)
    if tied != "none":
        spec.decoder.projection.weight = spec.decoder.embeddings.weight
    if tied == "all":
        spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings = scale
        if positions is not None:
            stack.position_encodings.encodings = positions.astype("float32")
    spec.decoder.start_from_zero_embedding = zeros
    # The end must come often enough, and the unknown token rarely.
    spec.decoder.projection.bias[target.index("</s>")] += 3.0
    spec.decoder.projection.bias[target.index("<unk>")] -= 9.0
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    for name, value in config.items():
        setattr(spec.config, name, value)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    return folder


def write_opennmt_py(folder, models=None, **changes):
    """As OpenNMT-py: sources without an end token, and computed positions."""
    models = models or models_of()
    tokens = [tokens_of(model, ["<unk>", "<blank>", "<s>", "</s>"]) for model in models]
    write_spec(folder, *tokens, **{"config": {}, "bias": False, **changes})
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    return folder


def write_opennmt(folder, model=None):
    """As Locomotive trains models for Argos Translate: one SentencePiece model, one vocabulary."""
    model = model or trained("target", 67)
    write_opennmt_py(folder, [model, model])
    (folder / "source.spm").rename(folder / "sentencepiece.model")


def write_opennmt_tf(folder, **changes):
    """As OpenNMT-tf: sources between two tokens, and learned positions."""
    models = models_of()
    tokens = [[*tokens_of(model, ["<blank>", "<s>", "</s>"]), "<unk>"] for model in models]
    config = {"add_source_bos": True, "add_source_eos": True}
    positions = np.random.default_rng(8).normal(0, 0.3, (POSITIONS, D))
    gelu = {"activation": _activation("GELU")}
    options = {"config": config, "positions": positions, "tied": "target", "seed": 6, **gelu}
    write_spec(folder, *tokens, **{**options, **changes})
    for name, model in zip(("source.model", "target.model"), models, strict=True):
        (folder / name).write_bytes(model)
    return folder


def write_fairseq(folder, tokens=None, **changes):
    """As fairseq: one vocabulary, and a start with the end token."""
    model = trained("target", 67)
    tokens = tokens or tokens_of(model, ["<s>", "<pad>", "</s>", "<unk>"])
    options = {
        "config": {"decoder_start_token": "</s>", "add_source_eos": True},
        "positions": position_table("sinusoidal_halves", POSITIONS, D, 2),
        "tied": "all",
        "scale": D**0.5,
        "pre_norm": False,
    }
    write_spec(folder, tokens, tokens, **{**options, **changes})
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    return folder


def write_marian(folder, model=None, tokens=None, **changes):
    """As Marian: a start with zeros, and a norm of embeddings."""
    model = model or trained("target", 67, eos_id=0, unk_id=1, bos_id=-1)
    tokens = tokens or ["</s>", "<unk>", *pieces_of(model)]
    options = {
        "config": {"add_source_eos": True, "layer_norm_epsilon": 1e-6},
        "positions": position_table("sinusoidal_paper_halves", POSITIONS, D),
        "tied": "all",
        "zeros": True,
        "pre_norm": False,
        "layernorm_embedding": True,
        "activation": _activation("SWISH"),
    }
    write_spec(folder, tokens, tokens, **{**options, **changes})
    (folder / "sentencepiece.model").write_bytes(model)
    return folder


def packed(path, folder, *, root="translate-xx_yy-1_0/", **metadata):
    """Write a package as Argos Translate does."""
    values = {"from_code": "de", "to_code": "en", "package_version": "1.3", **metadata}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("model.bin", "config.json", "shared_vocabulary.json"):
            archive.write(folder / name, f"{root}model/{name}")
        archive.write(folder / "sentencepiece.model", f"{root}sentencepiece.model")
        archive.writestr(f"{root}metadata.json", json.dumps(values))
        archive.writestr(f"{root}README.md", "---\nlicense: cc0-1.0\n---\n")
        archive.writestr(f"{root}stanza/resources.json", "{}")
    return path


def change_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _activation(name):
    from ctranslate2.specs.common_spec import Activation

    return Activation[name]
