"""The environment of the process: processors, memory, optional packages, TensorFlow's start."""

import contextlib
import gc
import importlib
import importlib.util
import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

# By extra of pyproject.toml: the import names of the packages that it installs.
_PACKAGES = {
    "beam": "apache_beam",
    "ctranslate2": "ctranslate2",
    "data": "datasets polib pyarrow",
    "documents": "html5lib linkify_it lxml markdown_it mdit_py_plugins",
    "evaluate": "num2words sacrebleu",
    "grpc": "grpc",
    "import": "huggingface_hub yaml",
    "inspect": "onnx onnx_ir",
    "jax": "jax",
    "own-layers": "tf2onnx",
    "plots": "matplotlib",
    "serve": "httptools prometheus_client starlette uvicorn",
    "tensorflow": (
        "keras onnxscript safetensors tensorboard tensorflow tensorflow_serving tensorflow_text "
        "tomlkit"
    ),
    "tfds": "importlib_resources tensorflow_datasets",
    "zstd": "backports",
}
EXTRAS = {package: extra for extra, names in _PACKAGES.items() for package in names.split()}

# TensorFlow's start-up notes: a header, information (I0000 …), and its continuation; before version
# 2.20 also errors without consequences.
START_UP_NOTE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog"
    rb"|I\d{4} |To enable the following instructions:"
    rb"|E\d{4} .*Unable to register cu\w+ factory"
)


def usable_processors(root: Path = Path("/")) -> int:
    """Return the number of processors that this process may use.

    Job schedulers set its affinity, and containers set the CPU quota of its control groups, which
    is rounded up. `root` is the folder that holds `proc` and `sys`.
    """
    allowed = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    return max(1, min([allowed, *map(math.ceil, _cpu_quotas(root))]))


def _cpu_quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quotas, in processors, of this process's control groups and their parents."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            top = root / "sys/fs/cgroup" / controllers
            group = top / path.lstrip("/")
            # Inside a container, the path may be the host's path, which does not exist there. The
            # quota is then in the top folder.
            for folder in (group, *group.parents):
                if folder.is_relative_to(top) and (quota := _cpu_quota(folder)) is not None:
                    yield quota


