"""Measure all engines on the same task, in turn."""

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from engines.process import EngineSpec, RunningEngine
from engines.trial import ratio_to_best

from trainers.counts import model_flops, padding_share, target_tokens
from trainers.task import Task, write_task


class RunningTrainer(RunningEngine):
    """An engine of this package, loaded in a process of its own."""

    worker = "trainers.worker"

    def train(self, first: bool = False, product_size: int | None = None) -> dict:
        """Train on all batches once; return what `trainers.worker` answers.

        Raises:
            ValueError: if it fails, or its loss is no number.
        """
        answer = self.ask(first=first, product_size=product_size)
        if not math.isfinite(answer["loss"]):
            self.close()
            raise ValueError(
                f"{self.spec.name}: expected a finite loss, got {answer['loss']}; its times are "
                "of no use."
            )
        return answer


class Case(NamedTuple):
    """What is trained, in words and numbers."""

    model: str
    vocab_size: int
    batch_tokens: int
    task: Task


class Timed(NamedTuple):
    """What an engine answered."""

    version: str
    # Of the first time through the batches, with everything that is compiled then.
    first_seconds: float
    seconds: list[float]  # of each round
    rates: list[float]  # of each round, FLOP/s of its own product of matrices
    parameters: int
    loss: float  # of the last round
    peak_megabytes: float  # of the process
    device_megabytes: float | None  # of the accelerator


class Measured(NamedTuple):
    """All engines on one case."""

    model: str
    vocab_size: int
    batch_tokens: int
    steps: int  # a round
    target_tokens: int  # a round
    flops: int  # a round, see `trainers.counts`
    padding: float  # share of both sides' tokens
    engines: dict[str, Timed]

    def speed(self, name: str) -> float:
        """Return real target tokens a second, the median of the rounds."""
        return self.target_tokens / statistics.median(self.engines[name].seconds)

    def step_seconds(self, name: str) -> float:
        """Return seconds a step, the median of the rounds."""
        return statistics.median(self.engines[name].seconds) / self.steps

    def ratio(self, name: str, kind: str) -> float | None:
        """Return how many times as fast an engine is as the fastest whose name begins with `kind`;
        None if there is none.
        """
        peers = [peer for peer in self.engines if peer.startswith(kind)]
        return (
            ratio_to_best(
                {peer: timed.seconds for peer, timed in self.engines.items()}, name, peers
            )
            if peers
            else None
        )

    def machine_rate(self) -> float:
        """Return the machine's FLOP/s in products of matrices: that of the fastest library, each by
        the median of the rounds.
        """
        return max(statistics.median(timed.rates) for timed in self.engines.values())

    def share(self, name: str) -> float:
        """Return the model FLOPs a second as a share of the machine's."""
        return self.flops / statistics.median(self.engines[name].seconds) / self.machine_rate()


class Options(NamedTuple):
    """How to measure."""

    threads: int
    rounds: int
    product_size: int | None = None  # None: each engine's own choice
    at_once: int | None = None  # number of engines that are loaded at the same time; None: all


def measure(
    case: Case,
    specs: Sequence[EngineSpec],
    options: Options,
    folder: Path,
    say: Callable[[str], None],
) -> Measured:
    """Train one case on every engine that runs here.

    Args:
        case: what.
        specs: the engines; the task is written for them into `folder`.
        options: how.
        folder: new, for the task.
        say: takes a line about each engine that is left out, with its reason.

    Raises:
        ValueError: if an engine fails later than in its first time through, or none is left.
    """
    write_task(case.task, folder)
    at_once, engines = options.at_once or len(specs), {}
    for first in range(0, len(specs), at_once):
        placed = [spec._replace(path=folder) for spec in specs[first : first + at_once]]
        engines |= _in_turn(placed, options, say)
    if not engines:
        raise ValueError(
            "engines: expected at least one that runs here, got none; see the lines above."
        )
    batches = case.task.batches
    counts = (
        len(batches),
        target_tokens(batches),
        model_flops(case.task.sizes, batches),
        padding_share(batches),
    )
    return Measured(case.model, case.vocab_size, case.batch_tokens, *counts, engines)


def _in_turn(specs, options: Options, say) -> dict[str, Timed]:
    """Load engines side by side, and train each once in every round."""
    running, firsts = [], {}
    try:
        for spec in specs:
            try:
                engine = RunningTrainer(spec, options.threads)
                firsts[spec.name] = engine.train(first=True, product_size=options.product_size)
            except ValueError as error:
                say(f"Left out: {error}")
                continue
            running.append(engine)
        answers = {engine.spec.name: [] for engine in running}
        for _ in range(options.rounds):
            for engine in running:
                answers[engine.spec.name].append(engine.train(product_size=options.product_size))
    finally:
        for engine in running:
            engine.close()
    return {
        e.spec.name: _timed(e.loaded["version"], firsts[e.spec.name], answers[e.spec.name])
        for e in running
    }


def _timed(version: str, first: dict, answers: list[dict]) -> Timed:
    last = answers[-1]
    return Timed(
        version=version,
        first_seconds=first["seconds"],
        seconds=[answer["seconds"] for answer in answers],
        rates=[answer["rate"] for answer in answers],
        **{
            name: last[name]
            for name in ("parameters", "loss", "peak_megabytes", "device_megabytes")
        },
    )
