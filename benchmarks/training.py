"""Compare the speed of a training step of this project's `fit`, keras-hub's layers and
torch.nn.Transformer, on the same batches.

python benchmarks/training.py --data folder:multi30k:de-en

Figures are medians of interleaved rounds. In each round an engine processes the batches once:
forward pass, loss with label smoothing over the real tokens, backward pass, clipping by the global
norm, Adam. Speed is in real target tokens per second, and relative to the fastest PyTorch and the
fastest keras-hub. "Share of products" is the rate of model FLOPs (trainers/counts.py has the
formula), divided by the rate that the fastest library reaches in products of large matrices of the
same dtype in the same rounds. Engines whose libraries are not installed are left out, and the
report names them. Waiting engines keep their memory; --at-once loads them in smaller groups.

`pip install -e '.[bench]'` installs the peers. They can also be in other environments:
--peers-python needs torch, and --hub-python keras-hub and this project.
"""

import math
import statistics
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from harness import (
    Answer,
    EngineSpec,
    RunningEngine,
    arguments_parser,
    processor,
    ratio_to_best,
    report,
    started,
    take_turns,
)
from trainers.batches import real_batches, spread
from trainers.counts import model_flops, padding_share, target_tokens
from trainers.task import Sizes, Task, write_task

from tfk_transformer.config.presets import PRESETS

PEERS = ("PyTorch", "keras-hub")


class Timed(NamedTuple):
    """An engine on a task."""

    version: str
    first_seconds: float  # of the first time through the batches, with everything compiled then
    answers: list[Answer]  # one of each round


class Case(NamedTuple):
    """A model, its batches, and the engines that trained it."""

    model: str
    task: Task
    batch_tokens: int
    engines: dict[str, Timed]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark. An error prints one line and exits with status 1."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            conditions, cases = run(options, Path(folder))
        except (ValueError, ImportError, OSError) as error:
            sys.exit(f"training.py: {error}")
    report(conditions, [_speeds(cases), _needs(cases)], options.markdown)


def _parse(arguments: Sequence[str] | None) -> Namespace:
    parser = arguments_parser(__doc__)
    add = parser.add_argument
    add("--data", metavar="SPEC", required=True, help="see docs/data.md; its split 'train'")
    add("--model", action="append", choices=("small", "base", "big"), help="presets (small)")
    add("--vocabulary", action="append", type=int, metavar="N", help="above 8000: random ids")
    add("--batch-tokens", action="append", type=int, metavar="N", help="of a side, padded (4096)")
    add("--max-length", type=int, default=128, help="of a side in tokens (128)")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add("--steps", type=int, default=8, help="batches of a round, spread over the lengths (8)")
    add("--repeats", type=int, default=5, help="rounds (5)")
    add("--threads", type=int, default=2, help="of each engine (2)")
    add("--product-size", type=int, metavar="N", help="rows of matrices (2048; on a GPU 8192)")
    add("--at-once", type=int, metavar="N", help="engines in memory side by side (all)")
    add("--without", action="append", default=[], metavar="NAME", help="leave out engines NAME…")
    add("--peers-python", default=sys.executable, metavar="PATH", help="has torch")
    add("--hub-python", default=sys.executable, metavar="PATH", help="has keras-hub")
    return parser.parse_args(arguments)


def run(options: Namespace, folder: Path) -> tuple[list[str], list[Case]]:
    """Measure every model with every vocabulary and size of batch.

    Raises:
        ValueError: if there is nothing to train on, or no engine runs.
    """
    left_out: list[str] = []

    def leave_out(message: str) -> None:
        if message not in left_out:
            print(f"Left out: {message}", file=sys.stderr, flush=True)
            left_out.append(message)

    cases = []
    for model in options.model or ["small"]:
        for vocab_size in options.vocabulary or [8000]:
            for tokens in options.batch_tokens or [4096]:
                task = task_of(options, model, vocab_size, tokens)
                path = folder / str(len(cases))
                write_task(task, path)
                specs = [
                    spec
                    for spec in engine_specs(options, path)
                    if not any(map(spec.name.startswith, options.without))
                ]
                engines = trained(specs, options, leave_out)
                cases.append(Case(model, task, tokens, engines))
    return [*_conditions(options), *(f"Left out: {message}" for message in left_out)], cases


def task_of(options: Namespace, model: str, vocab_size: int, tokens: int) -> Task:
    """Return a preset's model and the batches to train it on."""
    if tokens < options.max_length:
        raise ValueError(
            f"--batch-tokens: expected at least --max-length {options.max_length}, got {tokens}."
        )
    sizes = {name: PRESETS[model][name] for name in Sizes._fields if name != "vocab_size"}
    batches = real_batches(options.data, vocab_size, tokens, options.max_length)
    return Task(
        Sizes(**sizes, vocab_size=vocab_size), spread(batches, options.steps), options.dtype
    )


