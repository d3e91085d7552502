"""Write a small bundle, its `translate.onnx`, and what both give, into this folder.

`tests/test_saved_files.py` checks that later versions open these files and give the same. Run this
script only when a version may no longer do so, which is a change of the major version.
"""

import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer import Recipe, Translator, export, train
from tfk_transformer.datasets.numbers import spell
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator

HERE = Path(__file__).parent
SIZES = {"model_dim": 16, "ff_dim": 24, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
RECIPE = Recipe(
    data="files:en.txt,de.txt",
    validation_data="files:en.txt,de.txt",
    options=SIZES,
    preset="tiny",
    vocab_size=60,
    max_length=24,
    batch_tokens=256,
    learning_rate=1e-2,
    warmup_steps=10,
    epochs=60,
)
TEXTS = ["seven", "forty-two", "ninety-nine", "\ufb01ve\teight"]
TARGETS = ["sieben", "zweiundvierzig", "neunundneunzig", "f\u00fcnf"]
SETTINGS = {"beam_size": 4, "n_best": 4}
# Tabs, line ends, no-break spaces, and the ligature fi, in place of the 240 kB of SentencePiece's
# default rules, which would be most of each file.
RULES = {"9": "20", "A": "20", "D": "20", "A0": "20", "FB01": "66 69"}


def shorten_rules(tokenizer: Path, folder: Path) -> None:
    """Replace the normalization rules of a SentencePiece model by `RULES`."""
    (folder / "rules.tsv").write_text("".join(f"{source}\t{to}\n" for source, to in RULES.items()))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b"]),
        model_prefix=str(folder / "rules"),
        vocab_size=8,
        hard_vocab_limit=False,
        normalization_rule_tsv=str(folder / "rules.tsv"),
        minloglevel=2,
    )
    model = ModelProto.FromString(tokenizer.read_bytes())
    rules = ModelProto.FromString((folder / "rules.model").read_bytes()).normalizer_spec
    rules.normalization_rule_tsv = ""  # a path of this machine
    model.normalizer_spec.CopyFrom(rules)
    tokenizer.write_bytes(model.SerializeToString())


def hypotheses(translator: Translator | OnnxTranslator) -> list[list[tuple[str, float]]]:
    """Return the hypotheses of each text, with their scores."""
    actual = translator.translate(TEXTS, **SETTINGS)
    return [[(each.text, each.score) for each in translation.hypotheses] for translation in actual]


def main() -> None:
    """Train, export and describe the results."""
    for language in ("en", "de"):
        lines = "".join(f"{spell(number, language)}\n" for number in range(100))
        (HERE / f"{language}.txt").write_text(lines, encoding="utf-8")
    os.chdir(HERE)  # the recipe names the files in this folder
    shutil.rmtree("bundle", ignore_errors=True)
    train(RECIPE, "bundle")
    Path("bundle/curve.png").unlink(missing_ok=True)  # a picture, which nothing reads
    with tempfile.TemporaryDirectory() as folder:
        for name in ("source.model", "target.model"):
            shorten_rules(Path("bundle", name), Path(folder))
        translator = Translator.load("bundle")
        export(translator, Path(folder, "files"), ["onnx"])
        shutil.move(Path(folder, "files", "translate.onnx"), "translate.onnx")
    expected = {
        "texts": TEXTS,
        "settings": SETTINGS,
        "hypotheses": hypotheses(translator),
        "targets": TARGETS,
        "log_probabilities": [float(value) for value in translator.score(TEXTS, TARGETS)],
    }
    Path("expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
