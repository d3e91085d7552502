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


def test_only_the_first_maker_runs():
    makers = []

    def write(path):
        makers.append(path)
        time.sleep(0.2)
        path.write_text("text")

    with ThreadPoolExecutor(3) as threads:
        paths = list(threads.map(lambda _: made_once("some/file", write), range(3)))
    assert paths == [run_wide.folder / "some/file"] * 3
    assert paths[0].read_text() == "text"
    assert len(makers) == 1


def test_failed_maker_leaves_nothing():
    with pytest.raises(ValueError, match="no disk"):
        made_once("folder", fail)
    assert not (run_wide.folder / "folder").exists()
    assert made_once("folder", lambda path: path.mkdir()).is_dir()


def fail(path):
    path.mkdir()
    raise ValueError("no disk")


def test_changed_files_are_named():
    path = made_once("folder", lambda path: path.mkdir())
    made_once("file.txt", lambda path: path.write_text("text"))
    assert changed() == []
    (path / "new.txt").touch()
    assert changed() == ["folder"]
