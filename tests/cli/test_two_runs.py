"""Outputs that another run is writing, or that exist: refused before any work."""

import pytest
from typer.testing import CliRunner

from tfk_transformer.apps.cli.main import app
from tfk_transformer.atomic_write import open_locked
from tfk_transformer.export.exporting import export
from tfk_transformer.export.formats import check_out
from tfk_transformer.training.checkpoints import check_work_folder
from tfk_transformer.training.distillation import distill
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.trainer import train

DATA = ("--data", "numbers:en-de", "--preset", "tiny")
INPUT = "--input=model/notes.txt"
RECIPE = Recipe(data="numbers:en-de", preset="tiny")
MESSAGE = "expected a path that no other run is writing, got {}, which process 4711 is writing; "


@pytest.fixture
def busy(tmp_path):
    """A path that another process writes."""
    file, locked = open_locked(tmp_path / ".busy.lock")
    if not locked:
        pytest.skip("the system or the disk has no locks")
    with file:
        file.write(b"4711")
        file.flush()
        yield tmp_path / "busy"


@pytest.mark.parametrize(
    "arguments",
    [
        ("new",),
        ("train", *DATA, "--out"),
        ("train", *DATA, "--resume", "--out"),
        ("distill", "model", *DATA, "--out"),
        ("ensemble", "model", "model", "--out"),
        ("import", "Helsinki-NLP/opus-mt-de-en", "--out"),
        ("trim", "model", "--keep-text", "model/config.json", "--out"),
        ("export", "model", "--out"),
        ("translate", "model", INPUT, "--output"),
        ("translate", "model", INPUT, "--resume", "--output"),
        ("translate", "model", INPUT, "--force", "--output"),
        ("translate-document", "model", "model/notes.txt", "--output"),
        ("translate-document", "model", "model/notes.txt", "model/config.json", "--output"),
        ("classify", "model", INPUT, "--output"),
        ("score", "model", "--source=model/notes.txt", "--target=model/notes.txt", "--output"),
        ("evaluate", "model", *DATA[:2], "--output"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_second_command_is_refused(run, busy, monkeypatch, arguments):
    (busy.parent / "model").mkdir()
    for name in ("config.json", "source.model", "notes.txt"):
        (busy.parent / "model" / name).write_text("{}")
    monkeypatch.chdir(busy.parent)
    status, out, error = run(*arguments, busy)
    assert (status, out) == (1, "")
    assert MESSAGE.format(busy) in error
    assert sorted(path.name for path in busy.parent.iterdir()) == [".busy.lock", "model"]


@pytest.mark.parametrize(
    "write",
    [
        lambda path: train(RECIPE, path, say=lambda line: None),
        lambda path: train(RECIPE, path.with_name("new"), cache=path, say=lambda line: None),
        lambda path: distill([object()], RECIPE, path),
        lambda path: export(None, path),
    ],
    ids=["train", "cache", "distill", "export"],
)
def test_second_function_call_is_refused(busy, write):
    with pytest.raises(ValueError, match=MESSAGE.format(busy)):
        write(busy)
    assert [path.name for path in busy.parent.iterdir()] == [".busy.lock"]


def draw(path):
    raise CliRunner().invoke(app, ["plot", "positions", "--out", str(path)]).exception


@pytest.mark.parametrize(
    "check",
    [
        draw,
        lambda path: check_out(path, "filepath", "file"),
        lambda path: check_work_folder(RECIPE, path, resume=True),
    ],
    ids=["plot", "export", "train"],
)
def test_dangling_link_is_not_replaced(tmp_path, check):
    link = tmp_path / "picture.svg"
    link.symlink_to("nowhere")
    with pytest.raises(ValueError, match=f"got {link}, which exists"):
        check(link)
