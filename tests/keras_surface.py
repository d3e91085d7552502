"""Print the outcome of every row of the table of Keras's methods under the current backend.

    KERAS_BACKEND=jax python tests/keras_surface.py                  # JSON {row: outcome}
    KERAS_BACKEND=jax python tests/keras_surface.py lora fit_arrays  # some rows
    python tests/keras_surface.py --write                            # benchmarks/keras-methods.md

`--write` runs all rows under all backends. `test_keras_surface.py` compares the table with them.
"""

import gc
import importlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from xla_flags import FAST_COMPILATION

PAGE = Path(__file__).parents[1] / "benchmarks" / "keras-methods.md"
BEGIN = "<!-- written by tests/keras_surface.py --write -->\n"
END = "<!-- end -->\n"
# In the order of the table.
PARTS = ("model", "export", "precision", "layers", "compile", "fit", "callbacks")
NAMES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
ENVIRONMENT = {
    # Two devices for the rows on distribution.
    "XLA_FLAGS": f"--xla_force_host_platform_device_count=2 {FAST_COMPILATION}",
    "OMP_NUM_THREADS": "1",  # PyTorch's threads wait actively
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
Outcomes = Mapping[str, str]


def load_rows() -> dict:
    """Import all rows under the current backend."""
    import keras_surface_rows

    for part in PARTS:
        importlib.import_module(f"keras_surface_{part}")
    return keras_surface_rows.ROWS


def make_two_devices() -> None:
    """Divide TensorFlow's CPU into two devices."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, devices)


def run(names: Sequence[str]) -> dict[str, str]:
    """Return the outcomes of rows by name, and write their seconds to standard error."""
    rows = load_rows()
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        make_two_devices()
    gc.set_threshold(50_000, 20, 20)  # tracing makes many objects that stay
    outcomes = {}
    for name in names or rows:
        gc.freeze()  # `quantize` of a layer searches for garbage
        start = time.process_time()
        outcomes[name] = rows[name].outcome()
        mark = " " if rows[name].is_expected(outcomes[name]) else "!"
        seconds = f"{time.process_time() - start:6.2f} s"
        print(f"{mark} {seconds} {name}: {outcomes[name][:1500]}", file=sys.stderr, flush=True)
    return outcomes


def run_under(backend: str, *names: str) -> dict[str, str]:
    """Return the outcomes of rows, by default of all, from a program under a backend."""
    command = [sys.executable, __file__, *names]
    environment = {**os.environ, **ENVIRONMENT, "KERAS_BACKEND": backend}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout)


def render(rows: Mapping, outcomes: Mapping[str, Outcomes]) -> str:
    """Return the table in Markdown, followed by the error messages.

    Args:
        rows: the rows by name.
        outcomes: by backend, the outcomes of all rows by name.
    """
    lines = [f"| Keras | {' | '.join(NAMES.values())} |", "| --- | --- | --- | --- |"]
    messages: list[str] = []
    section = ""
    for name, row in rows.items():
        if row.section != section:
            section = row.section
            lines.append(f"| **{section}** | | | |")
        cells = [_cell(outcomes[backend][name], messages) for backend in NAMES]
        lines.append(f"| {row.text} | {' | '.join(cells)} |")
    notes = [f"{number}. `` {message} ``" for number, message in enumerate(messages, 1)]
    return "\n".join([*lines, "", "The errors:", "", *notes, ""])


def _cell(outcome: str, messages: list[str]) -> str:
    head, _, message = outcome.partition("refused: ")
    if head:
        return outcome
    if message not in messages:
        messages.append(message)
    return f"refused ({messages.index(message) + 1})"


def read_table() -> dict[str, dict[str, str]]:
    """Return the outcomes in benchmarks/keras-methods.md by backend and by the text of the row."""
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    messages = dict(re.findall(r"^(\d+)\. `` (.*) ``$", text, flags=re.MULTILINE))
    outcomes: dict[str, dict[str, str]] = {backend: {} for backend in NAMES}
    for line in text.partition("| --- |")[2].splitlines():
        if re.match(r"\| (?!\*\*|---)", line):
            row, *cells = line.strip("| ").split(" | ")
            for backend, cell in zip(NAMES, cells, strict=True):
                number = re.fullmatch(r"refused \((\d+)\)", cell)
                outcomes[backend][row] = f"refused: {messages[number[1]]}" if number else cell
    return outcomes


def write() -> None:
    """Run all rows under all backends, and write the table into benchmarks/keras-methods.md."""
    outcomes = {backend: run_under(backend) for backend in NAMES}
    write_table(outcomes)


def write_table(outcomes: Mapping[str, Outcomes]) -> None:
    """Write the table into benchmarks/keras-methods.md."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{render(load_rows(), outcomes)}\n{END}{after}")


if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)
    if sys.argv[1:] == ["--write"]:
        write()
        sys.exit()
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # packages print to standard output
    json.dump(run(sys.argv[1:]), answer, indent=1)
    answer.close()
