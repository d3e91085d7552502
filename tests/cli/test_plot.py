"""`plot`: the labels of each picture are read back from its SVG file, where matplotlib names every
text in a comment.
"""

import json
import re
import subprocess
import sys

import pytest


@pytest.fixture
def texts(run, tmp_path):
    """Run a command that draws a picture; gives the texts in it, and standard error."""

    def call(*arguments):
        status, out, error = run("plot", *arguments, "--out", tmp_path / "picture.svg", "--force")
        assert (status, out) == (0, ""), error
        return re.findall(
            r"<!-- (.*?) -->", (tmp_path / "picture.svg").read_text(encoding="utf-8")
        ), error

    return call


def test_attention_labels_both_sides(texts, exported):
    actual, note = texts("attention", exported / "translate.onnx", "forty-two")
    assert {
        "decoder to source: layer 2 of 2",
        "head 4",
        "source token",
        "token predicted",
        "attention weight",
    } <= set(actual)
    assert {"forty", "two", "und", "&lt;/s&gt;"} & set(actual)
    assert not any("▁" in text for text in actual)
    assert note == (
        "note: Exported files hold the attention to the source only; a bundle shows that of "
        "encoder and decoder, too.\n"
    )


def test_bundle_plots_self_attention(texts, bundle):
    actual, note = texts(
        "attention", bundle, "forty-two", "--translation", "zwei", "--kind", "decoder", "--head", -1
    )
    assert {"decoder, to the tokens before: layer 2 of 2", "head 4", "&lt;s&gt;"} <= set(actual)
    assert "head 1" not in actual
    assert note == ""


def test_attention_writes_html_page(run, exported, tmp_path):
    status, out, error = run(
        "plot",
        "attention",
        exported / "translate.onnx",
        "forty-two",
        "--out",
        tmp_path / "page.html",
    )
    assert (status, out) == (0, "")
    assert error.startswith("note: ")
    assert error.count("\n") == 1
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert (data["source"], data["translation"], len(data["kinds"])) == (
        "forty-two",
        "zweiundvierzig",
        1,
    )


def test_alignment_shows_words(texts, exported):
    actual, _ = texts("alignment", exported / "translate.onnx", "one hundred ninety-nine")
    assert [text.strip() for text in actual] == [
        "source",
        "translation",
        "one",
        "hundred",
        "ninety-nine",
        "einhundertneunundneunzig",
    ]


def test_training_shows_several_runs(texts, bundle, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    (tmp_path / "other" / "history.json").write_text(
        '{"loss": [3.0, 2.0], "val_bleu": [null, 5.0]}'
    )
    actual, _ = texts("training", bundle, tmp_path / "other")
    assert {
        "numbers, training",
        "other, training",
        "other",
        "loss (nats a token)",
        "BLEU of the validation split",
    } <= set(actual)


def test_strange_history_is_refused(run, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "history.json").write_text('{"loss": [3.0], "val_bleu": 5.0}')
    status, _, error = run("plot", "training", tmp_path, "--out", tmp_path / "a.svg")
    assert status == 1
    assert "history.json does not have a list of numbers for each" in error


def test_schedule_length_from_recipe(texts, run, tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        'data = "numbers:en-de"\nschedule = "cosine"\nwarmup_steps = 10\nepochs = 3\nepoch_steps '
        "= 100\n"
    )
    actual, _ = texts("schedule", recipe)
    assert {"mine", "training step", "learning rate", "300"} <= set(actual)
    recipe.write_text('data = "numbers:en-de"\nschedule = "cosine"\n')
    status, _, error = run("plot", "schedule", recipe, "--out", tmp_path / "b.svg")
    assert status == 1
    assert (
        "--steps: expected the number of training steps, got none; the schedule 'cosine' of "
        "mine depends on it"
    ) in error


def test_positions_and_model_plots(texts, bundle):
    assert {
        "sinusoidal positions",
        "dimension of the embedding",
        "position in the sequence",
        "value",
    } <= set(texts("positions", bundle)[0])
    actual, _ = texts("model", bundle)
    metrics = json.loads((bundle / "metrics.json").read_text())
    assert f"Transformer: {metrics['parameters']:,} parameters" in actual
    assert "encoder layers 1 to 2, each" in actual


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["attention", "{bundle}", "one", "--out", "{tmp}/x.jpg"],
            "--out: expected a file that ends in .png, .svg, .pdf, .html, got",
        ),
        (
            ["alignment", "{bundle}", "one", "--out", "{tmp}/x.html"],
            "--out: expected a file that ends in .png, .svg, .pdf, got",
        ),
        (
            ["positions", "--out", "{tmp}/there.png"],
            "--out: expected a new file, got .*, which exists; give another name, or --force",
        ),
        (["positions", "--out", "{tmp}/folder.png"], "--out: expected a file, got the folder"),
        (
            ["attention", "{bundle}", "one", "--out", "{tmp}/x.html", "--layer", "1"],
            "--out: expected a picture with --kind, --layer",
        ),
        (
            ["attention", "{tmp}/none", "one", "--out", "{tmp}/x.png"],
            "MODEL: .* which does not exist",
        ),
        (
            ["training", "{tmp}/folder.png", "--out", "{tmp}/x.png"],
            "bundle: expected a folder that `train` or `import` wrote",
        ),
        (
            ["schedule", "{tmp}/none.toml", "--out", "{tmp}/x.png"],
            "recipe: expected a TOML file, got",
        ),
    ],
)
def test_bad_input_leaves_no_files(run, bundle, tmp_path, arguments, message):
    (tmp_path / "there.png").write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    status, out, error = run(
        "plot", *(argument.format(bundle=bundle, tmp=tmp_path) for argument in arguments)
    )
    assert (status, out, error.count("\n")) == (1, "", 1)
    assert re.search(f"^error: {message}", error)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.png", "there.png"]


def test_a_missing_font_is_a_note(texts, exported):
    _, error = texts("alignment", exported / "translate.onnx", "forty-two \U00012f90")
    assert re.fullmatch(
        "note: fonts: expected an installed font with the characters '\U00012f90', .*\n", error
    )


def test_plot_help_has_light_imports():
    code = """
import sys
from tfk_transformer.apps.cli.main import main
sys.argv = ["tfk-transformer", "plot", "--help"]
try:
    main()
except SystemExit:
    heavy = {"numpy", "matplotlib", "keras", "tensorflow"}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "[]\n"
    assert all(
        name in done.stdout
        for name in ("attention", "alignment", "training", "schedule", "positions", "model")
    )
