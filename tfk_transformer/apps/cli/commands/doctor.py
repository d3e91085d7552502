"""`tfk-transformer doctor`."""

import importlib.metadata
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import PathFinder
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from tfk_transformer.constants import __version__
from tfk_transformer.runtime_environment import available_memory, instructions, usable_processors

DOCTOR_EXAMPLES = """
tfk-transformer doctor
# Print all of this as JSON, for programs.
tfk-transformer doctor --json
"""
SHOWN_PACKAGES = (
    "numpy onnxruntime onnxruntime-extensions sentencepiece pydantic typer rich keras tensorflow "
    "tensorflow-text onnx onnxscript onnx-ir tf2onnx jax torch ctranslate2"
).split()
# Extras for developers of this repository, and "cuda", which works if TensorFlow lists a GPU.
HIDDEN_EXTRAS = {"bench", "dev", "docs", "peers", "cuda"}
LOAD_SECONDS = 120  # time limit for loading a part
# The parts with compiled code: the required package, and a program that prints the devices.
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
# The instructions that determine the speed of training and of int8 files, by their names in Linux.
INSTRUCTIONS = (
    "sse4_2 avx avx2 fma f16c avx512f avx512_vnni avx512_bf16 avx512_fp16 avx_vnni amx_bf16 "
    "amx_int8 asimd asimddp i8mm bf16 sve sve2"  # from asimd on: ARM
).split()


# Of this package, imports only modules without dependencies: it reports what does not load.
def doctor_command(json_output: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Show the information for a bug report: versions, processors, accelerators, memory, disk, and
    whether each installed part loads.

    The output does not contain a user name: the home folder is written as ~. The exit status is 1
    if an installed part does not load.

    Args:
        json_output: Print the result as JSON.
    """
    # Each part is loaded in a separate process, so that a part that crashes is also reported.
    with ThreadPoolExecutor(len(PACKAGE_PARTS)) as threads:
        results = threads.map(lambda part: _load(*part), PACKAGE_PARTS.values())
        loads = dict(zip(PACKAGE_PARTS, results, strict=True))
    build = f"{platform.python_implementation()}, {platform.python_compiler()}"
    versions = {
        "tfk-transformer": __version__,
        "python": f"{platform.python_version()} ({build})",
        **{name: version for name in SHOWN_PACKAGES if (version := _version(name))},
    }
    report: dict[str, dict[str, Any]] = {
        "versions": versions,
        "extras": _extras(),
        "loads": loads,
        "machine": describe_machine(),
    }
    if json_output:
        text = json.dumps(report, indent=2, ensure_ascii=False)
    else:  # a paragraph for each part, with aligned values
        paragraphs = []
        for title, values in report.items():
            width = max(map(len, values))
            rows = (f"  {name:{width}}  {value}" for name, value in values.items())
            paragraphs.append("\n".join([title, *rows]))
        text = "\n\n".join(paragraphs)
    print(without_home(text))
    if any(result.startswith("fails") for result in loads.values()):
        sys.exit(1)


def without_home(text: str, home: PurePath | None = None) -> str:
    """Replace the path of the home folder in a text by ~."""
    home = home or Path.home()
    if not home.name:  # the root of a disk
        return text
    in_json = json.dumps(str(home), ensure_ascii=False)[1:-1]  # backslashes are doubled
    return text.replace(in_json, "~").replace(str(home), "~")


def _load(package: str, program: str) -> str:
    """Return the output of a program, "not installed" or "fails: " with the reason."""
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


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _extras() -> dict[str, str]:
    """Return "installed" or the missing packages of each extra of this package."""
    needed: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("tfk-transformer") or []:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        older = re.search(r'python_version < "3\.(\d+)"', line)
        if (
            (name and name[0] != "tfk-transformer")
            and (extra and extra[1] not in HIDDEN_EXTRAS)
            and not (older and sys.version_info[1] >= int(older[1]))
            and not (sys.platform == "win32" and 'sys_platform != "win32"' in line)
        ):
            needed.setdefault(extra[1], []).append(name[0])
    missing = {
        extra: ", ".join(name for name in names if not _version(name))
        for extra, names in sorted(needed.items())
    }
    return {extra: f"missing {names}" if names else "installed" for extra, names in missing.items()}


def describe_machine(root: Path = Path("/")) -> dict[str, str]:
    """Return processors, memory and free disk space; `root` contains the folders proc and sys."""
    memory = available_memory(root)
    free = shutil.disk_usage(Path.cwd()).free
    present = instructions(root)
    file = root / "proc/cpuinfo"  # of Linux
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    match = re.search(r"(?m)^model name\s*: (.+)$", text)
    processor = match[1] if match else platform.processor() or platform.machine()
    return {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": f"{processor}; {usable_processors(root)} usable of {os.cpu_count()}",
        "instructions": " ".join(name for name in INSTRUCTIONS if name in present) or "unknown",
        "memory": "unknown" if math.isinf(memory) else f"{memory / 1e9:.1f} GB available",
        "disk": f"{free / 1e9:.1f} GB free in the current folder",
    }
