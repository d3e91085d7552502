"""The process that the library runs in: processors, optional packages, and how TensorFlow
starts.
"""

import contextlib
import gc
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# The extra of pyproject.toml that installs a package, by the name that the package is imported
# under.
EXTRAS = {
    "apache_beam": "beam",
    "backports": "zstd",
    "ctranslate2": "ctranslate2",
    "fastapi": "serve",
    "httptools": "serve",
    "huggingface_hub": "import",
    "importlib_resources": "tfds",
    "jax": "jax",
    "keras": "tensorflow",
    "linkify_it": "documents",
    "markdown_it": "documents",
    "matplotlib": "plots",
    "mdit_py_plugins": "documents",
    "num2words": "evaluate",
    "onnx": "inspect",
    "onnx_ir": "inspect",
    "onnxscript": "tensorflow",
    "prometheus_client": "serve",
    "sacrebleu": "evaluate",
    "safetensors": "tensorflow",
    "sentencex": "documents",
    "tensorboard": "tensorflow",
    "tensorflow": "tensorflow",
    "tensorflow_datasets": "tfds",
    "tensorflow_serving": "tensorflow",
    "tensorflow_text": "tensorflow",
    "tf2onnx": "dev",
    "tomlkit": "tensorflow",
    "uvicorn": "serve",
    "yaml": "import",
}
# The start-up notes of TensorFlow that `without_start_up_notes` drops: a header, information (I0000
# …), and its continuation.
START_UP_NOTE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog"
    rb"|I\d{4} |To enable the following instructions:"
)


def usable_processors(root: Path = Path("/")) -> int:
    """Return the number of processors that this process may use.

    Both limits count: the processors that the process may run on (its affinity, which job
    schedulers set), and the CPU quota of its control groups (which containers set), rounded up.

    Args:
        root: the folder that holds `proc` and `sys`.
    """
    allowed = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return max(1, min([allowed, *map(math.ceil, _cpu_quotas(root))]))


def _cpu_quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quotas, in processors, of this process's control groups and of all groups
    around them.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        read: Callable[[Path], float | None] = _quota_v1 if controllers else _quota_v2
        if not controllers or "cpu" in controllers.split(","):
            top = root / "sys/fs/cgroup" / controllers
            group = top / path.lstrip("/")
            # Inside a container the path may be the host's, which is not there; the quota then
            # stands at the top.
            for folder in (
                group,
                *(parent for parent in group.parents if parent.is_relative_to(top)),
            ):
                if (quota := read(folder)) is not None:
                    yield quota


def _quota_v2(folder: Path) -> float | None:
    """Read `cpu.max` ("50000 100000": microseconds, period; "max 100000": no limit)."""
    match _read(folder / "cpu.max").split():
        case [quota, period] if quota.isdecimal():
            return int(quota) / int(period)
    return None


