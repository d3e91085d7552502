"""Compare the ids of an exported file on three kinds of processor, and in different batches, on one
machine with AVX-512 and VNNI.

python benchmarks/processors.py BUNDLE EXPORT/generate.int8.onnx --data folder:multi30k:de-en

A program that onnxruntime runs in asks the processor for its instructions (CPUID). `processors.c`
hides VNNI and AMX, or also AVX-512, so that onnxruntime takes its other kernels. This requires
Linux, a C compiler and a processor that can trap CPUID.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
import typer

KINDS = {"all instructions": None, "without VNNI": "vnni", "without AVX-512": "avx512"}
CANNOT_TRAP = 99  # exit status
BATCHES = {"sorted, 32": (32, False), "sorted, 1": (1, False), "at random, 32": (32, True)}


def build(folder: Path) -> Path:
    """Compile `processors.c` and return the library's path; exit with one line and `CANNOT_TRAP`
    where CPUID cannot be trapped.
    """
    library = folder / "processors.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    if subprocess.run(["true"], env=environment(library, "vnni")).returncode:
        name = Path(sys.argv[0]).name
        print(
            (
                f"{name}: expected a processor that can trap CPUID, as Intel's since 2012; this "
                "one, "
                "or its virtual machine, cannot"
            ),
            file=sys.stderr,
        )
        sys.exit(CANNOT_TRAP)
    return library


def environment(library: Path, hidden: str | None) -> dict[str, str]:
    """Return the environment of a process that does not find instructions: "vnni", "avx512" or
    None.
    """
    return {**os.environ, **({"LD_PRELOAD": str(library), "HIDE": hidden} if hidden else {})}


def ids_of(
    file: str, sources: list[list[int]], batch_size: int, at_random: bool
) -> list[list[int]]:
    """Translate ids greedily in batches, and return the ids in the order of the sources."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    order = (
        np.random.default_rng(3).permutation(len(sources))
        if at_random
        else np.argsort([len(row) for row in sources], kind="stable")
    )
    found: list[list[int]] = [[]] * len(sources)
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        ids = np.zeros((len(rows), max(len(sources[row]) for row in rows)), "int32")
        for place, row in enumerate(rows):
            ids[place, : len(sources[row])] = sources[row]
        (results,) = session.run(["ids"], {"source_ids": ids, "beam_size": np.array(1, "int32")})
        for row, result in zip(rows, results[:, 0].tolist(), strict=True):
            found[row] = [token for token in result if token]
    return found


def main(
    bundle: Path, file: Path, data: Annotated[str, typer.Option()], split: str = "test"
) -> None:
    """Print for how many sentences the ids equal those with all instructions, in sorted batches of
    32.
    """
    from tfk_transformer.constants import END_ID
    from tfk_transformer.datasets.specs import load
    from tfk_transformer.pipelines.translator import Translator

    texts = [pair.source for pair in load(data).pairs(split)]
    sources = [[*ids, END_ID] for ids in Translator.load(bundle).source_tokenizer.encode(texts)]
    with tempfile.TemporaryDirectory() as folder:
        library, first = build(Path(folder)), None
        for kind, hidden in KINDS.items():
            given = json.dumps([str(file), sources])
            command = [sys.executable, __file__, "--child"]
            done = subprocess.run(
                command,
                input=given,
                env=environment(library, hidden),
                capture_output=True,
                text=True,
                check=True,
            )
            for name, found in json.loads(done.stdout).items():
                first = first or found
                print(
                    f"{kind}, {name}: {sum(a == b for a, b in zip(first, found, strict=True))} of "
                    f"{len(found)}"
                )


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        path, rows = json.load(sys.stdin)
        print(json.dumps({name: ids_of(path, rows, *how) for name, how in BATCHES.items()}))
    else:
        typer.run(main)
