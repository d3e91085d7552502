"""The whole way of a model from elsewhere: imported, trained further on real sentences, and
exported to three engines.
"""

import json
from pathlib import Path

import pytest
import sentencepiece
from marian_folder import trained, write_folder
from typer.testing import CliRunner

from tfk_transformer.cli import main
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
    found = ctranslate2.Translator(str(folder)).translate_batch(
        [source.id_to_piece(ids) for ids in source.encode(texts)],
        beam_size=1,
        max_decoding_length=30,
        min_decoding_length=0,
    )
    return [target.decode(result.hypotheses[0]) for result in found]


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
    sentences = texts["de"][:40]
    expected = [found.text for found in load(tuned).translate(sentences, **settings)]
    assert len(set(expected)) > 5
    for name in ("saved_model", "translate.onnx"):
        assert [
            found.text for found in load(files / name).translate(sentences, **settings)
        ] == expected
    assert translated_by_ctranslate2(files / "ctranslate2", sentences) == expected
