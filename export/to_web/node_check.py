"""Translate texts with a web folder in Node."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfk_transformer.config.setting_values import setting_text

MIN_NODE_VERSION = 18


def node_program() -> str | None:
    """Return the path of Node; None if Node is not installed or too old for the folder."""
    node = shutil.which("node")
    if node is None:
        return None
    version = subprocess.run([node, "--version"], capture_output=True, encoding="utf-8").stdout
    # The output looks like "v20.20.2".
    major = version.removeprefix("v").partition(".")[0]
    return node if major.isdecimal() and int(major) >= MIN_NODE_VERSION else None


def translate_in_node(
    node: str, folder: Path, texts: Sequence[str], settings: Mapping[str, Any]
) -> list[str]:
    """Translate texts with a web folder, each as one sentence and exactly as it is.

    Args:
        node: path of Node.
        folder: the web folder.
        texts: texts without line breaks.
        settings: search settings.

    Returns:
        The best translation of each text.

    Raises:
        ValueError: if the program fails; the message contains its error.
    """
    command = [node, str(folder / "translate-cli.mjs"), "--json", "--no-split-sentences"]
    for name, value in settings.items():
        command += [f"--{name.replace('_', '-')}", setting_text(value)]
    process = subprocess.run(
        command, input="".join(f"{text}\n" for text in texts), capture_output=True, encoding="utf-8"
    )
    if process.returncode:
        # Node also writes the lines of the code that failed.
        lines = [line for line in process.stderr.splitlines() if line.strip()]
        last_line = lines[-1] if lines else "no message"
        error = next((line for line in lines if "Error" in line), last_line)
        raise ValueError(
            f"web: expected a folder that runs in Node, got the failure: {error}. "
            "Nothing was written."
        )
    return [json.loads(line)["text"] for line in process.stdout.splitlines()]
