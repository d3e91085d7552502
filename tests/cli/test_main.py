import itertools
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from number_files import PARAGRAPH, TRANSLATED_PARAGRAPH

from tfk_transformer import __version__
from tfk_transformer.apps.cli import main as cli
from tfk_transformer.apps.cli.commands.export import _agreements, _run_line
from tfk_transformer.export import model_files
from tfk_transformer.export.to_onnx.layer_operators import weight_rounding
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.runtime_environment import install_line


def test_arguments_keep_their_order(run, model):
    assert run("translate", model, "forty-two", "seven") == (0, "zweiundvierzig\nsieben\n", "")


def test_paragraphs_are_translated_whole(run, model, tmp_path):
    expected = (0, f"{TRANSLATED_PARAGRAPH}\n", "")
    assert run("translate", model, PARAGRAPH) == expected
    assert run("translate", model, "--stream", PARAGRAPH) == expected
    assert run("translate", model, stdin=f"{PARAGRAPH}\n".encode()) == expected
    (tmp_path / "in.txt").write_text(f"{PARAGRAPH}\nseven\n", encoding="utf-8")
    run("translate", model, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt")
    out = (tmp_path / "out.txt").read_text(encoding="utf-8")
    assert out == f"{TRANSLATED_PARAGRAPH}\nsieben\n"
    assert run("translate", model, "--no-split-sentences", PARAGRAPH) != expected


def test_text_with_line_ends_is_one_line(run, model):
    text = "seven.\r\nnine.\veight"
    expected = (0, "sieben. neun. acht\nsieben\n", "")
    assert run("translate", model, text, "seven") == expected
    assert run("translate", model, "--stream", text, "seven") == expected


@pytest.mark.parametrize("name", ["split_sentences=false", "language=de", "batch_size=3"])
def test_settings_are_search_settings(run, model, name):
    status, out, error = run("translate", model, "seven", "--setting", name)
    assert (status, out) == (1, "")
    assert error.startswith("error: settings: ")
    assert name.partition("=")[0] in error


def test_unknown_language_is_refused(run, model):
    status, out, error = run("translate", model, "seven", "--language", "xx")
    assert (status, out) == (1, "")
    assert error.startswith("error: --language: expected an ISO 639")


def test_json_has_sentences_and_kept_characters(run, model):
    values = json.loads(run("translate", model, "--json", PARAGRAPH)[1])
    assert values["source"] == PARAGRAPH
    assert values["translation"] == TRANSLATED_PARAGRAPH
    assert [sentence["translation"] for sentence in values["sentences"]] == [
        "zweiundvierzig.",
        "sieben!",
        "neun?",
        "einhundertneunundneunzig 😀.",
        "drei",
    ]
    assert values["kept_characters"] == sum(
        sentence.get("kept_characters", 0) for sentence in values["sentences"]
    )
    assert "sentences" not in json.loads(run("translate", model, "--json", "seven")[1])


def test_stream_prints_the_same_lines(run, model):
    assert run("translate", model, "--stream", "forty-two", "seven") == (
        0,
        "zweiundvierzig\nsieben\n",
        "",
    )
    drawn = ["--setting", "temperature=1.5", "--setting", "seed=3", "one hundred ninety-nine"]
    assert run("translate", model, "--stream", *drawn) == run(
        "translate", model, "--beam-size", 1, *drawn
    )
    assert run("translate", model, "--stream", stdin=b"seven\n\none\n")[1].splitlines()[:2] == [
        "sieben",
        "",
    ]


def test_search_settings_by_name(run, model):
    status, out, _ = run(
        "translate",
        model,
        "forty-two",
        "--setting",
        "max_length=1",
        "--setting",
        "length_penalty=0.5",
    )
    assert status == 0
    assert out != "zweiundvierzig\n"
    status, _, error = run("translate", model, "one", "--setting", "top_p=2")
    assert status == 1
    assert error.startswith("error: ")
    assert "top_p: " in error


def test_stdin_lines_keep_their_order(run, model):
    text = b"one hundred ninety-nine\n\nseven\r\nforty-two"
    assert run("translate", model, "--beam-size", 1, stdin=text) == (
        0,
        "einhundertneunundneunzig\n\nsieben\nzweiundvierzig\n",
        "",
    )


def test_file_is_translated_to_file(run, exported, tmp_path):
    (tmp_path / "in.txt").write_text("seven\nforty-two\n")
    assert run(
        "translate",
        exported / "translate.onnx",
        "--input",
        tmp_path / "in.txt",
        "--output",
        tmp_path / "out.txt",
    ) == (0, "", "")
    assert (tmp_path / "out.txt").read_text() == "sieben\nzweiundvierzig\n"


def test_n_best_lines_are_numbered(run, model, translator):
    """The sentences are numbered from 0, and a blank line has its number too."""
    status, out, error = run(
        "translate", model, "--setting", "n_best=3", stdin=b"forty-two\n\nseven"
    )
    assert (status, error) == (0, "")
    rows = [line.split(" ||| ") for line in out.splitlines()]
    expected = translator.translate(["forty-two", "", "seven"], n_best=3)
    assert [(int(number), text) for number, text, _ in rows] == [
        (n, h.text) for n, t in enumerate(expected) for h in t.hypotheses
    ]
    assert [float(score) for *_, score in rows] == pytest.approx(
        [h.score for t in expected for h in t.hypotheses], abs=1e-4
    )
    assert [row[0] for row in rows].count("0") == 3


def test_json_scores_all_hypotheses(run, exported):
    arguments = [
        "translate",
        exported / "translate.onnx",
        "--setting",
        "n_best=2",
        "--json",
        "--on-error",
        "blank",
        "--no-split-sentences",
    ]
    status, out, _ = run(*arguments, stdin="forty-two\n{}\nseven\n".format("one " * 10000).encode())
    first, second, third = map(json.loads, out.splitlines())
    assert status == 0
    assert (first["source"], first["translation"], third["translation"]) == (
        "forty-two",
        "zweiundvierzig",
        "sieben",
    )
    assert [hypothesis["text"] for hypothesis in first["hypotheses"]][0] == "zweiundvierzig"
    assert first["hypotheses"][0]["score"] > first["hypotheses"][1]["score"]
    assert list(second) == ["error"]
    assert "expected at most 32 tokens" in second["error"]


def test_beam_size_setting_applies(run, exported, recipe):
    arguments = ["evaluate", exported / "translate.onnx", "--data", recipe.data, "--json"]
    for options in (
        ["--setting", "beam_size=1"],
        ["--beam-size", 1],
        ["--beam-size", 1, "--setting", "beam_size=1"],
    ):
        status, out, _ = run(*arguments, *options)
        assert status == 0
        assert json.loads(out)["beam_size"] == 1
    assert json.loads(run(*arguments)[1])["beam_size"] == 4


def test_prefix_starts_translations(run, model):
    status, out, _ = run("translate", model, "forty-two", "seven", "--prefix", "drei")
    assert status == 0
    assert [line[:4] for line in out.splitlines()] == ["drei", "drei"]


@pytest.mark.parametrize("kind", ["bundle", "saved_model", "score.onnx"])
def test_score_prints_a_line_per_pair(run, bundle, exported, translator, tmp_path, kind):
    sources, targets = ["forty-two", "seven", "nine"], ["zweiundvierzig", "acht", "neun"]
    for name, lines in (("en", sources), ("de", targets)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    arguments = [
        bundle if kind == "bundle" else exported / kind,
        "--source",
        tmp_path / "en",
        "--target",
        tmp_path / "de",
    ]
    status, out, error = run("score", *arguments)
    assert (status, error) == (0, "")
    assert [float(line) for line in out.splitlines()] == pytest.approx(
        translator.score(sources, targets), abs=1e-4
    )
    assert run("score", *arguments, "--tokens", "--output", tmp_path / "scores")[:2] == (0, "")
    records = [json.loads(line) for line in (tmp_path / "scores").read_text().splitlines()]
    assert [(r["source"], r["target"]) for r in records] == list(zip(sources, targets, strict=True))
    assert all("".join(r["tokens"]) == f"▁{r['target']}</s>" for r in records)
    assert [sum(r["token_log_probs"]) for r in records] == pytest.approx(
        [float(line) for line in out.splitlines()], abs=1e-4
    )


def test_evaluate_json_has_signatures(run, model, recipe):
    status, out, _ = run("evaluate", model, "--data", recipe.data, "--json")
    figures = json.loads(out)
    assert status == 0
    assert figures["sentences"] == 200
    assert figures["exact_match"] > 90
    assert figures["bleu_signature"].startswith(
        "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"
    )
    assert {
        "bleu",
        "chrf",
        "chrf_signature",
        "sentences_per_second",
        "beam_size",
        "dropped",
    } <= set(figures)


def test_evaluate_takes_bleu_tokenizer(run, exported, recipe):
    data = ("--data", recipe.data, "--bleu-tokenizer", "char")
    status, out, _ = run("evaluate", exported / "translate.onnx", *data)
    assert status == 0
    assert "|tok:char|" in out


def test_evaluate_prints_error_rates(run, exported, recipe):
    data = ("--data", recipe.data, "--pronunciations")
    status, out, _ = run("evaluate", exported / "translate.onnx", *data)
    assert status == 0
    # The numbers are one word each, and each is right or wrong as a whole.
    rates = {line.split()[0]: line.split()[1] for line in out.splitlines()}
    assert rates["WER"] == rates["PER"]


def test_evaluate_writes_translations(run, exported, recipe, tmp_path):
    status, out, _ = run(
        "evaluate",
        exported / "translate.onnx",
        "--data",
        recipe.data,
        "--output",
        tmp_path / "out.txt",
    )
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "sentences",
        "BLEU",
        "chrF",
        "exact",
        "speed",
    ]
    assert "BLEU         0.00: no four words in a row are right, see exact match  nrefs:1" in out
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 200


@pytest.mark.long  # an export
def test_int8_claims_no_equal_ids(run, bundle, tmp_path):
    status, out, _ = run("export", bundle, "--out", tmp_path / "out", "--format", "onnx_int8")
    assert status == 0
    assert "the same ids" not in out
    figures = json.loads((tmp_path / "out" / "parity.json").read_text())
    assert "ids" not in figures
    assert figures["sentences"] == 128
    int8 = figures["onnx_int8"]
    assert (
        f"Checked: onnx_int8: a loss of score of {int8['regret_per_token']:.2g} per token, and the "
        f"Keras model's translations of {int8['same_translations']} of 128 sentences."
    ) in out


def test_export_reports_ties():
    figures = {"ids": "equal", "sentences": 128, "saved_model": {"ties": 0}, "onnx": {"ties": 1}}
    figures["settings"] = [{"beam_size": 1, "probes": 128}, {"probes": 128}]
    assert list(_agreements(figures)) == [
        "the same ids as Keras on 128 sentences, greedy and beam 4, except 1 where rounding decides"
    ]


def test_export_reports_the_beam_of_the_probes():
    settings = [{"beam_size": 1, "probes": 128}, {"beam_size": 2, "probes": 128}]
    figures = {"ids": "equal", "sentences": 128, "onnx": {"ties": 0}, "settings": settings}
    assert list(_agreements(figures)) == [
        "the same ids as Keras on 128 sentences, greedy and beam 2"
    ]


def test_export_says_that_weights_stay_in_float32():
    smaller = {"regret_per_token": 0.0123, "same_translations": 111}
    int8 = {"regret_per_token": 0.002, "same_translations": 117, "sentences": 128}
    assert list(_agreements({"onnx_int8": {**int8, "smaller_file": smaller}}))[1] == (
        "onnx_int8: some weights stay in float32, since all in 8 bits lose 0.012 per token and "
        "give 111 of these translations; for the smaller and faster file, set --int8-regret or "
        "--int8-same"
    )


# Two exports.
@pytest.mark.long
def test_export_keeps_formats_that_agree(run, bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(weight_rounding, "INT8_MAX", 1)  # the weights become -1, 0 and 1
    monkeypatch.setattr(model_files, "FLOAT_LAYERS", ((),))
    (tmp_path / "probes.txt").write_text("seven\neighty-one\n")
    options = ["--format", "onnx", "--format", "onnx_int8", "--probes", tmp_path / "probes.txt"]
    status, out, error = run("export", bundle, "--out", tmp_path / "out", *options)
    assert status == 1
    assert "the same ids as Keras on 100 sentences" in out
    assert "of 2 probe sentences" in error
    assert "onnx_int8: expected a regret" in error
    assert error.endswith("out has the other formats: onnx.\n")
    assert not (tmp_path / "out" / "translate.int8.onnx").exists()


# Exports a SavedModel, and opens it three times.
@pytest.mark.long
def test_export_writes_chosen_formats(run, bundle, tmp_path):
    models = tmp_path / "models"
    (models / "numbers" / "6").mkdir(parents=True)
    (models / "numbers" / "6" / "saved_model.pb").touch()
    serving = ["--serving", models, "--name", "numbers"]
    arguments = ["--out", tmp_path / "out", "--format", "saved_model", *serving, "--verbose"]
    status, out, error = run("export", bundle, *arguments)
    assert status == 0
    assert "the same ids as Keras on 128 sentences" in out
    assert re.search(
        r"(?m)^  saved_model +\d+\.\d MB  text to text: TensorFlow, TensorFlow Serving", out
    )
    assert f"\nRun it: tfk-transformer translate {tmp_path / 'out' / 'saved_model'} " in out
    steps = [line.partition(" s  ")[2] for line in error.splitlines()]
    assert steps[:2] == ["load TensorFlow", f"open {bundle}"]
    assert {
        "write saved_model (format 1 of 1)",
        "compare SavedModel with the Keras model: translations of ids",
    } <= set(steps)
    assert (tmp_path / "out" / "saved_model" / "saved_model.pb").is_file()
    assert steps[-1] == f"add the SavedModel to {models}"
    assert f"\nServe it: {models / 'numbers' / '7'}, a version for TensorFlow Serving\n" in out
    assert 'base_path: "/models/numbers"' in (models / "models.config").read_text()
    assert run("translate", models / "numbers", "seven") == (0, "sieben\n", "")


@pytest.mark.long  # an export
def test_json_names_serving_version(run, tmp_path):
    bundle = Path(__file__).parents[1] / "saved_files" / "bundle"
    serving = ["--serving", tmp_path / "models", "--name", "n", "--version", 3, "--mounted", "/srv"]
    arguments = ["--out", tmp_path / "out", "-f", "saved_model", *serving, "--json", "--quiet"]
    status, out, error = run("export", bundle, *arguments)
    actual = json.loads(out)
    assert (status, error, set(actual["files"])) == (0, "", {"saved_model", "parity.json"})
    assert actual["serving"] == str(tmp_path / "models" / "n" / "3")
    assert (tmp_path / "models" / "n" / "3" / "saved_model.pb").is_file()
    assert 'base_path: "/srv/n"' in (tmp_path / "models" / "models.config").read_text()


def test_trained_bundle_translates(run, recipe, tmp_path):
    arguments = [
        "--preset",
        "tiny",
        "--epochs",
        1,
        "--vocab-size",
        80,
        "--max-length",
        32,
        "--batch-tokens",
        512,
        "--warmup-steps",
        10,
    ]
    sizes = ("model_dim=8", "ff_dim=8", "num_heads=2", "encoder_layers=1", "decoder_layers=1")
    arguments += ["--no-towers", *(part for size in sizes for part in ("--option", size))]
    bundle = tmp_path / "b [i]"  # what Rich would take for a style
    status, out, _ = run(
        "train",
        "--data",
        recipe.data,
        "--validation-data",
        recipe.data,
        "--out",
        bundle,
        *arguments,
    )
    assert status == 0
    assert out.splitlines()[-1] == f"bundle: {bundle}"
    assert "train: 200 pairs" in out
    assert "validation: 200 pairs" in out
    assert "80 subwords" in out
    assert run("translate", bundle, "one", "--beam-size", 1)[0] == 0


@pytest.mark.long  # a training
def test_train_takes_model_options(run, recipe, tmp_path):
    sizes = [
        "--preset",
        "transformer_details",
        "--option",
        "model_dim=22",
        "--option",
        "num_heads=2",
        "--option",
        "ff_dim=37",
    ]
    layers = [
        "--option",
        "encoder_layers=1",
        "--option",
        "decoder_layers=1",
        "--option",
        "norm=pre",
        "--option",
        "attention_bias=true",
    ]
    training = [
        "--epochs",
        1,
        "--vocab-size",
        80,
        "--max-length",
        32,
        "--batch-tokens",
        512,
        "--warmup-steps",
        10,
    ]
    status, _, error = run(
        "train", "--data", recipe.data, "--out", tmp_path / "b", *sizes, *layers, *training
    )
    assert (status, error) == (0, "")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert (config["model_dim"], config["norm"], config["attention_scale"]) == (
        22,
        "pre",
        "key_dim",
    )
    assert config["attention_bias"] == ["query", "key", "value", "output"]


# Two trainings in processes of their own, and a search.
@pytest.mark.long
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_stopped_training_resumes(recipe, tmp_path, stop):
    """In processes of their own, stopped by Ctrl-C or killed outright."""
    command = [
        sys.executable,
        "-m",
        "tfk_transformer",
        "train",
        "--data",
        recipe.data,
        "--out",
        tmp_path / "b",
        "--preset",
        "tiny",
    ]
    sizes = ("model_dim=16", "ff_dim=16", "num_heads=2", "encoder_layers=1", "decoder_layers=1")
    command += [part for size in sizes for part in ("--option", size)]
    command += [
        "--no-towers",
        "--vocab-size",
        "80",
        "--max-length",
        "32",
        "--batch-tokens",
        "512",
        "--warmup-steps",
        "10",
    ]
    # What runs in the background ignores Ctrl-C, and so would what it starts.
    as_in_front = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen([*command, "--epochs", "500"], **streams, **as_in_front) as training:
        while "epoch 4/" not in training.stdout.readline():
            assert training.poll() is None
        training.send_signal(stop)
        rest = training.stdout.read()
    assert training.returncode == (130 if stop == signal.SIGINT else -signal.SIGKILL)
    assert ("--resume to continue" in rest) == (stop == signal.SIGINT)
    # Whoever asks gets a bundle. A killed training has left one if it ran long enough, which
    # depends on the machine; it is whole then.
    if stop == signal.SIGINT or (tmp_path / "b").exists():
        assert Translator.load(tmp_path / "b").translate(["seven"])[0].source == "seven"
    with np.load(tmp_path / "b.training" / "state.npz") as state:
        whole = len(json.loads(str(state["about"]))["rows"])
    assert whole >= 4
    resumed = subprocess.run(
        [*command, "--epochs", str(whole + 2), "--resume"], capture_output=True, text=True
    )
    assert resumed.returncode == 0, resumed.stderr
    assert f"resumed after epoch {whole}\n" in resumed.stdout
    assert f"epoch {whole}/" not in resumed.stdout
    assert f"epoch {whole + 1}/{whole + 2}: " in resumed.stdout
    history = json.loads((tmp_path / "b" / "history.json").read_text())
    assert history["epoch"] == list(range(1, whole + 3))
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "{bundle}", ""], "TEXT: expected sentences, got blank text at number 1"),
        (
            ["translate", "{bundle}", "one", "--input", "x"],
            "expected sentences or --input, got both",
        ),
        (["translate", "{bundle}"], "input: expected one sentence per line, got no lines"),
        (
            ["translate", "{bundle}", "--no-split-sentences", "one " * 10000],
            (
                r"TEXT:1: expected at most 32 tokens, got more \('one one .*', 10000 words\); "
                r"split "
                r"it into sentences"
            ),
        ),
        (
            ["translate", "{bundle}", "--input", "{tmp}/none.txt"],
            "No such file or directory: '{tmp}/none.txt'",
        ),
        (
            ["translate", "{onnx}", "one", "--beam-size", "4", "--setting", "beam_size=1"],
            "beam_size: expected one value, got --beam-size 4 and --setting beam_size=1",
        ),
        (
            ["translate", "{onnx}", "one", "--setting", "n_best=5"],
            "n_best: expected at most beam_size, got n_best 5 and beam_size 4",
        ),
        (
            ["translate", "{bundle}", "one", "--setting", "beam_size=1", "--setting", "n_best=2"],
            "n_best: expected at most beam_size, got n_best 2 and beam_size 1",
        ),
        (
            ["translate", "{bundle}", "one", "--beam-size", "0"],
            "beam_size: expected an integer of at least 1 and at most 1000, got 0",
        ),
        (
            ["translate", "{onnx}", "one", "--beam-size", "0"],
            "beam_size: expected an integer of at least 1 and at most 80, got 0",
        ),
        (
            ["translate", "{onnx}", "one", "--setting", "seed=" + "[" * 100_000],
            "--setting: expected a value for seed, got too many nested",
        ),
        (
            ["translate", "{bundle}", "one", "--setting", "seed=[1]"],
            r"seed: expected an integer of at least 0 and .*, got \[1\]",
        ),
        (
            [
                "train",
                "--data",
                "numbers:en-de",
                "--option",
                "norm=" + "[" * 100_000,
                "--out",
                "{tmp}/new",
            ],
            "--option: expected a value for norm",
        ),
        (
            ["translate", "{bundle}", "--stream"],
            "input: expected one sentence per line, got no lines",
        ),
        (
            ["translate", "{bundle}", "--stream", "one", "--beam-size", "4"],
            "beam_size: expected 1, got 4",
        ),
        (
            ["translate", "{bundle}", "--stream", "one", "--output", "{tmp}/x"],
            "--stream: expected no --output",
        ),
        (
            ["translate", "{bundle}", "--stream", "one", "--glossary", "{tmp}/x"],
            "--stream: expected no --glossary",
        ),
        (["translate", "{tmp}/none", "one"], "MODEL: expected a bundle .* which does not exist"),
        (["translate", "{tmp}", "one"], "MODEL: .* a folder without any of these files"),
        (["translate", "{tmp}/corrupt.onnx", "one"], "corrupt.onnx does not load"),
        (
            ["score", "{generate}", "--source", "{one}", "--target", "{one}"],
            (
                "expected a file that takes text, got .*; use translate.onnx, or score.onnx to "
                "score "
                "pairs, of the same"
            ),
        ),
        (
            ["evaluate", "{bundle}", "--data", "numbers:en-xx"],
            "expected a code of num2words, got 'xx'",
        ),
        (
            ["evaluate", "{bundle}", "--data", "folder:{tmp}/none:de-en"],
            "folder {tmp}/none: not found",
        ),
        (
            ["evaluate", "{bundle}", "--data", "letters:en-de"],
            "expected numbers:en-de, addition:2, files:SOURCE,TARGET",
        ),
        (
            ["evaluate", "{bundle}", "--data", "numbers:en-de", "--bleu-tokenizer", "zhh"],
            r"bleu_tokenizer: expected none, zh, .*, got 'zhh'. Did you mean 'zh'\?",
        ),
        (
            ["evaluate", "{bundle}", "--data", "numbers:en-de", "--split", "tests"],
            "got 'tests'; choose one of them, or add the split to the data. Did you mean 'test'?",
        ),
        (
            ["train", "--data", "numbers:en-de", "--preset", "tinny", "--out", "{tmp}/new"],
            "preset: .*'tinny'",
        ),
        (
            ["train", "--data", "numbers:en-de", "--option", "norm", "--out", "{tmp}/new"],
            "--option: expected NAME=VALUE, .*, got 'norm'",
        ),
        (
            ["train", "--data", "numbers:en-de", "--option", "norms=pre", "--out", "{tmp}/new"],
            "unknown key 'norms'. Did you mean 'norm'",
        ),
        (
            ["train", "--data", "numbers:en-de", "--architecture", "encodr", "--out", "{tmp}/new"],
            "architecture: .*'encodr'",
        ),
        (
            ["train", "--data", "files:{tmp}/a,{tmp}/b", "--out", "{tmp}/new"],
            "{tmp}/a: not found; {tmp}/b: not found",
        ),
        (
            ["train", "--data", "numbers:en-de", "--out", "{tmp}"],
            "out: expected a new folder, got {tmp}, which exists",
        ),
        (
            ["train", "--data", "numbers:en-de", "--out", "{tmp}", "--resume"],
            "resume: expected the unfinished training of {tmp} in .*, got none, and {tmp} was not",
        ),
        (
            ["train", "--data", "numbers:en-de", "--out", "{tmp}/new", "--batch-tokens", "9"],
            "batch_tokens must be at least max_length, .* 9 and 256",
        ),
        (
            ["export", "{tmp}/none", "--out", "{tmp}/new"],
            "bundle: expected a folder that `train` or `import` wrote",
        ),
        (
            ["inspect", "{tmp}/corrupt.onnx"],
            "FILE: expected a bundle .*, got {tmp}/corrupt.onnx, which does not load",
        ),
        (
            ["export", "{bundle}", "--out", "{tmp}/new", "--format", "tflite"],
            (
                "formats: expected some of saved_model, onnx, onnx_steps, .*, huggingface, web, "
                "web_int8, got tflite"
            ),
        ),
    ],
)
def test_bad_input_leaves_no_files(
    run, bundle, exported, tmp_path, tmp_path_factory, arguments, message
):
    (tmp_path / "corrupt.onnx").write_bytes(b"corrupt")
    lines_of_numbers = tmp_path_factory.mktemp("lines")
    names = {
        "bundle": bundle,
        "onnx": exported / "translate.onnx",
        "generate": exported / "generate.onnx",
        "tmp": tmp_path,
    }
    for number, name in enumerate(("one", "two"), 1):
        names[name] = lines_of_numbers / name
        names[name].write_text("eins\n" * number)
    status, out, error = run(*(argument.format(**names) for argument in arguments))
    assert status == 1
    assert out == ""
    assert error.count("\n") == 1
    assert error.startswith("error: ")
    for name in ("tmp", "one", "two"):
        message = message.replace(f"{{{name}}}", re.escape(str(names[name])))
    assert re.search(message, error)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corrupt.onnx"]


