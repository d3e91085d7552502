"""Long use and sudden ends: memory over many translations, epochs and lines, and files after kills
and on a full disk.

python benchmarks/endurance.py memory [--count 100000] [--threads 4]
    memory of each runtime, and of `fit` for 200 epochs
python benchmarks/endurance.py kills [--times 20]
    SIGKILL at random moments of export, translate and train
python benchmarks/endurance.py disk
    the same commands on a full disk (needs the right to mount)
python benchmarks/endurance.py resume [--count 1000000] [--times 10] [--end .gz]
    `translate` over a file of number words, killed and resumed; compared byte for byte
python benchmarks/endurance.py lines [--count 200000] [--than 10000] [--end .gz]
    peak memory of `translate` over many and over few lines

The status is 1 if memory grew by more than 5 % (lines: 20 %), a file under its final name was
incomplete, or a byte differs.
"""

import argparse
import concurrent.futures
import filecmp
import gc
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from harness import run_command

from tfk_transformer.formats.compression import compress, compression

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
SAVED = Path(__file__).parents[1] / "tests" / "saved_files"
COMMAND = [sys.executable, "-m", "tfk_transformer"]
MODELS = ("bundle", "files/saved_model", "files/translate.onnx")
WARM, GROWTH, LINES_GROWTH = 5000, 1.05, 1.2


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measure_translations(path: Path, count: int, threads: int) -> None:
    """Translate texts of random lengths in random batches, on several threads, and print the memory
    after 5,000 and at the end.
    """
    import tfk_transformer

    model, chance, lock = tfk_transformer.load(path), random.Random(7), threading.Lock()
    words, done, after_warm = (SAVED / "en.txt").read_text().split(), 0, 0

    def one_batch(_: int) -> int:
        with lock:
            texts = [
                " ".join(chance.choices(words, k=chance.randint(0, 3)))
                for _ in range(chance.randint(1, 64))
            ]
            beam = chance.choice([1, 2, 4])
        return len(model.translate(texts, beam_size=beam, batch_size=chance.choice([1, 8, 64])))

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        while done < count:
            done += sum(pool.map(one_batch, range(4 * threads)))
            if done >= WARM and not after_warm:
                after_warm = resident()
    report(f"{path.name}: {done:,} translations on {threads} threads", after_warm, resident())


def measure_epochs(epochs: int = 200, warm: int = 20) -> None:
    """Fit a small model for many epochs, and print the memory after 20 and at the end."""
    import keras

    import tfk_transformer as tfk

    data = tfk.datasets.load(f"files:{SAVED / 'en.txt'},{SAVED / 'de.txt'}")
    tokenizer = tfk.Translator.load(SAVED / "bundle").source_tokenizer
    batches = tfk.TokenBatches(data, "train", tokenizer, tokenizer, batch_tokens=256, shuffle=True)
    sizes = {"source_vocab_size": tokenizer.vocab_size, "target_vocab_size": tokenizer.vocab_size}
    model = tfk.Transformer(tfk.TransformerConfig.preset("tiny", **sizes))
    model.compile(
        tfk.optimizers.Adam(1e-3), tfk.losses.LabelSmoothedCrossentropy(0.1), jit_compile=False
    )
    found: list[int] = []
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: found.append(resident()))
    model.fit(batches.dataset(), epochs=epochs, shuffle=False, verbose=0, callbacks=[note])
    report(f"fit: {epochs} epochs", found[warm - 1], found[-1])


def report(what: str, first: int, last: int) -> None:
    """Print two amounts of memory, and end with status 1 if the second is more than 5 % above the
    first.
    """
    print(
        f"{what}: {first / 1e6:.0f} MB, then {last / 1e6:.0f} MB ({last / first - 1:+.1%})",
        flush=True,
    )
    sys.exit(last > GROWTH * first)


