import subprocess
import sys
from pathlib import Path

import pytest

from tfk_transformer.atomic_write import atomic_write, replace_text


def tree(folder) -> dict:
    """Every file below a folder with its text, hidden ones included; folders as None."""
    return {
        str(p.relative_to(folder)): p.read_text() if p.is_file() else None
        for p in sorted(Path(folder).rglob("*"))
    }


@pytest.fixture
def file(tmp_path):
    (tmp_path / "file").write_text("old")
    return tmp_path / "file"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("old a")
    (tmp_path / "folder" / "b").write_text("old b")
    return tmp_path / "folder"


def test_file_appears_at_the_end(tmp_path):
    with atomic_write(tmp_path / "new" / "file") as new:
        new.write_text("new")
        assert new.name == "file"
        assert not (tmp_path / "new" / "file").exists()
    assert tree(tmp_path) == {"new": None, "new/file": "new"}


def test_folder_appears_at_the_end(tmp_path):
    with atomic_write(str(tmp_path / "folder")) as new:
        new.mkdir()
        (new / "a").write_text("new")
        assert not (tmp_path / "folder").exists()
    assert tree(tmp_path) == {"folder": None, "folder/a": "new"}


def test_file_is_replaced_at_the_end(tmp_path, file):
    with atomic_write(file) as new:
        new.write_text("new")
        assert file.read_text() == "old"
    assert tree(tmp_path) == {"file": "new"}


def test_folder_is_replaced_at_the_end(tmp_path, folder):
    with atomic_write(folder) as new:
        new.mkdir()
        (new / "a").write_text("new a")
        assert tree(folder) == {"a": "old a", "b": "old b"}
    assert tree(tmp_path) == {"folder": None, "folder/a": "new a"}


def test_folder_cannot_replace_a_file(tmp_path, file):
    with pytest.raises(NotADirectoryError), atomic_write(file) as new:
        new.mkdir()
    assert tree(tmp_path) == {"file": "old"}


@pytest.mark.parametrize("name", ["old", "new", "folder.old"])
def test_any_name_can_be_written(tmp_path, name):
    for text in ("first", "second"):
        with atomic_write(tmp_path / name) as new:
            new.mkdir()
            (new / "a").write_text(text)
    assert tree(tmp_path) == {name: None, f"{name}/a": "second"}


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_error_keeps_the_old_file(tmp_path, file, error):
    with pytest.raises(error, match="disk full"), atomic_write(file) as new:
        new.write_text("ne")
        raise error("disk full")
    assert tree(tmp_path) == {"file": "old"}


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_error_keeps_the_old_folder(tmp_path, folder, error):
    before = tree(tmp_path)
    with pytest.raises(error, match="disk full"), atomic_write(folder) as new:
        new.mkdir()
        (new / "a").write_text("ne")
        raise error("disk full")
    assert tree(tmp_path) == before


def test_error_leaves_no_new_folder(tmp_path):
    with pytest.raises(OSError, match="disk full"), atomic_write(tmp_path / "folder") as new:
        new.mkdir()
        raise OSError("disk full")
    assert tree(tmp_path) == {}


def test_empty_block_keeps_old_folder(tmp_path, folder):
    before = tree(tmp_path)
    with pytest.raises(FileNotFoundError), atomic_write(folder):
        pass
    assert tree(tmp_path) == before


KILLED = """
import os, sys
from tfk_transformer.atomic_write import atomic_write

with atomic_write(sys.argv[1]) as new:
    new.mkdir()
    (new / "a").write_text("ne")
    os._exit(9)
"""


def test_kill_keeps_the_old_folder(folder):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder)], cwd=Path(__file__).parents[1]
    )
    assert done.returncode == 9
    assert tree(folder) == {"a": "old a", "b": "old b"}


def test_replace_text_is_atomic(file):
    (file.parent / "file.new").write_text("of a killed process")
    replace_text(file, "neu\n")
    assert tree(file.parent) == {"file": "neu\n"}
    (file.parent / "file.new").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_text(file, "newer")
    assert file.read_text() == "neu\n"
