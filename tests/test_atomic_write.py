import contextvars
import errno
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import pytest

from tfk_transformer import atomic_write as module
from tfk_transformer.atomic_write import atomic_write, lock, read_unchanged, replace_text


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


HELD = """
import sys
from tfk_transformer.atomic_write import atomic_write

with atomic_write(sys.argv[1]) as new:
    new.mkdir()
    (new / "a").write_text("ne")
    print("writing", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def writer(folder):
    """Another process that writes the folder until it is killed or its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, str(folder)],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "writing\n"
    yield process
    process.kill()
    process.communicate()


def test_second_writer_is_refused(tmp_path, folder, writer):
    before = tree(tmp_path)
    message = (
        f"out: expected a path that no other run is writing, got {folder}, which process "
        f"{writer.pid} is writing; wait until it ends, or choose another path."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"), atomic_write(folder):
        pass
    assert tree(tmp_path) == before
    writer.communicate("")
    assert tree(tmp_path) == {"folder": None, "folder/a": "ne"}


def test_killed_write_is_removed(tmp_path, folder, writer):
    (tmp_path / ".folder.of_a_user").mkdir()
    writer.kill()
    writer.wait()
    assert len(list(tmp_path.glob(".folder.*"))) == 3
    with atomic_write(folder) as new:
        new.mkdir()
    assert tree(tmp_path) == {".folder.of_a_user": None, "folder": None}


def test_other_thread_is_refused(folder):
    with lock(folder), lock(folder), atomic_write(folder) as new:
        new.mkdir()
        with pytest.raises(ValueError, match="got .*folder, which process"), lock(folder):
            # An empty context is the context of a new thread.
            contextvars.Context().run(lock(folder).__enter__)


def test_lock_waits_for_other_thread(folder):
    order = []

    def write_later():
        with lock(folder, waits=True):
            order.append("second")

    with futures.ThreadPoolExecutor(1) as thread:
        with lock(folder):
            waiting = thread.submit(write_later)
            with pytest.raises(futures.TimeoutError):
                waiting.result(timeout=0.1)
            order.append("first")
        waiting.result()
    assert order == ["first", "second"]


ON_A_MOUNT = """
mount --bind "$1/new" "$1/file" || exit 77
exec "$2" -c '
import sys
from tfk_transformer.atomic_write import atomic_write
with atomic_write(sys.argv[1]) as new:
    new.write_text("through the mount")
' "$1/file"
"""


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare, to mount a file")
def test_mounted_file_is_written_in_place(tmp_path, file):
    """A container may get a single file of the host, which cannot be renamed."""
    (tmp_path / "new").write_text("of the host")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", ON_A_MOUNT, "sh", str(tmp_path), sys.executable],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip("this system does not let users mount files")
    assert done.returncode == 0, done.stderr
    assert tree(tmp_path) == {"file": "old", "new": "through the mount"}


def test_lock_leaves_no_folders(tmp_path):
    with pytest.raises(RuntimeError), lock(tmp_path / "new" / "folder" / "file"):
        raise RuntimeError
    assert tree(tmp_path) == {}


def test_lock_follows_no_link(tmp_path, file):
    (tmp_path / ".folder.lock").symlink_to(file)
    with atomic_write(tmp_path / "folder") as new:
        new.mkdir()
    assert file.read_text() == "old"


def test_disk_without_locks_is_written(tmp_path, folder, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(file, operation):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / ".folder.12345678.tmp").mkdir()  # its process may be alive
    with atomic_write(folder) as new:
        new.mkdir()
    assert tree(tmp_path) == {".folder.12345678.tmp": None, "folder": None}


def test_folder_is_replaced_without_exchange(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_exchange", lambda first, second: False)
    with atomic_write(folder) as new:
        new.mkdir()
        (new / "a").write_text("new a")
    assert tree(tmp_path) == {"folder": None, "folder/a": "new a"}


@pytest.fixture
def replacing(folder):
    """A thread that replaces the folder 100 times, always with two files of the same text."""

    def replace():
        for number in range(100):
            with atomic_write(folder) as new:
                new.mkdir()
                for name in "ab":
                    (new / name).write_text(str(number))
            time.sleep(0.002)

    (folder / "b").write_text("old a")
    thread = threading.Thread(target=replace)
    thread.start()
    yield thread
    thread.join()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges names")
def test_replaced_folder_is_never_missing(folder, replacing):
    while replacing.is_alive():
        assert os.path.lexists(folder)


def test_folder_replaced_during_a_read_is_read_again(folder):
    reads = []

    def read():
        first = (folder / "a").read_text()
        if not reads:
            with atomic_write(folder) as new:
                new.mkdir()
                (new / "a").write_text("new a")
                (new / "b").write_text("new b")
        reads.append((first, (folder / "b").read_text()))
        return reads[-1]

    assert read_unchanged(folder, read) == ("new a", "new b")
    assert reads == [("old a", "new b"), ("new a", "new b")]


def test_folder_replaced_during_each_read_is_refused(file, monkeypatch):
    monkeypatch.setattr(module, "MOST_READS", 3)
    reads = []

    def read():
        reads.append(file.read_text())
        replace_text(file, f"{len(reads)}")

    message = (
        f"path: expected a folder that stays while it is read, got {file}, which was replaced "
        "during each of 3 reads; replace it less often."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_unchanged(file, read)
    assert reads == ["old", "1", "2"]


def test_reads_never_mix_two_folders(folder, replacing):
    def read():
        first = (folder / "a").read_text()
        time.sleep(0.0005)
        return first, (folder / "b").read_text()

    while replacing.is_alive():
        first, second = read_unchanged(folder, read)
        assert first == second


def test_error_of_unchanged_folder_is_raised(folder):
    calls = []

    def read():
        calls.append(1)
        raise ValueError("corrupt")

    with pytest.raises(ValueError, match="corrupt"):
        read_unchanged(folder, read)
    assert calls == [1]
