"""What long use and sudden ends do: memory over many translations and epochs, and files after kills
and on a full disk.

python benchmarks/endurance.py memory [--count 100000] [--threads 4]
    each runtime, and `fit` for 200 epochs
python benchmarks/endurance.py kills [--times 20]
    SIGKILL at random moments of export, translate and train
python benchmarks/endurance.py disk
    the same commands on a full disk (needs the right to mount)

The status is 1 if memory grew by more than 5 %, or a file under its final name was incomplete.
"""

import argparse
import concurrent.futures
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
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
SAVED = Path(__file__).parents[1] / "tests" / "saved_files"
COMMAND = [sys.executable, "-m", "tfk_transformer"]
KINDS = {"bundle": "bundle", "SavedModel": "files/saved_model", "ONNX": "files/translate.onnx"}
WARM, GROWTH = 5000, 1.05


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def prepare(folder: Path) -> None:
    """Export the small bundle of the tests into a folder."""
    shutil.copytree(SAVED / "bundle", folder / "bundle")
    subprocess.run(
        [*COMMAND, "export", folder / "bundle", "--out", folder / "files"],
        check=True,
        stdout=subprocess.DEVNULL,
    )


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

    def __init__(self, name: str, folder: Path):
        self.out = folder / f"out of {name}"
        self.name, self.lines = name, folder / "lines.txt"
        self.lines.write_text((SAVED / "en.txt").read_text() * 100)
        data = f"files:{SAVED / 'en.txt'},{SAVED / 'de.txt'}"
        sizes = "--preset tiny --vocab-size 60 --max-length 24 --batch-tokens 256 --warmup-steps 9"
        commands = {
            "export": ["export", folder / "bundle"],
            "translate": ["translate", folder / "files/translate.onnx", "--input", self.lines],
            "train": ["train", "--data", data, *sizes.split(), "--epochs", "40"],
        }
        option = "--output" if name == "translate" else "--out"
        self.command = [*COMMAND, *commands[name], option, self.out]

    def check(self) -> str:
        """Return "absent" or "complete"; an assertion fails for anything between."""
        if not self.out.exists():
            return "absent"
        if self.name == "translate":
            assert self.out.read_text().count("\n") == self.lines.read_text().count("\n"), (
                f"{self.out} is incomplete"
            )
        elif self.name == "export":
            for path in (self.out / "saved_model", self.out / "translate.onnx"):
                subprocess.run(
                    [*COMMAND, "translate", path, "forty-two"],
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
        else:
            subprocess.run(
                [*COMMAND, "translate", self.out, "forty-two"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        return "complete"

    def clean(self) -> None:
        """Remove everything that runs left."""
        for path in self.out.parent.glob(f"*{self.out.name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def kill(folder: Path, times: int) -> None:
    """End each command at random moments, and check what stands under its final name."""
    chance = random.Random(5)
    for name in ("translate", "train", "export"):
        task = Task(name, folder)
        begun = time.perf_counter()
        subprocess.run(task.command, check=True, stdout=subprocess.DEVNULL)
        took, found = time.perf_counter() - begun, []
        while len(found) < times:
            task.clean()
            process = subprocess.Popen(
                task.command, stdout=subprocess.DEVNULL, start_new_session=True
            )
            time.sleep(chance.uniform(0, took))
            if process.poll() is not None:  # it has become faster, and had ended by itself
                took *= 0.9
                continue
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            found.append(task.check())
        task.clean()
        ends = f"{found.count('complete')} complete, {found.count('absent')} absent"
        print(f"{name}: killed {times} times within {took:.0f} s: {ends}", flush=True)


def sizes() -> Iterator[int]:
    """Yield sizes of disks, in kilobytes, on which the commands run out of space earlier or
    later.
    """
    yield from (64, 512, 2048, 4096)


def fill(folder: Path) -> None:
    """Run each command where the disk is too small for its output."""
    for name in ("export", "translate", "train"):
        for size in sizes():
            disk = folder / f"disk {name} {size}"
            disk.mkdir()
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", disk], check=True
            )
            try:
                task = Task(name, folder)
                task.out = disk / "out"
                command = [
                    disk / "out" if part == folder / f"out of {name}" else part
                    for part in task.command
                ]
                done = subprocess.run(command, capture_output=True, text=True)
                said = done.stderr.strip().splitlines()
                left = task.check()
                assert done.returncode == 0 or (
                    len(said) <= 2 and "Traceback" not in done.stderr
                ), done.stderr
                print(
                    (
                        f"{name} on {size} kB: status {done.returncode}, {left}; "
                        f"{said[-1][:150] if said else 'no message'}"
                    ),
                    flush=True,
                )
            finally:
                subprocess.run(["umount", disk], check=True)


def main() -> int:
    """Run a part; see the top of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["memory", "kills", "disk", "one"])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--path", type=Path, help="of `one`: the model, or none for the epochs")
    given = parser.parse_args()
    if given.part == "one":
        measure_translations(
            given.path, given.count, given.threads
        ) if given.path else measure_epochs()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepare(folder)
        if given.part == "memory":  # each in a process of its own
            parts = [["--path", str(folder / path)] for path in KINDS.values()] + [[]]
            same = ["--count", str(given.count), "--threads", str(given.threads)]
            return max(
                subprocess.run([sys.executable, __file__, "one", *same, *part]).returncode
                for part in parts
            )
        kill(folder, given.times) if given.part == "kills" else fill(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
