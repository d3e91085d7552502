"""Marian's .npz files: archives of NumPy arrays."""

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tfk_transformer.importing.hugging_face.model_folder import Arrays, check_float
from tfk_transformer.importing.marian_files.options import MAX_ARRAYS, OPTIONS, load_error

NPY = ".npy"  # of each array in an archive


@contextlib.contextmanager
def open_npz(path: Path) -> Iterator[Arrays]:
    """Open a NumPy archive, without unpickling. Shapes are read on opening, and arrays one by one.

    Raises:
        ValueError: if the file is broken.
    """
    with contextlib.ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(path))
            shapes = dict(_headers(archive))
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise load_error(path, error) from None

        def read(name: str) -> np.ndarray:
            try:
                with archive.open(f"{name}{NPY}") as file:
                    array = np.lib.format.read_array(file, allow_pickle=False)
            except (zipfile.BadZipFile, ValueError, KeyError, OSError, EOFError) as error:
                raise load_error(path, error) from None
            if name != OPTIONS:
                check_float(path, name, str(array.dtype))
            return array.astype("float32")

        yield Arrays(path, shapes, read)


def _headers(archive: zipfile.ZipFile) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and the shape of each array."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if (count := len(archive.namelist())) > MAX_ARRAYS:
        raise ValueError(f"expected at most {MAX_ARRAYS:,} arrays, got {count:,}")
    for name in archive.namelist():
        with archive.open(name) as file:
            version = np.lib.format.read_magic(file)
            if version not in readers:
                raise ValueError(
                    f"expected arrays of version 1.0 or 2.0, got {version} for '{name}'"
                )
            yield name.removesuffix(NPY), readers[version](file)[0]
