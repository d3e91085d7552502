"""The whole way of a model from elsewhere: imported, trained further on real sentences, and
exported to three engines.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import sentencepiece
import t5_folder
from marian_folder import trained, write_folder
from marian_npz_folder import IDS, write_firefox
from multilingual_folder import write_mbart25
from t5_folder import TRAINED
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.export.runtime.opening import load

MULTI30K = Path(__file__).parents[2] / "shared" / "data" / "multi30k"
PAIRS = 500


def run(*arguments):
    done = CliRunner().invoke(main.app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, (done.output, done.exception)


def translated_by_ctranslate2(folder, texts):
    """Greedy translations, as a user of CTranslate2 and SentencePiece makes them."""
    import ctranslate2

    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.model"))
        for side in ("source", "target")
    )
    actual = ctranslate2.Translator(str(folder)).translate_batch(
        [source.id_to_piece(ids) for ids in source.encode(texts)],
        beam_size=1,
        max_decoding_length=30,
        min_decoding_length=0,
    )
    return [target.decode(result.hypotheses[0]) for result in actual]


# Import, fine-tuning, export and three engines, one after the other.
@pytest.mark.long
@pytest.mark.skipif(not MULTI30K.is_dir(), reason=f"needs {MULTI30K}")
def test_marianmt_to_three_engines(tmp_path):
    pytest.importorskip("ctranslate2")
    texts = {}
    for language in ("de", "en"):
        texts[language] = (
            (MULTI30K / f"{language}.train.txt").read_text(encoding="utf-8").splitlines()[:PAIRS]
        )
        (tmp_path / language).write_text(
            "".join(f"{line}\n" for line in texts[language]), encoding="utf-8"
        )
    models = [
        trained(side, 400, texts[language])
        for side, language in (("source", "de"), ("target", "en"))
    ]
    folder = write_folder(
        tmp_path / "opus",
        models=models,
        max_position_embeddings=128,
        encoder_layers=1,
        decoder_layers=1,
    )
    bundle, tuned, files = (tmp_path / name for name in ("bundle", "tuned", "files"))
    run("import", folder, "--out", bundle)
    data = f"files:{tmp_path / 'de'},{tmp_path / 'en'}"
    options = [
        "--epochs",
        2,
        "--learning-rate",
        1e-3,
        "--warmup-steps",
        10,
        "--batch-tokens",
        512,
        "--max-length",
        128,
    ]
    run("train", "--from", bundle, "--data", data, *options, "--out", tuned)
    losses = json.loads((tuned / "history.json").read_text())["loss"]
    assert losses[1] < losses[0]
    run(
        "export",
        tuned,
        "--out",
        files,
        "--format",
        "saved_model",
        "--format",
        "onnx",
        "--format",
        "ctranslate2",
    )
    settings = {"beam_size": 1, "max_length": 30, "max_length_factor": 1000}
    sentences = texts["de"][:20]
    expected = [actual.text for actual in load(tuned).translate(sentences, **settings)]
    assert len(set(expected)) > 5
    for name in ("saved_model", "translate.onnx"):
        assert [
            actual.text for actual in load(files / name).translate(sentences, **settings)
        ] == expected
    assert translated_by_ctranslate2(files / "ctranslate2", sentences) == expected


def has_node():
    packages = Path(__file__).parents[1] / "scripts" / "node_modules"
    return shutil.which("node") and (packages / "onnxruntime-web").is_dir()


def translated_by_node(folder, texts, settings):
    """Translations of the program for Node in a folder of the format "web"."""
    options = [
        part
        for name, value in settings.items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    done = subprocess.run(
        ["node", str(folder / "translate-cli.mjs"), *options],
        input="".join(f"{text}\n" for text in texts),
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def write_student(folder, texts):
    """Write the files of a model of Firefox, for both languages' texts."""
    write_firefox(folder, models=[trained("source", 400, texts, **IDS)] * 2)


def writes_multilingual(write):
    """A function that writes a folder of `multilingual_folder` for both languages' texts."""
    layers = {"encoder_layers": 1, "decoder_layers": 1}

    def write_trained(folder, texts):
        options = {"texts": texts, "pieces": 400}
        write(folder, options=options, max_position_embeddings=129, **layers)

    return write_trained


def writes_t5(case):
    """A function that writes a folder of `t5_folder` for both languages' texts."""

    def write_trained(folder, texts):
        model = None if case == "byt5" else trained("source", 400, texts, **TRAINED)
        # In longer translations, hardly trained models repeat themselves, and rounding decides.
        limits = {"max_length": 60, "eos_token_id": 1, "pad_token_id": 0}
        t5_folder.write_folder(folder, model, generation=limits, **t5_folder.CASES[case])

    return write_trained


write_byt5 = writes_t5("byt5")


# Import, fine-tuning, export and three engines, for families whose layers or tokens differ.
@pytest.mark.long
@pytest.mark.skipif(not MULTI30K.is_dir(), reason=f"needs {MULTI30K}")
@pytest.mark.skipif(not has_node(), reason="needs Node and the packages of scripts/")
@pytest.mark.parametrize(
    ("write", "languages"),
    [
        pytest.param(write_student, [], id="Firefox"),
        pytest.param(
            writes_multilingual(write_mbart25),
            ["--source-language", "de_DE", "--target-language", "en_XX"],
            id="mBART-25",
        ),
        pytest.param(
            writes_t5("flan"),
            ["--source-text-prefix", "translate German to English: "],
            id="T5",
        ),
        pytest.param(write_byt5, [], id="ByT5"),
    ],
)
def test_families_to_three_engines(tmp_path, write, languages):
    texts = {
        language: (MULTI30K / f"{language}.train.txt").read_text("utf-8").splitlines()[:PAIRS]
        for language in ("de", "en")
    }
    for language, lines in texts.items():
        (tmp_path / language).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    folder = tmp_path / "folder"
    write(folder, [*texts["de"], *texts["en"]])
    bundle, tuned, files = (tmp_path / name for name in ("bundle", "tuned", "files"))
    run("import", folder, "--out", bundle, *languages)
    data = ["--from", bundle, "--data", f"files:{tmp_path / 'de'},{tmp_path / 'en'}"]
    # At a higher rate, so short a training leaves a student with empty translations only.
    rate = 3e-4 if write is write_student else 1e-3
    schedule = ["--epochs", 2, "--learning-rate", rate, "--warmup-steps", 10]
    # Hardly trained models do not end their translations. The model of bytes repeats two letters
    # until rounding decides which one is next.
    longest = f"max_length={30 if write is write_byt5 else 60}"
    limits = ["--batch-tokens", 512, "--max-length", 128, "--setting", longest]
    run("train", *data, *schedule, *limits, "--out", tuned)
    losses = json.loads((tuned / "history.json").read_text())["loss"]
    assert losses[1] < losses[0]
    formats = [part for name in ("saved_model", "onnx", "web") for part in ("--format", name)]
    run("export", tuned, "--out", files, *formats)
    sentences = texts["de"][:40]
    for settings in ({}, {"beam_size": 4, "max_length": 30}):
        expected = [actual.text for actual in load(tuned).translate(sentences, **settings)]
        assert len(set(expected)) > 5
        for name in ("saved_model", "translate.onnx"):
            results = load(files / name).translate(sentences, **settings)
            assert [result.text for result in results] == expected
        assert translated_by_node(files / "web", sentences, settings) == expected
