"""The check that tests only read what is made once for all of them."""

from pathlib import Path

import run_wide
from run_wide import changed, made_once


def test_changed_files_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(run_wide, "folder", tmp_path)
    monkeypatch.setattr(run_wide, "_made", {})
    path = made_once("folder", Path.mkdir)
    made_once("file.txt", Path.touch)
    assert changed() == []
    (path / "new.txt").touch()
    assert changed() == ["folder"]