def engine_specs(options: Namespace, path: Path) -> list[EngineSpec]:
    """Return every engine of a task in a folder."""
    ways = {
        "TensorFlow": ("tensorflow", "plain"),
        "TensorFlow XLA": ("tensorflow", "xla"),
        "JAX": ("jax", "xla"),
    }
    own, hub = "trainers.keras_model", "trainers.keras_hub_model"
    engines = [
        ("fit, TensorFlow towers", own, ("tensorflow", "towers"), sys.executable),  # as `train`
        *((f"fit, {name}", own, way, sys.executable) for name, way in ways.items()),
        *((f"keras-hub, {name}", hub, way, options.hub_python) for name, way in ways.items()),
        ("our loss, keras-hub's layers", hub, (*ways["TensorFlow"], "ours"), options.hub_python),
        ("PyTorch eager", "trainers.torch_steps", ("eager",), options.peers_python),
        ("PyTorch compiled", "trainers.torch_steps", ("compiled",), options.peers_python),
    ]
    return [
        EngineSpec(name, module, (str(path), *way), options.threads, python)
        for name, module, way, python in engines
    ]


def trained(specs: Sequence[EngineSpec], options: Namespace, leave_out) -> dict[str, Timed]:
    """Train every engine that runs here on a task."""
    size = options.at_once or max(len(specs), 1)
    found: dict[str, Timed] = {}
    for group in (specs[first : first + size] for first in range(0, len(specs), size)):
        with started(group, leave_out) as engines:
            first = {engine: _first_answer(engine, options, leave_out) for engine in engines}
            runs = {
                engine.spec.name: partial(engine.ask, product_size=options.product_size)
                for engine, answer in first.items()
                if answer
            }
            answers = take_turns(runs, options.repeats)
            for engine in engines:
                if given := answers.get(engine.spec.name):
                    found[engine.spec.name] = Timed(engine.version, first[engine].seconds, given)
    if not found:
        raise ValueError("engines: expected at least one that runs here, got none.")
    return found


def _first_answer(engine: RunningEngine, options: Namespace, leave_out) -> Answer | None:
    """Return the answer in which the engine compiles; None if it fails or learns nothing."""
    try:
        answer = engine.ask(first=True, product_size=options.product_size)
    except ValueError as error:
        leave_out(str(error))
        return None
    if not math.isfinite(answer.result["loss"]):
        leave_out(f"{engine.spec.name}: expected a finite loss, got {answer.result['loss']}.")
        return None
    return answer


def _seconds(case: Case) -> dict[str, list[float]]:
    return {name: [a.seconds for a in timed.answers] for name, timed in case.engines.items()}


def _rates(case: Case) -> dict[str, float]:
    """Return the FLOP/s of each engine's own products."""
    return {
        name: statistics.median(answer.result["rate"] for answer in timed.answers)
        for name, timed in case.engines.items()
    }


def _case(case: Case, name: str) -> list[str]:
    return [case.model, f"{case.task.sizes.vocab_size:,}", f"{case.batch_tokens:,}", name]


def _speeds(cases: Sequence[Case]) -> list[list[str]]:
    heading = ["model", "vocabulary", "batch", "engine", "target tokens/s"]
    heading += [*(f"× {peer}" for peer in PEERS), "s a step", "peak MB", "share of products"]
    return [[*heading, "padding"], *(_speed(case, name) for case in cases for name in case.engines)]


def _speed(case: Case, name: str) -> list[str]:
    seconds, batches = _seconds(case), case.task.batches
    own, last = statistics.median(seconds[name]), case.engines[name].answers[-1]
    device = last.result["device_megabytes"]
    share = model_flops(case.task.sizes, batches) / own / max(_rates(case).values())
    return [
        *_case(case, name),
        f"{target_tokens(batches) / own:,.0f}",
        *(_ratio(seconds, name, peer) for peer in PEERS),
        f"{own / len(batches):.4g}",
        f"{last.peak_megabytes:,.0f}{'' if device is None else f' + {device:,.0f}'}",
        f"{share:.1%}",
        f"{padding_share(batches):.1%}",
    ]


def _ratio(seconds: dict[str, list[float]], name: str, peer: str) -> str:
    ratio = ratio_to_best(seconds, name, [other for other in seconds if other.startswith(peer)])
    return "" if ratio is None else f"{ratio:.2f}"


def _needs(cases: Sequence[Case]) -> list[list[str]]:
    heading = ["model", "vocabulary", "batch", "engine", "version", "parameters", "first time, s"]
    table = [[*heading, "own products, GFLOP/s", "loss"]]
    for case in cases:
        for name, timed in case.engines.items():
            last = timed.answers[-1].result
            table.append(
                [
                    *_case(case, name),
                    timed.version,
                    f"{last['parameters']:,}",
                    f"{timed.first_seconds:.1f}",
                    f"{_rates(case)[name] / 1e9:,.0f}",
                    f"{last['loss']:.3f}",
                ]
            )
    return table


def _conditions(options: Namespace) -> list[str]:
    return [
        f"Split 'train' of {options.data}; {options.steps} batches spread over its lengths; median "
        f"of {options.repeats} interleaved rounds.",
        f"{options.dtype}; threads of each engine: {options.threads}. Processor: {processor()}.",
        "Pre-norm, one embedding for source, target and output, dropout 0.1 on embeddings and "
        "residual connections, label smoothing 0.1, gradients clipped to a norm of 1, Adam.",
    ]


if __name__ == "__main__":
    main()