def test_usage_error_exits_with_2(run):
    status, _, error = run("translate")
    assert status == 2
    assert "Missing argument 'MODEL'" in error


def test_version_is_printed(run):
    assert run("--version") == (0, f"{__version__}\n", "")


def test_help_names_every_command(run):
    _, out, _ = run("--help")
    assert all(
        command in out
        for command in ("train", "translate", "classify", "evaluate", "export", "inspect", "score")
    )


def test_help_imports_nothing_heavy():
    code = """
import sys
from tfk_transformer.apps.cli.main import main
sys.argv = ["tfk-transformer", "--help"]
try:
    main()
except SystemExit:
    heavy = {"numpy", "pydantic", "onnxruntime", "keras", "tensorflow", "tomlkit", "sentencepiece"}
    ours = sorted(name for name in sys.modules if name.startswith("tfk_transformer."))
    print(sorted(heavy & set(sys.modules)), ours, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    ours = [
        f"tfk_transformer.{name}"
        for name in (
            "apps",
            "apps.cli",
            "apps.cli.help_pages",
            "apps.cli.main",
            "constants",
            "keras_registration",
            "runtime_environment",
        )
    ]
    assert done.stderr == f"[] {ours}\n"
    assert all(
        line in " ".join(done.stdout.replace("│", "").split())
        for commands in cli.COMMANDS.values()
        for line in commands.values()
    )


def test_every_command_has_help(run):
    for name in itertools.chain(*cli.COMMANDS.values()):
        status, out, error = run(name, "--help")
        assert (status, error) == (0, "")
        assert re.search(f"Usage: .*tfk-transformer {name} ", out)


def test_setting_names_are_complete():
    from tfk_transformer.apps.cli import arguments
    from tfk_transformer.config.search_settings import SETTING_DTYPES

    assert sorted(arguments.SHOWN_SETTINGS) == sorted(set(SETTING_DTYPES) - {"beam_size"})


EXPORT_TO_MODELS = ["export", "{bundle}", "--out", "{tmp}/new", "--serving", "{tmp}/models"]
WITHOUT_TENSORFLOW = (
    "import runpy, sys; sys.modules['tensorflow'] = sys.modules['keras'] = None; "
    "runpy.run_module('tfk_transformer')"
)


EARLY_ERRORS = [
    (["translate", "{tmp}", "one"], "MODEL: .* a folder without any of these files"),
    (
        ["translate", "{bundle}", "--input", "{tmp}/none.txt"],
        "No such file or directory: '{tmp}/none.txt'",
    ),
    (["translate", "{bundle}", "one", "--setting", "top_p=2"], "top_p: "),
    (["classify", "{tmp}/none.onnx", "one"], "none.onnx, which does not exist"),
    (
        ["score", "{bundle}", "--source", "{tmp}/none", "--target", "{tmp}/none"],
        "--source: No such file or directory: '{tmp}/none'",
    ),
    (
        ["evaluate", "{bundle}", "--data", "letters:en-de"],
        "expected numbers:en-de, addition:2, files:SOURCE,TARGET",
    ),
    (
        ["evaluate", "{bundle}", "--data", "files:{tmp}/a,{tmp}/b"],
        "{tmp}/a: not found; {tmp}/b: not found",
    ),
    (["evaluate", "{tmp}/none", "--data", "numbers:en-de"], "MODEL: .* which does not exist"),
    (
        ["train", "--data", "letters:en-de", "--out", "{tmp}/new"],
        "expected numbers:en-de, addition:2, files:SOURCE,TARGET",
    ),
    (
        ["train", "--data", "files:{tmp}/a,{tmp}/b", "--out", "{tmp}/new"],
        "{tmp}/a: not found; {tmp}/b: not found",
    ),
    (
        [
            "train",
            "--data",
            "numbers:en-de",
            "--validation-data",
            "files:{tmp}/a,{tmp}/b",
            "--out",
            "{tmp}/new",
        ],
        "{tmp}/a: not found",
    ),
    (
        ["train", "--data", "numbers:en-de", "--out", "{tmp}"],
        "out: expected a new folder, got {tmp}, which exists",
    ),
    (
        ["export", "{tmp}", "--out", "{tmp}/new"],
        "bundle: expected a folder that `train` or `import` wrote, got {tmp}, which has no config",
    ),
    (
        ["export", "{tmp}/none", "--out", "{tmp}/new"],
        "bundle: .*, got {tmp}/none, which does not exist; check the path",
    ),
    (
        ["import", "{tmp}/none", "--out", "{tmp}/new"],
        "model: .*, got {tmp}/none, which does not exist; check the path",
    ),
    (
        ["import", "{tmp}", "--out", "{tmp}/new"],
        "folder: expected a model in Hugging Face's layout, got {tmp} without config.json",
    ),
    (
        ["export", "{bundle}", "--out", "{tmp}/new", "--format", "tflite"],
        "formats: expected some of saved_model, onnx, .* got tflite",
    ),
    (
        ["export", "{bundle}", "--out", "{tmp}"],
        "out: expected a new folder, got {tmp}, which exists",
    ),
    (
        ["export", "{bundle}", "--out", "{tmp}/new", "--serving", "{tmp}/models"],
        "--name: expected a model name with --serving, got none",
    ),
    (
        ["export", "{bundle}", "--out", "{tmp}/new", "--name", "n", "--version", "2"],
        "--name, --version: expected --serving with these options, got none; add --serv",
    ),
    (
        [*EXPORT_TO_MODELS, "--name", "a/b"],
        "name: expected letters, digits, '_', '-' and '.', got 'a/b'",
    ),
    (
        [*EXPORT_TO_MODELS, "--name", "n", "--version", "0"],
        "version: expected a new number of at least 1, got 0; {tmp}/models/n has none",
    ),
    (
        [*EXPORT_TO_MODELS, "--name", "n", "-f", "onnx", "-f", "onnx_int8"],
        ("formats: expected saved_model with --serving, got onnx, onnx_int8; add --format saved_"),
    ),
    (
        [*EXPORT_TO_MODELS, "--name", "n", "--shortlist", "numbers:en-de"],
        "--serving: expected an export of a SavedModel, which cannot have a shortlist, got",
    ),
    (
        [*EXPORT_TO_MODELS[:-1], "{bundle}/config.json", "--name", "n"],
        "models: expected a path inside a folder, got .*n, but .*config.json is a file; choose",
    ),
    (["inspect", "{tmp}/none"], "FILE: expected a bundle .* which does not exist"),
    (
        ["translate", "{bundle}", "one"],
        "tensorflow is not installed. Install it with: " + re.escape(install_line("tensorflow")),
    ),
    (
        ["export", "{bundle}", "--out", "{tmp}/new"],
        "tensorflow is not installed. Install it with: .*tensorflow",
    ),
]
# Runs each command of standard input, a line of JSON, and prints its exit status and output.
WITHOUT_TENSORFLOW_EACH = """
import contextlib, io, json, sys
sys.modules["tensorflow"] = sys.modules["keras"] = None
from tfk_transformer.apps.cli.main import main
for line in sys.stdin:
    sys.argv = ["tfk-transformer", *json.loads(line)]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        with contextlib.redirect_stderr(io.StringIO()) as error:
            try:
                main()
                status = 0
            except SystemExit as end:
                status = end.code
    print(json.dumps([status, out.getvalue(), error.getvalue()]))
