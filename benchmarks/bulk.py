"""`translate` over a large file: killed at random moments and resumed, and its peak memory.

python benchmarks/bulk.py kills [--lines 1000000] [--times 10] [--end .txt]
    SIGKILL, then --resume; the output is compared byte for byte
python benchmarks/bulk.py memory [--lines 200000] [--than 10000] [--end .gz]
    peak memory of runs over many and over few lines

The model is the small ONNX file of the tests. The status is 1 if a byte differs, or if memory grew
by more than 20 %.
"""

import argparse
import filecmp
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tfk_transformer.formats.compression import compress, compression

SAVED = Path(__file__).parents[1] / "tests" / "saved_files"
OPTIONS = ["--beam-size", "1", "--setting", "max_length=4"]
LIMIT = 1.2


def write_lines(path: Path, count: int) -> None:
    """Write number words and blank lines in random order, 10,000 lines at a time."""
    chance, words = random.Random(1), (SAVED / "en.txt").read_text().splitlines()
    with path.open("wb") as file:
        for begin in range(0, count, 10_000):
            lines = chance.choices([*words, ""], k=min(10_000, count - begin))
            file.write(compress("".join(f"{line}\n" for line in lines).encode(), compression(path)))


def command(source: Path, output: Path, *options: str) -> list[str]:
    """Return the command line that translates a file."""
    files = [str(SAVED / "translate.onnx"), "--input", str(source), "--output", str(output)]
    return [sys.executable, "-m", "tfk_transformer", "translate", *files, *OPTIONS, *options]


def finished(output: Path) -> int:
    """Return the lines that an unfinished run has committed."""
    record = output.with_name(f"{output.name}.partial.json")
    try:
        return json.loads(record.read_text())["lines"]
    except FileNotFoundError:
        return 0


def kill(folder: Path, end: str, lines: int, times: int) -> bool:
    """Kill a run and resume it several times, and return whether its output is that of a run that
    was not killed.
    """
    source, whole, resumed = folder / f"in{end}", folder / f"whole{end}", folder / f"resumed{end}"
    write_lines(source, lines)
    begun = time.perf_counter()
    subprocess.run(command(source, whole), check=True)
    took, chance = time.perf_counter() - begun, random.Random(5)
    print(f"{lines:,} lines ({end}): {took:.0f} s without interruption", flush=True)
    for number in range(times):
        process = subprocess.Popen(command(source, resumed, "--resume"))
        time.sleep(chance.uniform(0, 1.2 * took / times))
        if process.poll() is not None:
            break
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        print(f"kill {number + 1}: {finished(resumed):,} lines done", flush=True)
    subprocess.run(command(source, resumed, "--resume"), check=True)
    left = sorted(path.name for path in folder.iterdir() if path not in (source, whole, resumed))
    equal = filecmp.cmp(whole, resumed, shallow=False)
    print(
        (
            f"{'equal' if equal else 'DIFFERENT'}, {whole.stat().st_size:,} bytes; other files: "
            f"{left or 'none'}"
        ),
        flush=True,
    )
    return equal and not left


def peak(folder: Path, end: str, lines: int) -> float:
    """Translate a file in a process of its own, and return the peak of its memory in bytes."""
    source, output = folder / f"{lines}{end}", folder / f"{lines}.out{end}"
    write_lines(source, lines)
    process = subprocess.Popen(command(source, output))
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"the run ended with status {status}")
    print(f"{lines:,} lines: peak memory {usage.ru_maxrss * 1024 / 1e6:.0f} MB", flush=True)
    return usage.ru_maxrss


def main() -> None:
    """Run what the first argument names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["kills", "memory"])
    parser.add_argument("--lines", type=int, default=None)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--than", type=int, default=10_000)
    parser.add_argument(
        "--end", default=".txt", help="the end of the files' names: .txt, .gz or .zst"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if given.what == "kills":
            good = kill(Path(name), given.end, given.lines or 1_000_000, given.times)
        else:
            few, many = (
                peak(Path(name), given.end, lines) for lines in (given.than, given.lines or 200_000)
            )
            print(f"{many / few - 1:+.1%}")
            good = many <= LIMIT * few
    sys.exit(not good)


if __name__ == "__main__":
    main()