def _quota_v1(folder: Path) -> float | None:
    """Read `cpu.cfs_quota_us` (-1: no limit) and `cpu.cfs_period_us`."""
    quota, period = (_read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


def available_memory(root: Path = Path("/")) -> float:
    """Return the bytes of memory that this process can still take; infinity where the system does
    not tell.

    The limits of the machine, of the control groups (which containers set), and of the process
    (`ulimit -v`) count.

    Args:
        root: the folder that holds `proc` and `sys`.
    """
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    free = [float(found[1]) * 1024] if found else []
    for name, limit, used in (
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        numbers = [_read(root / "sys/fs/cgroup" / name / file).strip() for file in (limit, used)]
        if all(number.isdecimal() for number in numbers):
            free.append(float(numbers[0]) - float(numbers[1]))
    return min([*free, _address_space()], default=math.inf)


def instructions(root: Path = Path("/")) -> set[str]:
    """Return the instruction sets of the processors as Linux names them; nothing on other systems.

    Args:
        root: the folder that holds `proc`.
    """
    found = re.search(r"(?m)^(?:flags|Features)\s*: (.+)$", _read(root / "proc/cpuinfo"))
    return set(found[1].split()) if found else set()


def _address_space() -> float:
    """Return the bytes that this process may still map."""
    try:
        import resource
    except ImportError:  # not on Windows
        return math.inf
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return math.inf
    pages = _read(Path("/proc/self/statm")).split()
    return limit - (int(pages[0]) * resource.getpagesize() if pages else 0)


def _read(file: Path) -> str:
    """Return the text of a file, or an empty string if it cannot be read."""
    try:
        return file.read_text()
    except OSError:
        return ""


def with_install_line(error: ImportError) -> ImportError:
    """Return an ImportError that names the `pip install` line for a missing optional package, or
    else the error itself.
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    return ImportError(
        (
            f"{package} is not installed. Install it with: pip install "
            f'"tfk-transformer[{EXTRAS[package]}]"'
        ),
        name=error.name,
    )


def load_backend() -> None:
    """Import TensorFlow for training, without its start-up notes, unless the environment selects
    another Keras backend.
    """
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        use_onednn()
        load_tensorflow()


def use_onednn() -> None:
    """Let TensorFlow multiply with oneDNN on every x86-64 processor, if it is not loaded yet.

    By itself it does so only with AVX-512 VNNI. What the environment already decides stays as it
    is.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def load_tensorflow() -> None:
    """Import TensorFlow and TensorFlow Text for a program whose output people read: without notes
    and with its log off.

    Raises:
        ImportError: if one of them is not installed, with the line that installs it.
    """
    first = "tensorflow" not in sys.modules
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        with without_start_up_notes(), _without_jax():
            import tensorflow  # noqa: F401
            import tensorflow_text  # noqa: F401
    except ImportError as error:
        raise with_install_line(error) from error
    if first:
        # Tracing makes many objects, and each full collection of garbage would visit those of the
        # packages.
        gc.freeze()


@contextlib.contextmanager
def _without_jax() -> Iterator[None]:
    """Hide JAX in this block, if it is not loaded yet.

    TensorFlow imports it, where it is installed, for `TFLiteConverter.experimental_from_jax`, which
    takes up to 0.8 s.
    """
    if "jax" in sys.modules:
        yield
        return
    sys.modules["jax"] = None  # type: ignore[assignment]  # the import system then raises ImportError
    try:
        yield
    finally:
        del sys.modules["jax"]


def keep_tensor_memory() -> None:
    """Let TensorFlow keep the memory of tensors for the tensors that follow, if it has not run its
    first operation yet.

    Otherwise, on processors for which its oneDNN operations are off (x86-64 without AVX-512 VNNI),
    it takes every large tensor from the system and gives it back, and mapping those pages takes up
    to a third of the time of training. What the environment already decides stays as it is.
    """
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    if hasattr(os, "sysconf"):  # not on Windows
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        # TensorFlow's own limit is 64 GB, whatever the machine has.
        os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(total // 2**20))


_tensorflow_process: int | None = None  # the process in which this library first ran TensorFlow


def check_process() -> None:
    """Refuse to run TensorFlow in a fork of the process that ran it first: TensorFlow's threads are
    not there, and it would wait for ever.

    Raises:
        RuntimeError: with what to do instead.
    """
    global _tensorflow_process
    if _tensorflow_process is None:
        _tensorflow_process = os.getpid()
    elif _tensorflow_process != os.getpid():
        raise RuntimeError(
            f"TensorFlow already ran in process {_tensorflow_process}, and this process "
            f"{os.getpid()} is a fork of it, in which TensorFlow "
            "would wait for ever. Load the model after the fork in each process, start processes "
            "by 'spawn', or use OnnxTranslator, which "
            "works after a fork."
        )


@contextlib.contextmanager
def without_start_up_notes() -> Iterator[None]:
    """Drop the notes that TensorFlow writes to standard error while it is imported; everything else
    appears at the end.

    TensorFlow writes these notes before its log starts, so that no log level silences them. Nothing
    is dropped in a process that sets TF_CPP_MIN_LOG_LEVEL to 0, or that has no standard error.
    """
    import tempfile  # only here: it takes longer to import than the rest of this module

    if "tensorflow" in sys.modules or not _is_open(2):
        yield
        return
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as notes:
            sys.stderr.flush()
            os.dup2(notes.fileno(), 2)
            try:
                yield
            finally:
                sys.stderr.flush()
                os.dup2(kept, 2)
                notes.seek(0)
                shown = os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0"
                os.write(
                    2, b"".join(line for line in notes if shown or not START_UP_NOTE.match(line))
                )
    finally:
        os.close(kept)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