"""


@pytest.fixture(scope="module")
def early_errors(tmp_path_factory):
    """A folder, and the exit status and output of each of these commands, which are run in one
    process that has no TensorFlow.
    """
    folder = tmp_path_factory.mktemp("early_errors")
    names = {"tmp": folder, "bundle": Path(__file__).parents[1] / "saved_files" / "bundle"}
    commands = [[text.format(**names) for text in arguments] for arguments, _ in EARLY_ERRORS]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW_EACH],
        input="".join(f"{json.dumps(command)}\n" for command in commands),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("index", "message"), [(index, message) for index, (_, message) in enumerate(EARLY_ERRORS)]
)
def test_errors_precede_tensorflow(early_errors, index, message):
    folder, results = early_errors
    status, out, error = results[index]
    assert (status, out) == (1, "")
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert re.search(message.replace("{tmp}", re.escape(str(folder))), error), error
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("probes", "text"), [(["seven"], "seven"), ([], "'your text'")])
def test_run_line_has_a_text(tmp_path, probes, text):
    file = tmp_path / "translate.onnx"
    file.touch()
    assert _run_line(tmp_path, {}, probes) == f"tfk-transformer translate {file} {text}"


def test_onnx_needs_no_tensorflow(exported):
    """In a process of its own, without TensorFlow's notes on the terminal."""
    command = [
        sys.executable,
        "-c",
        WITHOUT_TENSORFLOW,
        "translate",
        exported / "translate.onnx",
        "forty-two",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "zweiundvierzig\n", "")


@pytest.mark.long  # starts TensorFlow; a script does so in tests/test_runtime_environment.py
def test_tensorflow_notes_are_hidden(bundle):
    done = subprocess.run(
        [sys.executable, "-m", "tfk_transformer", "translate", bundle, "seven"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "sieben\n", "")
