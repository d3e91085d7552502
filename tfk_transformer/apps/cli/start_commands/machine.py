"""The machine that a program runs on: processors and their instructions, memory and disk."""

import math
import os
import platform
import re
import shutil
from pathlib import Path

from tfk_transformer.runtime_environment import available_memory, instructions, usable_processors

# The instructions that determine the speed of training and of int8 files, by their names in Linux.
INSTRUCTIONS = (
    *("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16"),
    *("avx512_fp16", "avx_vnni", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2"),  # of ARM
)


def describe_machine(root: Path = Path("/")) -> dict[str, str]:
    """Return the processors, memory and free disk space of this machine as texts.

    Args:
        root: the folder that contains `proc` and `sys`.
    """
    memory = available_memory(root)
    free = shutil.disk_usage(Path.cwd()).free
    present = instructions(root)
    return {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": f"{_processor(root)}; {usable_processors(root)} usable of {os.cpu_count()}",
        "instructions": " ".join(name for name in INSTRUCTIONS if name in present) or "unknown",
        "memory": "unknown" if math.isinf(memory) else f"{memory / 1e9:.1f} GB available",
        "disk": f"{free / 1e9:.1f} GB free in the current folder",
    }


def _processor(root: Path) -> str:
    """Return the name of the processor, on Linux from `proc/cpuinfo`."""
    file = root / "proc/cpuinfo"
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    match = re.search(r"(?m)^model name\s*: (.+)$", text)
    return match[1] if match else platform.processor() or platform.machine()
