"""Folders of the T5 family with random weights, in Hugging Face's layout, and tokenizers trained on
made-up words.
"""

import json
from pathlib import Path

import numpy as np
import safetensors.numpy
from marian_folder import sentences, trained

# transformers 5 cannot generate where the decoder has more layers than the encoder.
D, H, K, F, LAYERS, DECODER_LAYERS = 22, 5, 4, 29, 3, 2
SENTINELS = 5
PADDED_ROWS = 3  # rows of the tables that no token has
T5, MT5, UMT5, BYT5 = "t5", "mt5", "umt5", "byt5"
# As transformers trains them: the padding, end and unknown tokens come first, and there is no
# token for the start.
TRAINED = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
CASES = {
    "t5": {"feed_forward_proj": "relu"},
    "flan": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "gelu": {"feed_forward_proj": "gelu", "tie_word_embeddings": False},
    "mt5": {"model_type": MT5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "umt5": {"model_type": UMT5, "feed_forward_proj": "gated-gelu"},
    "byt5": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "bytes": True},
}


def sentencepiece_model(pieces=120, **options):
    texts = [*sentences("source", 400), *sentences("target", 400)]
    return trained("source", pieces, texts, **{**TRAINED, **options})


def config_of(rows, **changes):
    return {
        "model_type": T5,
        "vocab_size": rows,
        "d_model": D,
        "d_kv": K,
        "d_ff": F,
        "num_layers": LAYERS,
        "num_decoder_layers": DECODER_LAYERS,
        "num_heads": H,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 12,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        **changes,
    }


def arrays_of(config, spread=0.2, seed=1):
    """Return random arrays by the names of Hugging Face's class. Probabilities differ clearly."""
    random = np.random.default_rng(seed)
    rows = config["vocab_size"]
    arrays = {"shared.weight": random.normal(0, 1, (rows, D))}
    if not config.get("tie_word_embeddings", True):
        arrays["lm_head.weight"] = random.normal(0, 3 * D**-0.5, (rows, D))
    # The end token is the best one in some steps, so that hypotheses end.
    arrays["lm_head.weight" if "lm_head.weight" in arrays else "shared.weight"][1] *= 2.5
    gated = config["feed_forward_proj"].startswith("gated")
    inner = ["wi_0", "wi_1"] if gated else ["wi"]
    for stack, attentions in (
        ("encoder", ["SelfAttention"]),
        ("decoder", ["SelfAttention", "EncDecAttention"]),
    ):
        for layer in range(LAYERS if stack == "encoder" else DECODER_LAYERS):
            path = f"{stack}.block.{layer}.layer"
            for index, attention in enumerate(attentions):
                name = f"{path}.{index}.{attention}"
                shapes = {part: (H * K, D) for part in "qkv"} | {"o": (D, H * K)}
                for part, shape in shapes.items():
                    arrays[f"{name}.{part}.weight"] = random.normal(0, spread, shape)
                arrays[f"{path}.{index}.layer_norm.weight"] = random.normal(1, spread, D)
            if layer == 0 or config["model_type"] == UMT5:
                name = f"{path}.0.SelfAttention.relative_attention_bias.weight"
                arrays[name] = random.normal(0, 1, (config["relative_attention_num_buckets"], H))
            last = len(attentions)
            for part in inner:
                name = f"{path}.{last}.DenseReluDense.{part}.weight"
                arrays[name] = random.normal(0, spread, (F, D))
            arrays[f"{path}.{last}.DenseReluDense.wo.weight"] = random.normal(0, spread, (D, F))
            arrays[f"{path}.{last}.layer_norm.weight"] = random.normal(1, spread, D)
        arrays[f"{stack}.final_layer_norm.weight"] = random.normal(1, spread, D)
    return {name: array.astype("float32") for name, array in arrays.items()}


def write_folder(folder, model=None, bytes=False, spread=0.2, seed=1, generation=None, **changes):
    """Write a folder, and return it."""
    folder = Path(folder)
    folder.mkdir()
    tokenizer = {"tokenizer_class": "ByT5Tokenizer"}
    rows = 384
    if not bytes:
        model = model or sentencepiece_model()
        (folder / "spiece.model").write_bytes(model)
        tokenizer = {"tokenizer_class": "T5Tokenizer", "extra_ids": SENTINELS}
        rows = num_pieces(model) + SENTINELS + PADDED_ROWS
    config = config_of(rows, **changes)
    files = {"config.json": config, "tokenizer_config.json": tokenizer}
    if generation is not None:
        files["generation_config.json"] = generation
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    arrays = arrays_of(config, spread, seed)
    (folder / "model.safetensors").write_bytes(safetensors.numpy.save(arrays))
    return folder


def num_pieces(model):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_proto=model).vocab_size()
