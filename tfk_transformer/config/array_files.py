"""Read arrays that others wrote: zip archives, .npz, .npy, safetensors and PyTorch's pickles.

No reader trusts the sizes that a file states: what it would take in memory is compared with the
bytes of the file before it is read. The errors have no prefix: wrap the readers into
`one_line_error` of `small_files`.
"""

import contextlib
import io
import math
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tfk_transformer.config.words import shorten

if TYPE_CHECKING:
    import torch

Shape: TypeAlias = tuple[int, ...]

MAX_MEMBERS = 10_000  # of an archive or a file of arrays; 100 layers have 3,000 to 4,000
MAX_DIRECTORY_BYTES = 2**22  # of an archive; a member takes about 100
# Weights in float32 become at most a tenth smaller, and quantized ones at most a half.
MAX_COMPRESSION = 20
SMALL_BYTES = 2**22  # texts and zeros may become smaller than that
MAX_HEADER_BYTES = 2**24  # of about 100,000 arrays; the largest models have 10,000
NPY = ".npy"  # of each array in an archive
NUMBERS_AND_TEXTS = "biufU"  # the kinds of dtypes without Python objects and structures
STATE_DICTS = ("state_dict", "model_state_dict", "model")  # the tensors in a training checkpoint
_ENCRYPTED = 1  # a bit of a member's flags
_HEADERS = {  # by the version of the format
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class Header(NamedTuple):
    """The header of an array in NumPy's format."""

    dtype: np.dtype[Any]
    shape: Shape


def check_total(size: int, file_size: int) -> None:
    """Refuse a file whose content would have many times the size of the file."""
    if size > (allowed := MAX_COMPRESSION * file_size + SMALL_BYTES):
        raise ValueError(
            f"expected at most {allowed:,} bytes in a file of {file_size:,} bytes, got "
            f"{shorten(f'{size:,}')}"
        )


class _Directory(io.BufferedReader):
    """A file of which no more than a directory is read at once, until its directory was read."""

    is_open = False

    def read(self, size: int | None = -1, /) -> bytes:
        if not self.is_open and size is not None and size > MAX_DIRECTORY_BYTES:
            raise ValueError(f"expected at most {MAX_MEMBERS:,} files, got more")
        return super().read(size)


@contextlib.contextmanager
def open_archive(source: Path | bytes) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive, a file or its content, whose members must be stored or deflated.

    Python decompresses the other methods without a limit. Of a member, it reads as many bytes as
    the directory states, whose sum is checked here.
    """
    opened = io.BytesIO(source) if isinstance(source, bytes) else io.FileIO(source)
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    with _Directory(opened) as file, zipfile.ZipFile(file) as archive:
        file.is_open = True
        members = archive.infolist()
        if len(members) > MAX_MEMBERS:
            raise ValueError(f"expected at most {MAX_MEMBERS:,} files, got {len(members):,}")
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(
                    "expected files that are stored or deflated, got compression method "
                    f"{member.compress_type} of '{shorten(member.filename)}'"
                )
            if member.flag_bits & _ENCRYPTED:
                raise ValueError(
                    f"expected files without a password, got '{shorten(member.filename)}' with one"
                )
        check_total(sum(member.file_size for member in members), size)
        yield archive


def npz_headers(archive: zipfile.ZipFile) -> dict[str, Header]:
    """Return the headers of the arrays in an .npz archive by name."""
    headers = {}
    for member in archive.infolist():
        with archive.open(member) as file:
            name = member.filename.removesuffix(NPY)
            headers[name] = _read_header(file, member.file_size, name)
    return headers


def read_npz(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Return an array of an archive whose headers were read."""
    with archive.open(name + NPY) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def open_npy(path: Path) -> np.memmap:
    """Map the array in a .npy file into memory."""
    with path.open("rb") as file:
        _read_header(file, os.fstat(file.fileno()).st_size, path.name)
    return np.lib.format.open_memmap(path, mode="r")


def _read_header(file: IO[bytes], size: int, name: str) -> Header:
    """Return the header of an array that ends at byte `size`."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(
            f"expected arrays of version 1.0 or 2.0, got {version} for '{shorten(name)}'"
        )
    shape, _, dtype = _HEADERS[version](file)
    if dtype.kind not in NUMBERS_AND_TEXTS:
        raise ValueError(
            f"expected arrays of numbers, got {shorten(str(dtype))} for '{shorten(name)}'"
        )
    needed, left = math.prod(shape) * dtype.itemsize, size - file.tell()
    if needed > left or min(shape, default=0) < 0:
        raise ValueError(
            f"expected {left:,} bytes for '{shorten(name)}', got {shorten(str(dtype))} of shape "
            f"{shorten(str(shape))}"
        )
    return Header(dtype, shape)


def open_safetensors(path: Path) -> tuple[Any, dict[str, Any]]:
    """Open a safetensors file; return it, and by name the slices with the dtypes and shapes."""
    import safetensors

    with path.open("rb") as start:
        size = int.from_bytes(start.read(8), "little")
    if size > MAX_HEADER_BYTES:
        raise ValueError(
            f"expected a header of at most {MAX_HEADER_BYTES:,} bytes, got {size:,} bytes"
        )
    file = safetensors.safe_open(path, framework="np")
    # The file itself is not iterable.
    return file, {name: file.get_slice(name) for name in file.keys()}


def read_pickle(path: Path) -> "dict[str, torch.Tensor]":
    """Return the tensors by name in a file of `torch.save`, or in a checkpoint that contains them.

    PyTorch reads it with the unpickler that creates tensors and a few other values, and runs no
    code. The tensors may be parameters, and views of the same storage.
    """
    import torch

    with path.open("rb") as start:
        is_archive = start.read(4) == b"PK\3\4"  # as PyTorch decides
    if is_archive:
        with open_archive(path):
            pass  # which checks it
    tensors = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(tensors, dict):
        inner = (tensors.get(name) for name in STATE_DICTS)
        tensors = next((value for value in inner if isinstance(value, dict)), tensors)
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor)
        for name, tensor in tensors.items()
    ):
        raise ValueError("expected tensors by name; save model.state_dict()")
    plain = {name: tensor.detach() for name, tensor in tensors.items()}
    for name, tensor in plain.items():
        is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not is_plain or tensor.is_quantized or tensor.is_nested:
            raise ValueError(
                f"expected a plain tensor for '{shorten(name)}', got a sparse, quantized "
                f"or nested one, or one without values on {tensor.device}"
            )
    sizes = (tensor.numel() * tensor.element_size() for tensor in plain.values())
    check_total(sum(sizes), path.stat().st_size)
    return plain
