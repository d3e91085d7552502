"""What users see at a terminal: the prompt of `translate`, and progress on standard error."""

import json
import re
from pathlib import Path

import pytest
from number_files import PARAGRAPH, TRANSLATED_PARAGRAPH
from terminal import Terminal

SIZES = {"model_dim": 8, "ff_dim": 8, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}


def test_prompt_answers_each_sentence(exported):
    with_prompt = Terminal("translate", exported / "translate.onnx")
    assert ":set NAME=VALUE changes a search setting" in with_prompt.until("> ")
    with_prompt.type("forty-two\n")
    assert with_prompt.until("\r\n> ").splitlines()[1] == "zweiundvierzig"
    with_prompt.type(f"{PARAGRAPH}\n")
    assert with_prompt.until("\r\n> ").splitlines()[1] == TRANSLATED_PARAGRAPH.strip()
    with_prompt.type(":set n_best=2\n")
    with_prompt.until("\r\n> ")
    with_prompt.type("seven\n")
    first, second = with_prompt.until("\r\n> ").splitlines()[1:3]
    assert re.fullmatch(r" +-\d+\.\d{4}  sieben", first)
    assert re.match(r" +-\d+\.\d{4}  ", second)
    with_prompt.type(":set beam=9\n")
    assert "error: settings: unknown name 'beam'. Did you mean 'beam_size'?" in with_prompt.until(
        "\r\n> "
    )
    with_prompt.type(":sett\n")
    assert "got ':sett'. Did you mean ':set'?" in with_prompt.until("\r\n> ")
    # Three lines up in the history: "seven", with the settings of now.
    with_prompt.type("\x1b[A" * 3 + "\n")
    assert "sieben" in with_prompt.until("\r\n> ")
    with_prompt.type("\x04")
    assert with_prompt.end() == (0, "\r\n")


def test_stream_prompt_ends_on_quit(exported):
    with_prompt = Terminal("translate", exported / "translate.onnx", "--stream")
    with_prompt.until("> ")
    with_prompt.type("forty-two\n")
    assert with_prompt.until("\r\n> ").splitlines()[1] == "zweiundvierzig"
    with_prompt.type(":quit\n")
    assert with_prompt.end()[0] == 0


def test_evaluate_file_has_result_only(exported, recipe, tmp_path):
    arguments = ["evaluate", exported / "translate.onnx", "--data", recipe.data, "--json"]
    shown = Terminal(*arguments, "--verbose", output=tmp_path / "figures.json")
    status, seen = shown.end()
    assert status == 0
    assert re.search(r"s  open .*translate\.onnx", seen)
    assert re.search(r"s  translate 200 sentences", seen)
    assert "200 of 200" in seen
    assert json.loads((tmp_path / "figures.json").read_text())["sentences"] == 200
    quiet = Terminal(*arguments, "--quiet", output=tmp_path / "again.json")
    assert quiet.end() == (0, "")


def test_progress_bar_counts_lines(exported, tmp_path):
    """Also within the first chunk of lines, which are written together."""
    (tmp_path / "in.txt").write_text("seven\nforty-two\n" * 100)
    arguments = [
        "score",
        exported / "score.onnx",
        "--source",
        tmp_path / "in.txt",
        "--target",
        tmp_path / "in.txt",
    ]
    status, seen = Terminal(*arguments, "--output", tmp_path / "scores").end()
    assert status == 0
    assert "200/200 lines" in " ".join(seen.split())
    assert len((tmp_path / "scores").read_text().splitlines()) == 200


def short_recipe(recipe):
    return recipe.replace(epochs=1, options=SIZES, validation_data=None).to_toml()


# A training in a process of its own.
@pytest.mark.long
def test_quiet_training_is_silent(recipe, tmp_path):
    (tmp_path / "mine.toml").write_text(short_recipe(recipe))
    assert Terminal(
        "train", "--no-towers", tmp_path / "mine.toml", "--out", tmp_path / "b", "--quiet"
    ).end() == (0, "")


@pytest.mark.long  # a training
def test_json_training_prints_epochs(recipe, tmp_path):
    (tmp_path / "mine.toml").write_text(short_recipe(recipe))
    shown = Terminal(
        "train",
        "--no-towers",
        tmp_path / "mine.toml",
        "--out",
        tmp_path / "c",
        "--json",
        output=tmp_path / "metrics.json",
    )
    assert "epoch 1/1: loss" in shown.end()[1]
    assert "━" not in shown.seen
    assert json.loads((tmp_path / "metrics.json").read_text())["epoch"] == 1


@pytest.mark.long  # a search with two models
def test_ensemble_shows_its_steps(tmp_path):
    bundle = Path(__file__).parents[1] / "saved_files" / "bundle"
    status, seen = Terminal(
        "ensemble", bundle, bundle, "--out", tmp_path / "both", "--verbose"
    ).end()
    assert status == 0
    assert all(
        re.search(rf"s  {step}", seen) for step in ("load TensorFlow", "open .*", "write .*both")
    )