def _cpu_quota(folder: Path) -> float | None:
    """Return the CPU quota of a control group in processors; None without a limit."""
    # Microseconds and their period. Without a limit, version 2 has "max", and version 1 has -1.
    numbers = _read(folder / "cpu.max").split() or [
        _read(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
    ]
    match numbers:
        case [quota, period] if quota.isdecimal() and period.isdecimal():
            return int(quota) / int(period)
    return None


def available_memory(root: Path = Path("/")) -> float:
    """Return the bytes of memory that this process can still allocate, or infinity if unknown."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _read(root / "proc/meminfo"), re.MULTILINE)
    free = [float(match[1]) * 1024] if match else []
    for name, limit, used in (  # versions 2 and 1 of control groups, which containers set
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        numbers = [_read(root / "sys/fs/cgroup" / name / file).strip() for file in (limit, used)]
        if all(number.isdecimal() for number in numbers):
            free.append(float(numbers[0]) - float(numbers[1]))
    return min([*free, _address_space()], default=math.inf)


def instructions(root: Path = Path("/")) -> set[str]:
    """Return the instruction sets of the processors with their Linux names; empty elsewhere."""
    match = re.search(r"(?m)^(?:flags|Features)\s*: (.+)$", _read(root / "proc/cpuinfo"))
    return set(match[1].split()) if match else set()


def _address_space() -> float:
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
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def with_install_line(error: ImportError) -> ImportError:
    """Return the error of a missing optional package with the command that installs it, or the
    error.
    """
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    line = install_line(EXTRAS[package])
    return ImportError(f"{package} is not installed. Install it with: {line}", name=error.name)


def install_line(extra: str) -> str:
    """Return the command that installs an extra from where this package came from: a clone, a
    repository, a file, or else the package index.
    """
    import json
    from importlib import metadata  # only for errors: it takes long to import

    files = (
        distribution.read_text("direct_url.json")  # PEP 610; no package of an index has it
        for distribution in metadata.distributions(name="tfk-transformer")
    )
    origin = json.loads(next(filter(None, files), "{}"))
    url = origin.get("url")
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    requirement = f"tfk-transformer[{extra}]" + (f" @ {url}" if url else "")
    if re.search(r"[/\\](?:archive|environments)-v\d+[/\\]", sys.prefix):
        # uvx runs a command in an environment of uv's cache, to which nothing can be added.
        return f'uvx --from "{requirement}" tfk-transformer …'
    if origin.get("dir_info", {}).get("editable"):
        return f'pip install --editable "{url}[{extra}]"'
    return f'pip install "{requirement}"'


def require(module: str) -> ModuleType:
    """Import a module of an optional package, such as "tensorflow_datasets"."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise with_install_line(error) from error


def load_backend() -> None:
    """Import TensorFlow for training, unless the environment selects another Keras backend."""
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        use_onednn()
        load_tensorflow()


def use_onednn() -> None:
    """Let TensorFlow use oneDNN on all x86-64 processors, not only with AVX-512 VNNI."""
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def has_tensorflow_text() -> bool:
    """Return whether TensorFlow Text is installed. It has no package for Windows."""
    return importlib.util.find_spec("tensorflow_text") is not None


def check_tensorflow_text() -> None:
    """Check that SavedModels can be written and read: TensorFlow Text must be installed."""
    if not has_tensorflow_text():
        raise ImportError(
            "a SavedModel needs tensorflow_text, which runs its tokenizers, and it is not "
            f"installed. Install it with: {install_line('tensorflow')} (on Windows, which has no "
            "tensorflow_text, only in WSL), or use ONNX files: export --format onnx"
        )


def load_tensorflow() -> None:
    """Import TensorFlow, and TensorFlow Text where it is installed, without notes and messages."""
    first = "tensorflow" not in sys.modules
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with without_start_up_notes(), _without_jax():
        require("tensorflow")
        if has_tensorflow_text():
            require("tensorflow_text")
    if first:
        # Else each garbage collection while tracing would also visit the objects of the packages.
        gc.freeze()


@contextlib.contextmanager
def _without_jax() -> Iterator[None]:
    """Hide JAX in this block, if it is not loaded yet."""
    if "jax" in sys.modules:
        yield
        return
    # TensorFlow would import it for `TFLiteConverter.experimental_from_jax`, which takes up to
    # 0.8 s, and has no option that skips this. The import system raises ImportError for a module
    # that is None; a finder in `sys.meta_path` would do the same with more code.
    sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["jax"]


def keep_tensor_memory() -> None:
    """Let TensorFlow reuse the memory of tensors, if it has not run its first operation yet.

    On processors without oneDNN operations (x86-64 without AVX-512 VNNI), TensorFlow otherwise
    maps the pages of each large tensor again, which takes up to a third of the training time.
    """
    os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
    if hasattr(os, "sysconf"):  # not on Windows
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        # TensorFlow's default limit is 64 GB on all machines.
        os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(total // 2**20))


def uses_xla() -> bool:
    """Return whether XLA should compile training: with JAX, and with TensorFlow on a GPU or TPU."""
    import keras

    if keras.backend.backend() != "tensorflow":
        return bool(keras.backend.backend() == "jax")
    import tensorflow as tf

    return any(device.device_type != "CPU" for device in tf.config.list_physical_devices())


_tensorflow_process: int | None = None  # the process in which this library first ran TensorFlow


def check_process() -> None:
    """Refuse to run TensorFlow in a fork of the process that ran it first, without its threads."""
    global _tensorflow_process
    if _tensorflow_process is None:
        _tensorflow_process = os.getpid()
    elif _tensorflow_process != os.getpid():
        raise RuntimeError(
            f"TensorFlow already ran in process {_tensorflow_process}, and this process "
            f"{os.getpid()} is a fork of it, in which TensorFlow would wait forever. Load the "
            "model after the fork in each process, start processes by 'spawn', or use "
            "OnnxTranslator, which works after a fork."
        )


@contextlib.contextmanager
def without_start_up_notes() -> Iterator[None]:
    """Drop the notes that TensorFlow writes to standard error before its log has a level.

    All other output appears at the end of the block. Nothing is dropped if TF_CPP_MIN_LOG_LEVEL is
    0, or if the process has no standard error.
    """
    import tempfile  # only here: it takes longer to import than the rest of this module

    stderr = None
    if "tensorflow" not in sys.modules:
        with contextlib.suppress(OSError):  # the process may have no standard error
            stderr = os.dup(2)
    if stderr is None:
        yield
        return
    try:
        with tempfile.TemporaryFile() as notes:
            sys.stderr.flush()
            os.dup2(notes.fileno(), 2)
            try:
                yield
            finally:
                sys.stderr.flush()
                os.dup2(stderr, 2)
                notes.seek(0)
                keep = os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0"
                os.write(
                    2, b"".join(line for line in notes if keep or not START_UP_NOTE.match(line))
                )
    finally:
        os.close(stderr)
