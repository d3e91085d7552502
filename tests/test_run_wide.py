"""Files that are made once for all processes of a run."""

import multiprocessing
import time

import pytest
import run_wide
from run_wide import changed, made_once


@pytest.fixture(autouse=True)
def other_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(run_wide, "folder", tmp_path / "run")


def slow_folder(path):
    """Write a folder in two steps."""
    path.mkdir()
    (path / "first.txt").write_text("1")
    time.sleep(0.2)
    with open(path / "makers.txt", "a") as file:
        file.write("one\n")


def ask(folder, found):
    """Ask as another process of the run does."""
    run_wide.folder = folder
    path = made_once("some/folder", slow_folder)
    found.put(sorted(file.name for file in path.iterdir()))


def test_processes_share_one_folder():
    context = multiprocessing.get_context("spawn")
    actual = context.Queue()
    processes = [context.Process(target=ask, args=(run_wide.folder, actual)) for _ in range(3)]
    for process in processes:
        process.start()
    assert [actual.get(timeout=60) for _ in processes] == [["first.txt", "makers.txt"]] * 3
    for process in processes:
        process.join()
    assert (run_wide.folder / "some/folder/makers.txt").read_text() == "one\n"


def test_failed_maker_leaves_nothing():
    def fail(path):
        path.mkdir()
        (path / "half.txt").write_text("half")
        raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        made_once("folder", fail)
    assert not (run_wide.folder / "folder").exists()
    path = made_once("folder", slow_folder)
    assert sorted(file.name for file in path.iterdir()) == ["first.txt", "makers.txt"]


@pytest.mark.parametrize("change", ["write", "add", "remove"])
def test_changed_files_are_named(change):
    path = made_once("folder", slow_folder)
    file = made_once("file.txt", lambda path: path.write_text("text"))
    assert file.read_text() == "text"
    assert changed() == []
    if change == "write":
        (path / "first.txt").write_text("2")
    elif change == "add":
        (path / "new.txt").touch()
    else:
        (path / "first.txt").unlink()
    assert changed() == ["folder"]
