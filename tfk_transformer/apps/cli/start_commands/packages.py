"""The installed packages: versions, extras, and whether the parts with compiled code load."""

import importlib.metadata
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import PathFinder

from tfk_transformer.constants import __version__

SHOWN_PACKAGES = (
    *("numpy", "onnxruntime", "onnxruntime-extensions", "sentencepiece", "pydantic", "typer"),
    *("rich", "keras", "tensorflow", "tensorflow-text", "onnx", "onnxscript", "onnx-ir"),
    *("tf2onnx", "jax", "torch", "ctranslate2"),
)
# Extras for developers of this repository, and "cuda", which works if TensorFlow lists a GPU.
HIDDEN_EXTRAS = {"bench", "dev", "docs", "peers", "cuda"}
LOAD_SECONDS = 120  # time limit for loading a part

# For each part: the required package, and a program that loads the part and prints its devices.
PACKAGE_PARTS: Mapping[str, tuple[str, str]] = {
    "onnxruntime": (
        "onnxruntime",
        "import onnxruntime as o; print(', '.join(o.get_available_providers()))",
    ),
    "text operators of onnxruntime-extensions": (
        "onnxruntime_extensions",
        "import onnxruntime as o; from tfk_transformer.export.runtime.sessions import "
        "text_operators_library; "
        "o.SessionOptions().register_custom_ops_library(text_operators_library()); print('yes')",
    ),
    "TensorFlow": (
        "tensorflow",
        "import tensorflow as t; print(', '.join(d.name.removeprefix('/physical_device:') for d in "
        "t.config.list_physical_devices()))",
    ),
    "TensorFlow Text, for SavedModels": (
        "tensorflow_text",
        "import tensorflow, tensorflow_text as x; x.SentencepieceTokenizer; print('yes')",
    ),
    "JAX": ("jax", "import jax; print(', '.join(map(str, jax.devices())))"),
}


def versions() -> dict[str, str]:
    """Return the versions of this package, of Python and of the installed SHOWN_PACKAGES."""
    python = (
        f"{platform.python_version()} ({platform.python_implementation()}, "
        f"{platform.python_compiler()})"
    )
    result = {"tfk-transformer": __version__, "python": python}
    return result | {name: version for name in SHOWN_PACKAGES if (version := _version(name))}


def extras() -> dict[str, str]:
    """Return "installed" or the missing packages of each extra of this package."""
    needed: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("tfk-transformer") or []:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if (
            name
            and extra
            and name[0] != "tfk-transformer"
            and extra[1] not in HIDDEN_EXTRAS
            and not _is_for_other_platform(line)
        ):
            needed.setdefault(extra[1], []).append(name[0])
    missing = {
        extra: [name for name in names if not _version(name)] for extra, names in needed.items()
    }
    return {
        extra: f"missing {', '.join(names)}" if names else "installed"
        for extra, names in sorted(missing.items())
    }


def _is_for_other_platform(requirement: str) -> bool:
    """Return whether a requirement applies only to older versions of Python or other systems."""
    older = re.search(r'python_version < "3\.(\d+)"', requirement)
    return bool(older and sys.version_info[1] >= int(older[1])) or (
        sys.platform == "win32" and 'sys_platform != "win32"' in requirement
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def load_parts() -> dict[str, str]:
    """Load each part in a separate process, so that a part that crashes is also reported.

    Returns:
        For each part, the output of its program, "not installed", or "fails: " with the reason.
    """
    with ThreadPoolExecutor(len(PACKAGE_PARTS)) as threads:
        results = threads.map(lambda part: _load(*part), PACKAGE_PARTS.values())
        return dict(zip(PACKAGE_PARTS, results, strict=True))


def _load(package: str, program: str) -> str:
    if PathFinder.find_spec(package) is None:
        return "not installed"
    try:
        process = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=LOAD_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"fails: no answer in {LOAD_SECONDS} seconds"
    if process.returncode < 0:
        return f"fails: ended by signal {-process.returncode}"
    if process.returncode:
        return f"fails: {(process.stderr.strip().splitlines() or ['no message'])[-1]}"
    return process.stdout.strip()
