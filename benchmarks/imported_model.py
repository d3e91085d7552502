"""Import a MarianMT folder of an opus-mt model's size, export it, and print times, peak memory and
sizes.

python benchmarks/imported_model.py OUT [--format FORMAT …] [--shortlist]

OUT takes the folder (random weights: 6 + 6 layers, width 512, feed-forward 2,048, a joint
vocabulary of 58,101), the bundle and the export. `python benchmarks/decoding.py OUT/bundle
OUT/files --random 24` then compares its decoding speed with CTranslate2's.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import safetensors.numpy
from harness import arguments_parser, megabytes, processor, report, run_command
from sentencepiece.sentencepiece_model_pb2 import ModelProto

PROBES = 100  # 8-bit files need some
FORMATS = ("saved_model", "onnx", "onnx_steps", "onnx_int8")
PIECES, WIDTH, INNER, LAYERS, HEADS, POSITIONS = 58_101, 512, 2048, 6, 8, 512
# Biases of random size make some tokens much more probable than others, as in trained models, so
# that 8-bit weights choose the same ones. With this bias of the end token, translations run to the
# limit. With 10 most do, but for those from a few hundred candidates.
BIAS, END_BIAS = 3.0, 0.0
# Of the made-up pairs: each token of the vocabulary has about 15 others beside it.
SENTENCES, TOKENS = 60_000, 15
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CONFIG = {
    "model_type": "marian",
    "vocab_size": PIECES,
    "d_model": WIDTH,
    **{
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in (("layers", LAYERS), ("attention_heads", HEADS))
    },
    **{f"{stack}_ffn_dim": INNER for stack in ("encoder", "decoder")},
    "max_position_embeddings": POSITIONS,
    "activation_function": "swish",
    "scale_embedding": True,
    "pad_token_id": PIECES - 1,
    "eos_token_id": 0,
    "decoder_start_token_id": PIECES - 1,
}


def main() -> None:
    """Run the benchmark."""
    parser = arguments_parser(__doc__)
    add = parser.add_argument
    add("out", type=Path, help="new folder for the model, its bundle and its export")
    add("--format", action="append", choices=FORMATS, help="by default all")
    add("--shortlist", action="store_true", help="also export ONNX files with one")
    options = parser.parse_args()
    folder, bundle, files, short = (
        options.out / name for name in ("folder", "bundle", "files", "shortlist")
    )
    write_folder(folder)
    pairs, probes = write_pairs(options.out), options.out / "probes.txt"
    lines = (options.out / "pairs.source.txt").read_text().splitlines(keepends=True)
    probes.write_text("".join(lines[:PROBES]))
    formats = [part for name in options.format or FORMATS for part in ("--format", name)]
    rows = [
        ["step", "seconds", "processor seconds", "peak MB"],
        measured("import", folder, "--out", bundle, "--probes", probes),
        measured("export", bundle, "--out", files, *formats),
    ]
    if options.shortlist:
        onnx = [
            "--format",
            "onnx",
            "--format",
            "onnx_int8",
            "--shortlist",
            pairs,
        ]
        rows.append(measured("export", bundle, "--out", short, *onnx))
    written = [path for made in (files, short) if made.exists() for path in sorted(made.iterdir())]
    paths = (folder, bundle, *written)
    sizes = [[str(path.relative_to(options.out)), f"{megabytes(path):.1f}"] for path in paths]
    report([f"Processor: {processor()}."], (rows, [["file", "MB"], *sizes]), options.markdown)


def measured(command: str, *arguments: str | Path) -> list[str]:
    """Run a command of `tfk-transformer`, and return its row."""
    answer = run_command([sys.executable, "-m", "tfk_transformer", command, *arguments])
    figures = (answer.seconds, answer.processor_seconds, answer.peak_megabytes)
    return [command, *(f"{figure:,.0f}" for figure in figures)]


def write_folder(folder: Path) -> None:
    """Write a folder of MarianMT with random weights, and a SentencePiece model of made-up
    words.
    """
    folder.mkdir(parents=True)
    words = made_up_words(PIECES - 3)
    vocabulary = {piece: row for row, piece in enumerate(["</s>", "<unk>", *words, "<pad>"])}
    for name, content in (("config.json", CONFIG), ("vocab.json", vocabulary)):
        (folder / name).write_text(json.dumps(content))
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(sentencepiece_model(words))
    safetensors.numpy.save_file(dict(random_arrays()), folder / "model.safetensors")


def write_pairs(out: Path) -> str:
    """Write text pairs of random words, and return their spec."""
    random, words = (
        np.random.default_rng(1),
        np.array([word.lstrip("▁") for word in made_up_words(PIECES - 3)[2 * len(LETTERS) :]]),
    )
    paths = [out / f"pairs.{side}.txt" for side in ("source", "target")]
    for path in paths:
        path.write_text("\n".join(map(" ".join, random.choice(words, (SENTENCES, TOKENS)))) + "\n")
    return f"files:{paths[0]},{paths[1]}"


def made_up_words(count: int) -> list[str]:
    """Return letters, and then words of growing length, each with the mark of a word's start."""
    random = np.random.default_rng(0)
    words = dict.fromkeys(f"{mark}{letter}" for mark in ("▁", "") for letter in LETTERS)
    while len(words) < count:
        words["▁" + "".join(random.choice(list(LETTERS), random.integers(2, 9)))] = None
    return list(words)


