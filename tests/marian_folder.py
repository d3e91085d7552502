"""Folders of MarianMT with random weights, in Hugging Face's layout, and tokenizers trained on
made-up words.
"""

import functools
import io
import json
from pathlib import Path

import numpy as np
import safetensors.numpy
import sentencepiece

D, H, F, LAYERS, DECODER_LAYERS, POSITIONS = 22, 11, 29, 2, 3, 47
SYLLABLES = {
    "source": "ka lo mi ru te so na ßu vé".split(),
    "target": "ba du fi gö hy pa qo wi zé".split(),
}
TAGS = (">>fra<<", ">>cmn_Hans<<")
HOSTILE = [
    "",
    " ",
    "</s>",
    "<unk>",
    "<pad>",
    "<s>",
    "▁",
    "▁ka",
    "<<",
    ">>",
    ">>fra",
    "fra<<",
    "\t",
    "　",
    "é",
    "é",
    "ﬁ",
    "＞＞",
    "中",
    "国",
    "🎈",
    "­",
    "̈",
    "A",
]


def sentences(side, count, seed=0):
    """Return sentences of made-up words, of which the first are frequent."""
    random = np.random.default_rng(seed)
    words = ["".join(random.choice(SYLLABLES[side], random.integers(1, 4))) for _ in range(120)]
    return [
        " ".join(words[min(119, int(i))] for i in random.exponential(20, random.integers(2, 9)))
        + "."
        for _ in range(count)
    ]


def random_texts(count, seed=0):
    """Return sentences of the language, and chains of its syllables, hostile strings and random
    characters.
    """
    random = np.random.default_rng(seed)
    texts = sentences("source", count // 2, seed=seed + 1)
    parts = [*SYLLABLES["source"], *SYLLABLES["target"], *HOSTILE, " ", " "]
    for _ in range(count - len(texts)):
        chosen = [parts[i] for i in random.integers(0, len(parts), random.integers(0, 12))]
        characters = [chr(code) for code in random.integers(33, 0x2FF, random.integers(0, 3))]
        texts.append("".join(random.permutation([*chosen, *characters])))
    return texts


def trained(side, pieces=67, texts=None, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts or sentences(side, 400)),
        model_writer=model,
        vocab_size=pieces,
        character_coverage=1.0,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


@functools.cache
def pieces_of(model):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    others = (processor.is_control, processor.is_unknown, processor.is_unused)
    return [
        processor.id_to_piece(i)
        for i in range(processor.vocab_size())
        if not any(other(i) for other in others)
    ]


def vocabulary(models, dropped=(), tags=()):
    """Return the rows of pieces as Marian numbers them: end, unknown, the pieces of both sides in
    an order of their own, and padding.
    """
    pieces = sorted(
        {piece for model in models for piece in pieces_of(model)} - set(dropped),
        key=lambda piece: piece[::-1],
    )
    return {piece: row for row, piece in enumerate(["</s>", "<unk>", *tags, *pieces, "<pad>"])}


def has_unknown_run(processor, vocabulary, text):
    """Whether a text has several characters in a row that the SentencePiece model lacks, and that
    are not a piece of the vocabulary: one unknown token in the family.
    """
    known = set("".join(pieces_of(processor.serialized_model_proto())))
    return any(
        len(piece) > 1 and known.isdisjoint(piece) and piece not in vocabulary
        for piece in processor.encode(text, out_type=str)
    )


def config_of(rows, target_rows=None, **changes):
    pad = (target_rows or rows) - 1
    sizes = {
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in (("attention_heads", H), ("ffn_dim", F))
    }
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "vocab_size": rows,
        "decoder_vocab_size": target_rows or rows,
        "d_model": D,
        **sizes,
        "encoder_layers": LAYERS,
        "decoder_layers": DECODER_LAYERS,
        "max_position_embeddings": POSITIONS,
        "activation_function": "swish",
        "scale_embedding": True,
        "pad_token_id": pad,
        "eos_token_id": 0,
        "decoder_start_token_id": pad,
        "num_beams": 3,
        "max_length": 512,
        "bad_words_ids": [[pad]],
        **changes,
    }


def arrays_of(config, spread=0.3, seed=1):
    """Return random arrays by the names of Hugging Face's class. Probabilities differ clearly, and
    a bias makes hypotheses end.
    """
    random = np.random.default_rng(seed)
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
    arrays = {}
    for name, shape in dense.items():
        arrays[f"{name}.weight"] = random.normal(float(len(shape) == 1), spread, shape)
        arrays[f"{name}.bias"] = random.normal(0, spread, shape[:1])
    tables = {"model.shared.weight": config["vocab_size"]}
    if not config.get("share_encoder_decoder_embeddings", True):
        tables = {
            "model.encoder.embed_tokens.weight": config["vocab_size"],
            "model.decoder.embed_tokens.weight": config["decoder_vocab_size"],
        }
        if not config.get("tie_word_embeddings", True):
            tables["lm_head.weight"] = config["decoder_vocab_size"]
    arrays |= {name: random.normal(0, 3 * D**-0.5, (rows, D)) for name, rows in tables.items()}
    arrays["final_logits_bias"] = random.normal(0, 0.3, (1, config["decoder_vocab_size"]))
    arrays["final_logits_bias"][0, 0] += 3.0
    return {name: array.astype("float32") for name, array in arrays.items()}


def write_folder(
    folder, dropped=(), tags=(), separate=False, options=None, spread=0.3, models=None, **changes
):
    """Write a folder, and return it. Its tokenizers are `models`, or trained on made-up words."""
    folder = Path(folder)
    folder.mkdir()
    models = models or [
        trained("source", **{**({"pieces": 71} if separate else {}), **(options or {})}),
        trained("target"),
    ]
    vocabularies = (
        [vocabulary(models, dropped, tags)]
        if not separate
        else [vocabulary([model], dropped, tags) for model in models]
    )
    rows = [len(pieces) for pieces in vocabularies]
    config = config_of(
        rows[0],
        rows[-1],
        **({"share_encoder_decoder_embeddings": False} if separate else {}),
        **changes,
    )
    files = {
        "config.json": config,
        "vocab.json": vocabularies[0],
        "tokenizer_config.json": {"separate_vocabs": separate},
    }
    if separate:
        files["target_vocab.json"] = vocabularies[1]
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    (folder / "model.safetensors").write_bytes(safetensors.numpy.save(arrays_of(config, spread)))
    return folder


def split_weights(folder):
    """Put half of the arrays into each of two files, and return their index."""
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    names = {
        name: f"model-{1 + place % 2:05}-of-00002.safetensors"
        for place, name in enumerate(sorted(arrays))
    }
    for file in set(names.values()):
        safetensors.numpy.save_file(
            {name: array for name, array in arrays.items() if names[name] == file}, folder / file
        )
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    index.write_text(
        json.dumps(
            {
                "metadata": {"total_size": sum(array.nbytes for array in arrays.values())},
                "weight_map": names,
            }
        )
    )
    return index
