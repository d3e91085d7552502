"""Folders of M2M100, NLLB, SMaLL-100, mBART and Pegasus with random weights, in Hugging Face's
layout, and small vocabularies of made-up words.
"""

import io
import json
from pathlib import Path

import numpy as np
import safetensors.numpy
import sentencepiece
from marian_folder import sentences

D, H, F, LAYERS, DECODER_LAYERS, POSITIONS = 22, 11, 29, 2, 3, 47
MODEL = "sentencepiece.bpe.model"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
NLLB_LANGUAGES = ["deu_Latn", "eng_Latn", "zho_Hans"]


def trained(model_type, pieces=97, texts=None, **options):
    """Train a SentencePiece model on texts, by default the words of both sides, with fairseq's
    special pieces.
    """
    model = io.BytesIO()
    texts = texts or [text for side in ("source", "target") for text in sentences(side, 300)]
    options = {
        "character_coverage": 1.0,
        "model_type": model_type,
        "vocab_size": pieces,
        "minloglevel": 2,
        **options,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, **options
    )
    return model.getvalue()


def pieces_of(model):
    """The pieces after the three special ones."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(3, processor.vocab_size())]


def arrays_of(config, seed=1, spread=0.3):
    """Return random arrays by the names of Hugging Face's classes. Probabilities differ clearly,
    and the end token is probable.
    """
    random = np.random.default_rng(seed)
    mbart = config["model_type"] == "mbart"
    dense = {}
    for stack, attentions in (
        ("encoder", ["self_attn"]),
        ("decoder", ["self_attn", "encoder_attn"]),
    ):
        for i in range(config[f"{stack}_layers"]):
            path = f"model.{stack}.layers.{i}"
            for attention in attentions:
                dense |= {f"{path}.{attention}.{part}_proj": (D, D) for part in "qkv"} | {
                    f"{path}.{attention}.out_proj": (D, D)
                }
                dense[f"{path}.{attention}_layer_norm"] = (D,)
            width = config[f"{stack}_ffn_dim"]
            dense |= {
                f"{path}.fc1": (width, D),
                f"{path}.fc2": (D, width),
                f"{path}.final_layer_norm": (D,),
            }
        dense[f"model.{stack}.layer_norm"] = (D,)
        if mbart:
            dense[f"model.{stack}.layernorm_embedding"] = (D,)
    arrays = {}
    for name, shape in dense.items():
        arrays[f"{name}.weight"] = random.normal(float(len(shape) == 1), spread, shape)
        arrays[f"{name}.bias"] = random.normal(0, spread, shape[:1])
    table = random.normal(0, 3 * D**-0.5, (config["vocab_size"], D))
    # The decoder's last bias makes hypotheses end: most have a few tokens.
    end = table[config["eos_token_id"]]
    arrays["model.decoder.layer_norm.bias"] += end * 2 / np.linalg.norm(end)
    arrays["model.shared.weight"] = table
    if mbart:
        for stack in ("encoder", "decoder"):
            arrays[f"model.{stack}.embed_positions.weight"] = random.normal(
                0, 1, (config["max_position_embeddings"] + 2, D)
            )
    if config["model_type"] in ("mbart", "pegasus"):
        arrays["final_logits_bias"] = random.normal(0, 0.3, (1, config["vocab_size"]))
    return {name: array.astype("float32") for name, array in arrays.items()}


def config_of(rows, model_type="m2m_100", **changes):
    sizes = {
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in (("attention_heads", H), ("ffn_dim", F))
    }
    return {
        "model_type": model_type,
        "vocab_size": rows,
        "d_model": D,
        **sizes,
        "encoder_layers": LAYERS,
        "decoder_layers": DECODER_LAYERS,
        "max_position_embeddings": POSITIONS,
        "activation_function": "gelu" if model_type == "mbart" else "relu",
        "scale_embedding": True,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "num_beams": 5,
        "max_length": 40,
        **changes,
    }


def write_m2m100(folder, dropped=(), options=None, **changes):
    """Write a folder of M2M100, and return it. Its vocab.json has an order of its own, and 8 rows
    follow the languages.
    """
    model = trained("bpe", **(options or {}))
    pieces = sorted(set(pieces_of(model)) - set(dropped), key=lambda piece: piece[::-1])
    vocabulary = {piece: row for row, piece in enumerate([*SPECIAL, *pieces])}
    files = {
        "vocab.json": vocabulary,
        "tokenizer_config.json": {"tokenizer_class": "M2M100Tokenizer", "language_codes": "wmt21"},
    }
    return _write(folder, model, files, config_of(len(vocabulary) + 8 + 8, **changes))


def write_small100(folder, **changes):
    """Write a folder of SMaLL-100, and return it: one of M2M100 with another tokenizer."""
    folder = write_m2m100(folder, **changes)
    tokenizer = {"tokenizer_class": "SMALL100Tokenizer", "language_codes": "wmt21"}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    return folder


def write_nllb(folder, model_type="bpe", options=None, **changes):
    """Write a folder of NLLB, and return it. Its tokenizer.json has only what an import reads: the
    languages; 2 rows follow the mask.
    """
    model = trained(model_type, **(options or {}))
    tokens = [*SPECIAL, *pieces_of(model), *NLLB_LANGUAGES, "<mask>"]
    added = [
        {"id": tokens.index(token), "content": token, "special": True}
        for token in [*SPECIAL, *NLLB_LANGUAGES, "<mask>"]
    ]
    return _write(
        folder,
        model,
        {"tokenizer.json": {"added_tokens": added}},
        config_of(len(tokens) + 2, **changes),
    )


def write_legacy_nllb(folder, **changes):
    """Write a folder of NLLB whose tokenizer puts the source language after the text."""
    folder = write_nllb(folder, **changes)
    (folder / "tokenizer_config.json").write_text(json.dumps({"legacy_behaviour": True}))
    return folder


def write_mbart(folder, options=None, **changes):
    """Write a folder of mBART-50, and return it. Without tokenizer.json, its languages are the
    family's 52, which a mask follows.
    """
    model = trained("unigram", **(options or {}))
    files = {"tokenizer_config.json": {"tokenizer_class": "MBart50Tokenizer"}}
    return _write(
        folder, model, files, config_of(1 + 3 + len(pieces_of(model)) + 52 + 1, "mbart", **changes)
    )


def write_mbart25(folder, options=None, **changes):
    """Write a folder of mBART-25, and return it. Its own target language is ro_RO."""
    model = trained("unigram", **(options or {}))
    first = 1 + 3 + len(pieces_of(model))  # the row of ar_AR
    config = config_of(first + 25 + 1, "mbart", decoder_start_token_id=first + 19, **changes)
    files = {"tokenizer_config.json": {"tokenizer_class": "MBartTokenizer"}}
    return _write(folder, model, files, config)


def write_pegasus(folder, options=None, **changes):
    """Write a folder of Pegasus, and return it. Its model has a piece for line breaks, and 5 rows
    follow the pieces.
    """
    special = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    options = {**special, "user_defined_symbols": ["<n>"], **(options or {})}
    model = trained("unigram", **options)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokens = {
        "bos_token_id": None,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    }
    config = config_of(103 + processor.vocab_size() + 5, "pegasus", **{**tokens, **changes})
    files = {"tokenizer_config.json": {"tokenizer_class": "PegasusTokenizer"}}
    return _write(folder, model, files, config, "spiece.model")


def _write(folder, model, files, config, model_name=MODEL):
    folder = Path(folder)
    folder.mkdir()
    for name, content in {**files, "config.json": config}.items():
        (folder / name).write_text(json.dumps(content))
    (folder / model_name).write_bytes(model)
    (folder / "model.safetensors").write_bytes(safetensors.numpy.save(arrays_of(config)))
    return folder