def sentencepiece_model(words: list[str]) -> bytes:
    """Return a unigram model in which all words are equally probable."""
    made = ModelProto()
    for piece, kind in (
        ("<unk>", ModelProto.SentencePiece.UNKNOWN),
        ("<s>", ModelProto.SentencePiece.CONTROL),
        ("</s>", ModelProto.SentencePiece.CONTROL),
    ):
        made.pieces.add(piece=piece, score=0.0, type=kind)
    for word in words:
        made.pieces.add(
            piece=word, score=float(-np.log(len(words))), type=ModelProto.SentencePiece.NORMAL
        )
    made.trainer_spec.model_type = 1  # unigram
    made.normalizer_spec.add_dummy_prefix = made.normalizer_spec.escape_whitespaces = (
        made.normalizer_spec.remove_extra_whitespaces
    ) = True
    return bytes(made.SerializeToString())


def random_arrays() -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of Hugging Face's class by name, of the sizes that a trained model's
    have.
    """
    random = np.random.default_rng(0)

    def dense(path: str, outputs: int, inputs: int) -> Iterator[tuple[str, np.ndarray]]:
        yield f"{path}.weight", random.normal(0, inputs**-0.5, (outputs, inputs)).astype("float32")
        yield f"{path}.bias", np.zeros(outputs, "float32")

    def norm(path: str) -> Iterator[tuple[str, np.ndarray]]:
        yield f"{path}.weight", np.ones(WIDTH, "float32")
        yield f"{path}.bias", np.zeros(WIDTH, "float32")

    for stack, attentions in (
        ("encoder", ["self_attn"]),
        ("decoder", ["self_attn", "encoder_attn"]),
    ):
        for layer in (f"model.{stack}.layers.{i}" for i in range(LAYERS)):
            for attention in attentions:
                for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    yield from dense(f"{layer}.{attention}.{projection}", WIDTH, WIDTH)
                yield from norm(f"{layer}.{attention}_layer_norm")
            yield from dense(f"{layer}.fc1", INNER, WIDTH)
            yield from dense(f"{layer}.fc2", WIDTH, INNER)
            yield from norm(f"{layer}.final_layer_norm")
    yield "model.shared.weight", random.normal(0, WIDTH**-0.5, (PIECES, WIDTH)).astype("float32")
    bias = random.normal(0, BIAS, (1, PIECES)).astype("float32")
    bias[0, CONFIG["eos_token_id"]] = END_BIAS
    yield "final_logits_bias", bias


if __name__ == "__main__":
    main()
