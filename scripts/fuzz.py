"""Open mutated files of every kind, each in a separate process with limits on memory and time, and
list the failures.

python scripts/fuzz.py [--count 300] [--seconds S] [--kind NAME …] [--keep FOLDER]

A file must open, or be refused with a ValueError of one line. Everything else is a finding: another
exception, a signal, or too much memory or time. The kind of file and the number of a mutation
determine the mutation, so `--only NUMBER` repeats a finding.
"""

import argparse
import concurrent.futures
import copy
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
TESTS = Path(__file__).parents[1] / "tests"
SAVED = TESTS / "saved_files"
# Limits: bytes of address space, seconds of processor time, and elapsed seconds.
MEMORY, BUSY, HUNG = 12 * 2**30, 60, 600
VALUES: list[Any] = [
    None, True, -1, 0, 1, 3, 2**31, 2**63, 10**7, 10**9, 10**400,
    0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", "x", "\0", "\ud800", "x" * 10**5, [], [1], {}, {"a": 1}, [[]] * 9,
]  # fmt: skip
NAMES = ["self", "", "__class__", "max_length", "x" * 10**4, "\n", "é"]


class Kind(NamedTuple):
    """A kind of file: how to make a valid folder, and how to mutate and open a file in it."""

    make: Callable[[Path], None]
    file: str
    mutate: Callable[[bytes, random.Random], bytes]
    use: Callable[[Path], None]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) in nested objects and lists."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [place for key, inner in items for place in [(value, key), *places(inner)]]


def mutated_json(text: bytes, chance: random.Random) -> bytes:
    """Replace, delete, rename or add an entry, or damage the text."""
    if chance.random() < 0.15:
        return chance.choice(
            [
                b"[" * 10**5,
                b"",
                b"null",
                b"5",
                b'"x"',
                b"[1]",
                b'{"a":' * 10**4,
                mutated_bytes(text, chance),
            ]
        )
    value = json.loads(text)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        if not (found := places(value)):
            break
        container, key = chance.choice(found)
        action = chance.random()
        if action < 0.6:
            # A copy, since a later mutation may change the value.
            container[key] = copy.deepcopy(chance.choice(VALUES))
        elif action < 0.8:
            container.pop(key)
        elif isinstance(container, dict):
            container[chance.choice(NAMES)] = container[key] if action < 0.9 else container.pop(key)
    return json.dumps(value).encode()


def mutated_bytes(content: bytes, chance: random.Random) -> bytes:
    """Flip bits, cut, repeat, overwrite or insert, often near the start, where headers are."""
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 8, 64])):
        end = max(1, len(data) if chance.random() < 0.5 else min(len(data), 4096))
        place, length = chance.randrange(end), chance.choice([1, 2, 4, 8, 64])
        action = chance.randrange(6)
        if action < 2 and data:
            data[min(place, len(data) - 1)] ^= 1 << chance.randrange(8)
        elif action == 2:
            data[place : place + length] = chance.choice([b"\0", b"\xff", b"\x7f"]) * length
        elif action == 3:
            data[place:place] = chance.randbytes(length)
        elif action == 4:
            data[place:place] = data[place : place + length]
        elif chance.random() < 0.1:
            del data[place:]
    return bytes(data)


def mutated_safetensors(content: bytes, chance: random.Random) -> bytes:
    """Mutate the header as JSON, with its length, or the bytes."""
    if chance.random() < 0.3:
        return mutated_bytes(content, chance)
    length = int.from_bytes(content[:8], "little")
    header = mutated_json(content[8 : 8 + length], chance)
    stated = (
        len(header)
        if chance.random() < 0.8
        else chance.choice([0, 1, len(header) + 9, 2**40, 2**64 - 1])
    )
    return stated.to_bytes(8, "little") + header + content[8 + length :]


def mutated_message(message: Any, chance: random.Random) -> None:
    """Change one field somewhere in a protobuf message."""
    fields = message.ListFields()
    if not fields:
        return
    field, value = chance.choice(fields)
    repeated = hasattr(value, "append") or hasattr(value, "add")
    if field.type == field.TYPE_MESSAGE and (
        not repeated or (len(value) and chance.random() < 0.9)
    ):
        mutated_message(chance.choice(list(value)) if repeated else value, chance)
    elif repeated and len(value) and chance.random() < 0.5:
        del value[chance.randrange(len(value))]
    elif not repeated and chance.random() < 0.2:
        message.ClearField(field.name)
    elif field.type != field.TYPE_MESSAGE:
        value = chance.choice(VALUES)
        try:
            setattr(message, field.name, value) if not repeated else value.append(
                chance.choice(VALUES)
            )
        except (TypeError, ValueError, AttributeError, OverflowError):
            # The value does not have the type of the field.
            message.ClearField(field.name)


