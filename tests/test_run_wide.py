"""Files that are made once for all processes of a run."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import run_wide
from run_wide import changed, made_once


@pytest.fixture(autouse=True)
def other_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(run_wide, "folder", tmp_path / "run")
    monkeypatch.setattr(run_wide, "_made", {})


def write_folder(path):
    path.mkdir()
    time.sleep(0.2)
    (path / "first.txt").write_text("1")


def test_only_the_first_maker_runs():
    makers = []

    def make(number):
        return made_once("some/folder", lambda path: [makers.append(number), write_folder(path)])

    with ThreadPoolExecutor(3) as threads:
        paths = set(threads.map(make, range(3)))
    assert paths == {run_wide.folder / "some/folder"}
    assert len(makers) == 1
    assert (paths.pop() / "first.txt").read_text() == "1"


def test_failed_maker_leaves_nothing():
    def fail(path):
        path.mkdir()
        raise ValueError("no disk")

    with pytest.raises(ValueError, match="no disk"):
        made_once("folder", fail)
    assert not (run_wide.folder / "folder").exists()
    assert (made_once("folder", write_folder) / "first.txt").exists()


def test_changed_files_are_named():
    path = made_once("folder", write_folder)
    made_once("file.txt", lambda path: path.write_text("text"))
    assert changed() == []
    (path / "new.txt").touch()
    assert changed() == ["folder"]
