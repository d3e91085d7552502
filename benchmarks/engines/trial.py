"""Compare the engines' translations, and measure their times in turn."""

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engines.batches import Search
from engines.process import RunningEngine

LEAST_AGREEMENT = 0.99
CHECKED_BATCH = 32  # the batch of translations that are compared; it changes none of them


class Trial(NamedTuple):
    """Sentences and the ways to translate them."""

    rows: list[list[int]]  # source ids, end token included, sorted by length
    max_length: int  # of a target, in tokens
    forced: bool = False  # whether every target has just that length
    beams: Sequence[int] = (1, 4)
    batches: Sequence[int] = (1, 8, 32, 128)
    single: int = 200  # sentences translated one by one, spread over the lengths

    def chosen(self, batch_size: int) -> list[list[int]]:
        """Return the sentences for a batch size."""
        return self.rows[:: max(1, len(self.rows) // self.single)] if batch_size == 1 else self.rows

    def search(self, beam_size: int, batch_size: int) -> Search:
        """Return what the engines are asked for."""
        return Search(beam_size, batch_size, self.max_length, self.forced)


class Measured(NamedTuple):
    """A column of the table."""

    beam_size: int
    batch_size: int
    sentences: int
    # By engine, one of each round; none of an engine that does not search so.
    seconds: dict[str, list[float]]

    def speed(self, name: str) -> float:
        """Return sentences a second, the median of the rounds."""
        return self.sentences / statistics.median(self.seconds[name])

    def ratio(self, name: str, peers: Sequence[str]) -> float:
        """Return how many times as fast an engine is as the fastest of its peers: the median of the
        rounds' ratios.
        """
        return ratio_to_best(self.seconds, name, [peer for peer in peers if peer in self.seconds])


def ratio_to_best(seconds: dict[str, list[float]], name: str, peers: Sequence[str]) -> float:
    """Return how many times as fast an engine is as the peer of the least median: the median of the
    rounds' ratios.
    """
    best = min(peers, key=lambda peer: statistics.median(seconds[peer]))
    return statistics.median(b / own for b, own in zip(seconds[best], seconds[name], strict=True))


def translations(engine: RunningEngine, trial: Trial) -> dict[int, list[list[int]]]:
    """Return the target ids of all sentences by beam size."""
    beams = trial.beams[:1] if engine.spec.greedy_only else trial.beams
    return {
        beam: engine.translate(trial.rows, trial.search(beam, CHECKED_BATCH), ids=True)["ids"]
        for beam in beams
    }


def agreement(found: list[list[int]], expected: list[list[int]]) -> float:
    """Return the share of sentences with the same ids."""
    return sum(a == b for a, b in zip(found, expected, strict=True)) / len(expected)


def check_agreement(
    found: dict[int, list], expected: dict[int, list], peer: str, ours: str
) -> None:
    """Refuse to go on with a peer that translates otherwise: its times would be another model's.

    Raises:
        ValueError: with the share of equal sentences.
    """
    for beam, rows in expected.items():
        share = agreement(found[beam], rows)
        if share < LEAST_AGREEMENT:
            raise ValueError(
                f"{peer}: expected the ids of {ours} on at least {LEAST_AGREEMENT:.0%} of "
                f"sentences with beam {beam}, got {share:.1%}; "
                "the two must hold the same weights and search alike, so there is no table."
            )


def measure(
    engines: Sequence[RunningEngine], trials: Mapping[str, Trial], rounds: int
) -> list[Measured]:
    """Time every engine in every column of the table; in each round all take their turn.

    Args:
        engines: the engines.
        trials: the same sentences in the ids of each model, "" among them, by the model's name.
        rounds: how often each engine has its turn.
    """
    return [
        _measure_column(engines, trials, beam, batch, rounds)
        for beam in trials[""].beams
        for batch in trials[""].batches
    ]


def _measure_column(
    engines, trials: Mapping[str, Trial], beam: int, batch: int, rounds: int
) -> Measured:
    search = trials[""].search(beam, batch)
    running = [engine for engine in engines if beam == 1 or not engine.spec.greedy_only]
    rows = {engine.spec.name: trials[engine.spec.model].chosen(batch) for engine in running}
    # Buffers of the largest size are made before the clock starts, for two at once.
    for engine in running:
        engine.translate(rows[engine.spec.name][-2 * batch :], search)
    seconds = {engine.spec.name: [] for engine in running}
    for _ in range(rounds):
        for engine in running:
            seconds[engine.spec.name].append(
                engine.translate(rows[engine.spec.name], search)["seconds"]
            )
    return Measured(beam, batch, len(trials[""].chosen(batch)), seconds)