def mutated_onnx(content: bytes, chance: random.Random) -> bytes:
    """Mutate the metadata, a field anywhere in the model, or the bytes."""
    import onnx

    choice = chance.random()
    if choice < 0.3:
        return mutated_bytes(content, chance)
    model = onnx.ModelProto.FromString(content)
    if choice < 0.6:
        (entry,) = [entry for entry in model.metadata_props if entry.key == "tfk_transformer"]
        entry.value = mutated_json(entry.value.encode(), chance).decode("utf-8", "replace")
    else:
        for _ in range(chance.choice([1, 1, 3])):
            mutated_message(model, chance)
    return model.SerializeToString()


def mutated_tokenizer(content: bytes, chance: random.Random) -> bytes:
    """Mutate a field anywhere in the SentencePiece model, or the bytes."""
    from sentencepiece import sentencepiece_model_pb2

    if chance.random() < 0.3:
        return mutated_bytes(content, chance)
    model = sentencepiece_model_pb2.ModelProto.FromString(content)
    for _ in range(chance.choice([1, 1, 3, 9])):
        mutated_message(model, chance)
    return model.SerializePartialToString()


def copy_bundle(folder: Path) -> None:
    """Copy a bundle."""
    shutil.copytree(SAVED / "bundle", folder)


def copy_marian(folder: Path) -> None:
    """Copy a folder of MarianMT with random weights."""
    shutil.copytree(MADE / "marian", folder)


def copy_npz(folder: Path) -> None:
    """Copy a Marian file with random weights, and its SentencePiece model."""
    shutil.copytree(MADE / "npz", folder)


def copy_binary(folder: Path) -> None:
    """Copy an int8 file of Marian, and its SentencePiece models."""
    shutil.copytree(MADE / "binary", folder)


def copy_onnx(folder: Path) -> None:
    """Copy an ONNX file."""
    folder.mkdir()
    shutil.copy(SAVED / "translate.onnx", folder)


def use_bundle(folder: Path) -> None:
    """Open a bundle, describe it, and translate."""
    import tfk_transformer

    tfk_transformer.inspect(folder)
    tfk_transformer.load(folder).translate(["one", "two hundred"], beam_size=2, max_length=4)


def use_onnx(folder: Path) -> None:
    """Open an ONNX file, describe it, and translate."""
    import onnxruntime

    import tfk_transformer

    tfk_transformer.inspect(folder / "translate.onnx")
    try:
        tfk_transformer.load(folder / "translate.onnx", threads=1).translate(
            ["one", "two hundred"], beam_size=2, max_length=4
        )
    except (
        onnxruntime.capi.onnxruntime_pybind11_state.Fail,
        onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument,
    ) as error:
        # onnxruntime opened the graph, but refuses to run it.
        raise ValueError(str(error).splitlines()[0]) from None


def use_recipe(folder: Path) -> None:
    """Read a recipe."""
    from tfk_transformer.training.recipe import Recipe

    Recipe.read(folder / "recipe.toml")


def use_import(folder: Path) -> None:
    """Import a model of another library, and translate."""
    from tfk_transformer.importing.model_import import import_model

    models = [*folder.glob("*.npz"), *folder.glob("model.bin")]
    vocab = [folder / "source.spm"]
    translator = import_model(*models, vocab=vocab) if models else import_model(folder)
    translator.translate(["ka lo", "mi"], beam_size=2, max_length=4)


MADE = Path()  # folders that are made once
KINDS = {
    "config": Kind(copy_bundle, "config.json", mutated_json, use_bundle),
    "metrics": Kind(copy_bundle, "metrics.json", mutated_json, use_bundle),
    "safetensors": Kind(copy_bundle, "model.safetensors", mutated_safetensors, use_bundle),
    "tokenizer": Kind(copy_bundle, "source.model", mutated_tokenizer, use_bundle),
    "recipe": Kind(copy_bundle, "recipe.toml", mutated_bytes, use_recipe),
    "onnx": Kind(copy_onnx, "translate.onnx", mutated_onnx, use_onnx),
    "import config": Kind(copy_marian, "config.json", mutated_json, use_import),
    "import generation": Kind(copy_marian, "generation_config.json", mutated_json, use_import),
    "import vocabulary": Kind(copy_marian, "vocab.json", mutated_json, use_import),
    "import tokenizer": Kind(copy_marian, "source.spm", mutated_tokenizer, use_import),
    "import safetensors": Kind(copy_marian, "model.safetensors", mutated_safetensors, use_import),
    "import npz": Kind(copy_npz, "model.npz", mutated_bytes, use_import),
    "import binary": Kind(copy_binary, "model.bin", mutated_bytes, use_import),
}