class Task:
    """A command that writes a file or a folder, and whether that is complete."""

    def __init__(self, name: str, folder: Path, out: Path | None = None):
        self.out = out or folder / f"out of {name}"
        self.lines = folder / "lines.txt"
        self.lines.write_text((SAVED / "en.txt").read_text() * 100)
        data = f"files:{SAVED / 'en.txt'},{SAVED / 'de.txt'}"
        sizes = "--preset tiny --vocab-size 60 --max-length 24 --batch-tokens 256 --warmup-steps 9"
        commands = {
            "export": ["export", folder / "bundle"],
            "translate": ["translate", folder / "files/translate.onnx", "--input", self.lines],
            "train": ["train", "--data", data, *sizes.split(), "--epochs", "40"],
        }
        self.name, option = name, "--output" if name == "translate" else "--out"
        self.command = [*COMMAND, *commands[name], option, self.out]

    def check(self) -> str:
        """Return "absent" or "complete"; an assertion fails for anything between."""
        if not self.out.exists():
            return "absent"
        if self.name == "translate":
            assert self.out.read_text().count("\n") == self.lines.read_text().count("\n"), (
                f"{self.out} is incomplete"
            )
        else:
            files = [self.out / "saved_model", self.out / "translate.onnx"]
            for path in files if self.name == "export" else [self.out]:
                run([*COMMAND, "translate", path, "forty-two"])
        return "complete"

    def clean(self) -> None:
        """Remove everything that runs left."""
        for path in self.out.parent.glob(f"*{self.out.name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def run(command: Sequence[str | Path]) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def kill(folder: Path, times: int) -> None:
    """End each command at random moments, and check what stands under its final name."""
    chance = random.Random(5)
    for name in ("translate", "train", "export"):
        task = Task(name, folder)
        took, found = run_command(task.command).seconds, []
        while len(found) < times:
            task.clean()
            process = subprocess.Popen(
                task.command, stdout=subprocess.DEVNULL, start_new_session=True
            )
            time.sleep(chance.uniform(0, took))
            if process.poll() is not None:  # it was faster, and ended by itself
                took *= 0.9
                continue
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            found.append(task.check())
        task.clean()
        ends = f"{found.count('complete')} complete, {found.count('absent')} absent"
        print(f"{name}: killed {times} times within {took:.0f} s: {ends}", flush=True)


def fill(folder: Path) -> None:
    """Run each command where the disk is too small for its output."""
    for name in ("export", "translate", "train"):
        for size in (64, 512, 2048, 4096):  # kB: space runs out earlier or later
            disk = folder / f"disk {name} {size}"
            disk.mkdir()
            run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk])
            try:
                task = Task(name, folder, disk / "out")
                done = subprocess.run(task.command, capture_output=True, text=True)
                lines, left = done.stderr.strip().splitlines(), task.check()
                assert done.returncode == 0 or (
                    len(lines) <= 2 and "Traceback" not in done.stderr
                ), done.stderr
                message = lines[-1][:150] if lines else "no message"
                status = f"status {done.returncode}, {left}; {message}"
                print(f"{name} on {size} kB: {status}", flush=True)
            finally:
                run(["umount", disk])


def write_lines(path: Path, count: int) -> None:
    """Write number words and blank lines in random order, 10,000 lines at a time."""
    chance, words = random.Random(1), (SAVED / "en.txt").read_text().splitlines()
    with path.open("wb") as file:
        for begin in range(0, count, 10_000):
            lines = chance.choices([*words, ""], k=min(10_000, count - begin))
            file.write(compress("".join(f"{line}\n" for line in lines).encode(), compression(path)))


def translation(source: Path, output: Path, *options: str) -> list:
    """Return the command that translates a file."""
    files = [SAVED / "translate.onnx", "--input", source, "--output", output]
    settings = ["--beam-size", "1", "--setting", "max_length=4"]
    return [*COMMAND, "translate", *files, *settings, *options]


def resume(folder: Path, end: str, lines: int, times: int) -> None:
    """Kill a run and resume it several times; its output is that of a run that was not killed."""
    source, whole, resumed = (folder / f"{name}{end}" for name in ("in", "whole", "resumed"))
    write_lines(source, lines)
    took, chance = run_command(translation(source, whole)).seconds, random.Random(5)
    print(f"{lines:,} lines ({end}): {took:.0f} s without interruption", flush=True)
    for number in range(times):
        process = subprocess.Popen(translation(source, resumed, "--resume"))
        time.sleep(chance.uniform(0, 1.2 * took / times))
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        print(f"kill {number + 1}", flush=True)
    run(translation(source, resumed, "--resume"))
    left = sorted(path.name for path in folder.iterdir() if path not in (source, whole, resumed))
    equal = filecmp.cmp(whole, resumed, shallow=False)
    size = f"{whole.stat().st_size:,} bytes; other files: {left or 'none'}"
    print(f"{'equal' if equal else 'DIFFERENT'}, {size}", flush=True)
    sys.exit(not equal or bool(left))


def compare_lines(folder: Path, end: str, few: int, many: int) -> None:
    """Print the peak memory of runs over few and over many lines."""
    peaks = []
    for count in (few, many):
        source = folder / f"{count}{end}"
        write_lines(source, count)
        answer = run_command(translation(source, folder / f"{count}.out{end}"))
        peaks.append(answer.peak_megabytes)
        print(f"{count:,} lines: peak memory {peaks[-1]:.0f} MB", flush=True)
    sys.exit(peaks[1] > LINES_GROWTH * peaks[0])


def main() -> int:
    """Run a part; see the top of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("part", choices=["memory", "kills", "disk", "resume", "lines", "one"])
    add("--count", type=int, help="translations or lines")
    add("--than", type=int, default=10_000, help="the few lines of `lines`")
    add("--threads", type=int, default=4)
    add("--times", type=int, default=20)
    add("--end", default=".txt", help="the end of the files' names: .txt, .gz or .zst")
    add("--path", type=Path, help="of `one`: the model, or none for the epochs")
    given = parser.parse_args()
    count = given.count or {"resume": 1_000_000, "lines": 200_000}.get(given.part, 100_000)
    if given.part == "one":
        measure_translations(given.path, count, given.threads) if given.path else measure_epochs()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if given.part == "resume":
            resume(folder, given.end, count, given.times)
        if given.part == "lines":
            compare_lines(folder, given.end, given.than, count)
        shutil.copytree(SAVED / "bundle", folder / "bundle")
        run([*COMMAND, "export", folder / "bundle", "--out", folder / "files"])
        if given.part == "memory":  # each in a process of its own
            parts = [["--path", folder / path] for path in MODELS] + [[]]
            same = ["--count", str(count), "--threads", str(given.threads)]
            return max(
                subprocess.run([sys.executable, __file__, "one", *same, *part]).returncode
                for part in parts
            )
        kill(folder, given.times) if given.part == "kills" else fill(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
