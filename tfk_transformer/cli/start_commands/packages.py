"""The installed packages: versions, extras, and whether the parts with compiled code load, each
tried in a process of its own.
"""

import importlib.metadata
import importlib.util
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import tfk_transformer

SHOWN_PACKAGES = (
    *(
        "numpy",
        "onnxruntime",
        "onnxruntime-extensions",
        "sentencepiece",
        "pydantic",
        "typer",
        "rich",
    ),
    *(
        "keras",
        "tensorflow",
        "tensorflow-text",
        "onnx",
        "onnxscript",
        "onnx-ir",
        "tf2onnx",
        "jax",
        "torch",
        "ctranslate2",
    ),
)
NOT_SHOWN = {
    "bench",
    "dev",
    "docs",
    "peers",
    "cuda",
}  # extras of this repository's developers; and GPUs, which TensorFlow lists if it works
LOAD_SECONDS = 120  # in which a part must load

# The package that must be installed, and a program that loads a part and prints what it found.
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
    "TensorFlow with TensorFlow Text": (
        "tensorflow_text",
        "import tensorflow as t, tensorflow_text as x; x.SentencepieceTokenizer; "
        "print(', '.join(d.name.removeprefix('/physical_device:') for d in "
        "t.config.list_physical_devices()))",
    ),
    "JAX": ("jax", "import jax; print(', '.join(map(str, jax.devices())))"),
}


def versions() -> dict[str, str]:
    """Return the versions of this package, of Python, and of the packages that matter to it, as far
    as they are installed.
    """
    python = (
        f"{platform.python_version()} ({platform.python_implementation()}, "
        f"{platform.python_compiler()})"
    )
    own = {"tfk-transformer": tfk_transformer.__version__, "python": python}
    return own | {name: version for name in SHOWN_PACKAGES if (version := _version(name))}


def extras() -> dict[str, str]:
    """Return which extras of this package are installed, and what is missing of each of the
    others.
    """
    needed: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("tfk-transformer") or []:
        name, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if (
            name
            and extra
            and name[0] != "tfk-transformer"
            and extra[1] not in NOT_SHOWN
            and not _is_standard(line)
        ):
            needed.setdefault(extra[1], []).append(name[0])
    missing = {
        extra: [name for name in names if not _version(name)] for extra, names in needed.items()
    }
    return {
        extra: f"missing {', '.join(names)}" if names else "installed"
        for extra, names in sorted(missing.items())
    }


def _is_standard(requirement: str) -> bool:
    """Return whether a requirement is for older versions of Python than this one, or for other
    systems.
    """
    older = re.search(r'python_version < "3\.(\d+)"', requirement)
    return bool(older and sys.version_info[1] >= int(older[1])) or (
        sys.platform == "win32" and 'sys_platform != "win32"' in requirement
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def loaded_parts() -> dict[str, str]:
    """Load each part in a process of its own, so that one that crashes is reported as well.

    Returns:
        What each part found, "not installed", or "fails: " with the reason.
    """
    with ThreadPoolExecutor(len(PACKAGE_PARTS)) as threads:
        return dict(
            zip(
                PACKAGE_PARTS,
                threads.map(lambda part: _load(*part), PACKAGE_PARTS.values()),
                strict=True,
            )
        )


def _load(package: str, program: str) -> str:
    if importlib.util.find_spec(package) is None:
        return "not installed"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=LOAD_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"fails: no answer in {LOAD_SECONDS} seconds"
    if done.returncode < 0:
        return f"fails: ended by signal {-done.returncode}"
    if done.returncode:
        return f"fails: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    return done.stdout.strip()
