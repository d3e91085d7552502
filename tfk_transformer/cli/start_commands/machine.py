"""The machine that a program runs on: processors and their instructions, memory and disk."""

import math
import os
import platform
import re
import shutil
from pathlib import Path

from tfk_transformer.runtime_environment import available_memory, instructions, usable_processors

# The instructions that the speed of training and of int8 files depends on, as Linux names them: of
# x86-64, and of ARM.
INSTRUCTIONS = (
    *(
        "sse4_2",
        "avx",
        "avx2",
        "fma",
        "f16c",
        "avx512f",
        "avx512_vnni",
        "avx512_bf16",
        "avx512_fp16",
        "avx_vnni",
    ),
    *("amx_bf16", "amx_int8", "asimd", "asimddp", "i8mm", "bf16", "sve", "sve2"),
)


def describe_machine(root: Path = Path("/")) -> dict[str, str]:
    """Return the processors, memory and free disk of this machine as texts.

    Args:
        root: the folder that holds `proc` and `sys`.
    """
    memory, disk, present = (
        available_memory(root),
        shutil.disk_usage(Path.cwd()),
        instructions(root),
    )
    return {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": f"{_processor(root)}; {usable_processors(root)} usable of {os.cpu_count()}",
        "instructions": " ".join(name for name in INSTRUCTIONS if name in present) or "unknown",
        "memory": "unknown" if math.isinf(memory) else f"{memory / 1e9:.1f} GB available",
        "disk": f"{disk.free / 1e9:.1f} GB free in the current folder",
    }


def _processor(root: Path) -> str:
    found = re.search(r"(?m)^model name\s*: (.+)$", _cpuinfo(root))
    return found[1] if found else platform.processor() or platform.machine()


def _cpuinfo(root: Path) -> str:
    """Return what Linux tells of the processors; nothing on other systems."""
    file = root / "proc/cpuinfo"
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