def attempt(kind: Kind, folder: Path) -> str:
    """Open a file under limits; return "opened", "refused", or a description of the failure."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (BUSY, BUSY))
    signal.alarm(HUNG)  # ends the process; on a busy machine, opening a model can take a minute
    try:
        kind.use(folder)
    except ValueError as error:
        text = str(error)
        return (
            "refused"
            if text and "\n" not in text and len(text) < 3000
            else f"a message of {len(text)} characters: {text[:300]!r}"
        )
    except BaseException as error:  # also SystemExit: a finding
        return f"{type(error).__name__}: {str(error)[:300]}"
    return "opened"


def run_one(name: str, number: int, keep: Path | None) -> str:
    """Mutate a file and open it in a fork of this process.

    This process has imported all modules, but has not run TensorFlow.
    """
    kind, chance = KINDS[name], random.Random(f"{name} {number}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        kind.make(folder)
        file = folder / kind.file
        file.write_bytes(kind.mutate(file.read_bytes(), chance))
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(writer, attempt(kind, folder).encode("utf-8", "replace"))
            os._exit(0)
        os.close(writer)
        with open(reader, "rb") as pipe:
            found = pipe.read().decode()
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            found = f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
        if found not in ("opened", "refused") and keep:
            shutil.copytree(folder, keep / f"{name}-{number}", dirs_exist_ok=True)
    return found or f"ended with status {os.waitstatus_to_exitcode(status)}"


def worker(job: tuple[str, int, Path | None, float]) -> tuple[str, int, str]:
    """Run one mutation, unless the time limit has passed."""
    name, number, keep, until = job
    return name, number, "" if time.time() > until else run_one(name, number, keep)


def make(folder: Path) -> None:
    """Write the folders that are copied later.

    TensorFlow runs here, so this runs in a different process from the process that forks.
    """
    sys.path.insert(0, str(TESTS))
    import marian_folder
    import marian_npz_folder

    from tfk_transformer.runtime_environment import load_tensorflow

    load_tensorflow()
    marian_folder.write_folder(folder / "marian")
    settings = {
        "num_beams": 4,
        "max_length": 9,
        "bad_words_ids": [[66]],
        "forced_eos_token_id": 0,
        "length_penalty": 0.5,
    }
    (folder / "marian" / "generation_config.json").write_text(json.dumps(settings))
    for name in ("npz", "binary"):
        (folder / name).mkdir()
    marian_npz_folder.write_file(folder / "npz")
    marian_npz_folder.write_file(folder / "binary", student=True, dtype="int8")


def start(folder: Path) -> None:
    """Import the modules that the forks need."""
    global MADE
    MADE = folder
    import onnx_ir  # noqa: F401

    from tfk_transformer.runtime_environment import load_tensorflow

    load_tensorflow()

    from tfk_transformer.export import inspection  # noqa: F401
    from tfk_transformer.export.runtime import onnx_runtime, opening  # noqa: F401
    from tfk_transformer.importing import model_import  # noqa: F401
    from tfk_transformer.pipelines import translator  # noqa: F401
    from tfk_transformer.search import model_functions  # noqa: F401


def main() -> int:
    """Run all mutations and print a line for each kind; return 1 if there were findings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300, help="number of mutations of each kind")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop after this many seconds"
    )
    parser.add_argument("--kind", choices=KINDS, nargs="*", default=list(KINDS))
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of the mutations")
    parser.add_argument("--keep", type=Path, help="folder in which to keep the files of findings")
    given = parser.parse_args()
    numbers = range(given.count) if given.only is None else given.only
    findings, counts = [], {name: {"opened": 0, "refused": 0} for name in given.kind}
    with tempfile.TemporaryDirectory() as temporary:
        folder, spawn = Path(temporary), multiprocessing.get_context("spawn")
        first = spawn.Process(target=make, args=(folder,))
        first.start()
        first.join()
        until = time.time() + given.seconds
        jobs = [(name, number, given.keep, until) for number in numbers for name in given.kind]
        with concurrent.futures.ProcessPoolExecutor(
            os.cpu_count(), spawn, start, (folder,)
        ) as pool:
            for name, number, found in pool.map(worker, jobs):
                if found in ("opened", "refused"):
                    counts[name][found] += 1
                elif found:
                    findings.append(f"{name} {number}: {found}")
                    print(findings[-1], flush=True)
    for name, found in counts.items():
        print(f"{name}: {found['opened']} opened, {found['refused']} refused")
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
