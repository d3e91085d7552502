"""Run a web folder in Node, where Node is installed, on the probe sentences."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

LEAST_VERSION = 18


def node_program() -> str | None:
    """Return the path of Node; None if it is not installed, or too old for the folder."""
    node = shutil.which("node")
    if node is None:
        return None
    # "v20.20.2".
    answer = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    major = answer.removeprefix("v").partition(".")[0]
    return node if major.isdecimal() and int(major) >= LEAST_VERSION else None


def translate_in_node(
    node: str, folder: Path, texts: Sequence[str], settings: Mapping[str, int | float]
) -> list[str]:
    """Translate texts with a web folder.

    Args:
        node: path of Node.
        folder: the web folder.
        texts: texts without line breaks.
        settings: search settings.

    Returns:
        The best translation of each.

    Raises:
        ValueError: if the program fails, with its message.
    """
    options = [
        part
        for name, value in settings.items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    command = [node, str(folder / "translate-cli.mjs"), "--json", *options]
    done = subprocess.run(
        command, input="".join(f"{text}\n" for text in texts), capture_output=True, encoding="utf-8"
    )
    if done.returncode:
        raise ValueError(
            "web: expected a folder that runs in Node, got one that does not: "
            f"{_reason(done.stderr)}. Nothing was written."
        )
    return [json.loads(line)["text"] for line in done.stdout.splitlines()]


def _reason(stderr: str) -> str:
    """Return the line of Node's output that says what went wrong: an error that nothing caught
    stands among lines of its code.
    """
    lines = [line for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if "Error" in line), *lines[-1:] or ["it says nothing"])
