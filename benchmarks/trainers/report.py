"""The tables of benchmarks/training.py, for a terminal, for a page and for a program."""

import json
import statistics
from pathlib import Path
from typing import NamedTuple

from engines.report import print_tables, write_markdown

from trainers.trial import Measured

# The fastest engine of each name is what the others are compared with.
PEERS = ("PyTorch", "keras-hub")


class Report(NamedTuple):
    """All that was found."""

    conditions: list[str]  # sentences
    measured: list[Measured]

    def speeds(self) -> list[list[str]]:
        """Return the table of speeds, its heading first."""
        heading = [
            "model",
            "vocabulary",
            "batch",
            "engine",
            "target tokens/s",
            *(f"× {peer}" for peer in PEERS),
        ]
        heading += ["s a step", "peak MB", "share of products", "padding"]
        return [
            heading,
            *(self._speed(case, name) for case in self.measured for name in case.engines),
        ]

    def _speed(self, case: Measured, name: str) -> list[str]:
        what = [
            case.model,
            f"{case.vocab_size:,}",
            f"{case.batch_tokens:,}",
            name,
            f"{case.speed(name):,.0f}",
        ]
        ratios = [case.ratio(name, peer) for peer in PEERS]
        what += ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        timed = case.engines[name]
        device = "" if timed.device_megabytes is None else f" + {timed.device_megabytes:,.0f}"
        return [
            *what,
            f"{case.step_seconds(name):.4g}",
            f"{timed.peak_megabytes:,.0f}{device}",
            f"{case.share(name):.1%}",
            f"{case.padding:.1%}",
        ]

    def needs(self) -> list[list[str]]:
        """Return the table of the other figures, its heading first."""
        heading = [
            "model",
            "vocabulary",
            "batch",
            "engine",
            "version",
            "parameters",
            "first time, s",
            "own products, GFLOP/s",
            "loss",
        ]
        rows = [self._needs(case, name) for case in self.measured for name in case.engines]
        return [heading, *rows]

    def _needs(self, case: Measured, name: str) -> list[str]:
        timed = case.engines[name]
        rate = statistics.median(timed.rates) / 1e9
        what = [case.model, f"{case.vocab_size:,}", f"{case.batch_tokens:,}", name, timed.version]
        return [
            *what,
            f"{timed.parameters:,}",
            f"{timed.first_seconds:.1f}",
            f"{rate:,.0f}",
            f"{timed.loss:.3f}",
        ]

    def print(self) -> None:
        """Print both tables."""
        print_tables(self.conditions, (self.speeds(), self.needs()))

    def write_markdown(self, path: Path) -> None:
        """Write both tables as a page has them."""
        write_markdown(path, self.conditions, (self.speeds(), self.needs()))

    def write_json(self, path: Path) -> None:
        """Write every time that was taken, and the figures of the tables."""
        content = {
            "conditions": self.conditions,
            "rows": [_row(case, name) for case in self.measured for name in case.engines],
        }
        path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def _row(case: Measured, name: str) -> dict:
    figures = {field: getattr(case, field) for field in Measured._fields if field != "engines"}
    ratios = {f"ratio_to_{peer}": case.ratio(name, peer) for peer in PEERS}
    speeds = {
        "target_tokens_per_second": case.speed(name),
        "seconds_a_step": case.step_seconds(name),
        "share_of_products": case.share(name),
    }
    return {
        **figures,
        "engine": name,
        **case.engines[name]._asdict(),
        **ratios,
        **speeds,
        "machine_flops": case.machine_rate(),
    }
