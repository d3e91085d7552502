"""Atomic writes of files and folders, locks of outputs, and reads of folders that are replaced."""

import contextlib
import ctypes
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, TypeAlias, TypeVar

T = TypeVar("T")
Identity: TypeAlias = tuple[int, ...]

TEMPORARY = ".tmp"  # suffix of the temporary folders of `atomic_write`
MOST_READS = 100  # of a folder that is replaced while it is read
AT_FDCWD = -100  # of Linux: a path is relative to the working directory
RENAME_EXCHANGE = 2

# The lock files that this context holds. Other threads are refused like other processes.
_held: ContextVar[frozenset[Path]] = ContextVar("held", default=frozenset())


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to, and move it to `path` if the block ends without an error.

    The block must create a file or a folder there. `path` is locked in the block, and its previous
    content stays unchanged if anything fails.
    """
    path = Path(path)
    with lock(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(path) as folder:
            new = folder / path.name
            yield new
            _replace(path, new, backup=folder / f"{path.name}.old")


@contextlib.contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder next to `path`, deleted after the block or by the next `lock`."""
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=TEMPORARY, dir=path.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def lock(
    path: str | os.PathLike[str], argument: str = "out", waits: bool = False
) -> Iterator[None]:
    """Refuse other processes that lock or write the same path in this block, which can be nested.

    With `waits`, wait for the other process instead of an error.

    The file `.NAME.lock` next to `path` is locked, and contains the process id. The system releases
    the lock when the process ends, however it ends. Temporary folders of killed processes are
    deleted. Missing parent folders of `path` are made, and removed if they stay empty. Nothing is
    locked on Windows, on disks without locks and in folders that are not writable.
    """
    path = Path(path)
    lock_file = path.parent.resolve() / f".{path.name}.lock"
    if lock_file in _held.get():
        yield
        return
    missing = [parent for parent in lock_file.parents if not parent.exists()]
    try:
        file = _open_lock_file(lock_file, waits)
    except BlockingIOError:
        owner = "another process"
        with contextlib.suppress(OSError, ValueError):
            owner = f"process {int(lock_file.read_bytes()[:20])}"
        raise ValueError(
            f"{argument}: expected a path that no other run is writing, got {path}, which {owner} "
            "is writing; wait until it ends, or choose another path."
        ) from None
    if file is None:
        yield
        return
    with file:
        held = _held.set(_held.get() | {lock_file})
        try:
            _remove_leftovers(path)
            yield
        finally:
            _held.reset(held)
            lock_file.unlink(missing_ok=True)
            for parent in missing:
                with contextlib.suppress(OSError):  # not empty
                    parent.rmdir()


def open_locked(path: Path, waits: bool = False) -> tuple[BinaryIO, bool]:
    """Open a file for appending, and lock it until it is closed. Return also whether it is locked.

    Raises:
        BlockingIOError: if another process has locked the file, unless this call waits for it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    while True:
        file = os.fdopen(os.open(path, flags, 0o666), "ab")
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            file.close()
            raise
        except (ImportError, OSError):  # Windows has no fcntl, and some disks have no locks
            return file, False
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file, True
        file.close()  # the former process has removed or renamed the file


def read_unchanged(path: str | os.PathLike[str], read: Callable[[], T]) -> T:
    """Call `read`, and again if the folder at a path, or of a file, was replaced meanwhile."""
    for _ in range(MOST_READS):
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # missing, or a folder on Windows
                # While it is open, no new file or folder gets its number. Opening a named pipe must
                # not wait for a writer.
                descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
                stack.callback(os.close, descriptor)
            before = path_identity(path)
            try:
                result = read()
            except Exception:
                if path_identity(path) == before:
                    raise
            else:
                if path_identity(path) == before:
                    return result
    raise ValueError(
        f"path: expected a folder that stays while it is read, got {path}, which was replaced "
        f"during each of {MOST_READS} reads; replace it less often."
    )


def path_identity(path: str | os.PathLike[str]) -> Identity:
    """Return numbers that change if a file or folder, or the folder that it is in, is replaced."""
    path = Path(path).absolute()
    try:
        status, parent = path.stat(), path.parent.stat()
    except OSError:  # missing
        return ()
    # The time is needed, because the number of a deleted file is used again.
    numbers = (status.st_dev, status.st_ino, status.st_mtime_ns)
    return (*numbers, parent.st_dev, parent.st_ino)


def check_new(path: str | os.PathLike[str], argument: str = "out", what: str = "folder") -> None:
    """Refuse a path that exists, also as a link to a missing folder or file."""
    if os.path.lexists(path):
        raise ValueError(
            f"{argument}: expected a new {what}, got {path}, which exists; choose another name or "
            "remove it."
        )


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a small file, so that a power cut leaves the old or the new file."""
    path = Path(path)
    # A killed process leaves only this file, and with `atomic_write` it would leave a folder.
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def replace_file(new: Path, path: Path) -> None:
    """Move a file to `path`; copy it if `path` is a mount point, as a file of Docker may be."""
    try:
        os.replace(new, path)
    except OSError as error:
        if error.errno != errno.EBUSY or not path.is_file():
            raise
        shutil.copyfile(new, path)  # not in one step, which a mount point does not allow
        new.unlink()


def _replace(path: Path, new: Path, backup: Path) -> None:
    """Move `new` to `path`, or exchange it with the folder there, so that `path` always exists."""
    try:
        if path.is_dir() and new.exists():
            if _exchange(path, new):
                return
            os.replace(path, backup)
        replace_file(new, path)
    except BaseException:
        if backup.exists() and not path.exists():
            os.replace(backup, path)
        raise


def _exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step; return False if the system or the disk cannot do it."""
    linux = sys.platform == "linux"
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None) if linux else None
    if renameat2 is None:
        return False
    old, new = os.fsencode(first), os.fsencode(second)
    return not renameat2(AT_FDCWD, old, AT_FDCWD, new, RENAME_EXCHANGE)


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary folders in which killed processes wrote `path`."""
    temporary = re.compile(rf"\.{re.escape(path.name)}\.\w{{8}}{re.escape(TEMPORARY)}")
    with contextlib.suppress(OSError):  # the folder can be written and not listed
        for name in filter(temporary.fullmatch, os.listdir(path.parent)):
            shutil.rmtree(path.parent / name, ignore_errors=True)


def _open_lock_file(path: Path, waits: bool) -> BinaryIO | None:
    """Return a locked file with the process id; None if the system or the folder forbids it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file, locked = open_locked(path, waits)
    except BlockingIOError:
        raise
    except OSError:  # the folder is not writable, which the write will report
        return None
    if not locked:
        file.close()
        path.unlink(missing_ok=True)
        return None
    with contextlib.suppress(OSError):  # the disk is full
        os.truncate(file.fileno(), 0)
        os.write(file.fileno(), str(os.getpid()).encode())
    return file
