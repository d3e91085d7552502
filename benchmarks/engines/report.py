"""The tables of benchmarks/decoding.py, for a terminal, for a page and for a program."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from engines.trial import Measured

# Of /proc/cpuinfo: the instructions that decide the speed of products.
FLAGS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_tile")
# By what `without.py` hides, which is the variable HIDE.
LEFT = {"vnni": ("avx2", "avx512f"), "avx512": ("avx2",)}


class Footprint(NamedTuple):
    """What an engine needs, and how well it translates."""

    name: str
    version: str
    load_seconds: float
    peak_megabytes: float
    file_megabytes: float
    same_ids: dict[int, float]  # by beam size, the share of sentences with our ids
    bleu: dict[int, float]  # by beam size; none where there is no reference


class Report(NamedTuple):
    """All that was found."""

    conditions: list[str]  # sentences
    measured: list[Measured]
    footprints: list[Footprint]
    peers: list[str]  # engines whose fastest the ratios are taken against

    def speeds(self) -> list[list[str]]:
        """Return the table of speeds, its heading first."""
        headings = [
            f"{search_name(column.beam_size)}, batch {column.batch_size}"
            for column in self.measured
        ]
        return [
            ["engine", *headings],
            *(
                [f.name, *(self._cell(column, f.name) for column in self.measured)]
                for f in self.footprints
            ),
        ]

    def _cell(self, column: Measured, name: str) -> str:
        return (
            f"{column.speed(name):.1f} ({column.ratio(name, self.peers):.2f} ×)"
            if name in column.seconds
            else ""
        )

    def needs(self) -> list[list[str]]:
        """Return the table of the other figures, its heading first."""
        beams = sorted({row.beam_size for row in self.measured})
        figures = [
            f"{what}, {search_name(beam)}" for what in ("same ids", "BLEU") for beam in beams
        ]
        table = [["engine", "version", "load s", "peak MB", "files MB", *figures]]
        for f in self.footprints:
            shares = [f"{f.same_ids[beam]:.1%}" if beam in f.same_ids else "" for beam in beams]
            scores = [f"{f.bleu[beam]:.2f}" if beam in f.bleu else "" for beam in beams]
            sizes = [f"{f.load_seconds:.2f}", f"{f.peak_megabytes:.0f}", f"{f.file_megabytes:.1f}"]
            table.append([f.name, f.version, *sizes, *shares, *scores])
        return table

    def print(self) -> None:
        """Print both tables."""
        print_tables(self.conditions, (self.speeds(), self.needs()))

    def write_markdown(self, path: Path) -> None:
        """Write both tables as benchmarks/decoding.md has them."""
        write_markdown(path, self.conditions, (self.speeds(), self.needs()))

    def write_json(self, path: Path) -> None:
        """Write every time that was taken, and the figures of the tables."""
        rows = [
            {
                **{name: getattr(row, name) for name in ("beam_size", "batch_size", "sentences")},
                "engine": name,
                "seconds": seconds,
                "sentences_per_second": row.speed(name),
                "ratio": row.ratio(name, self.peers),
            }
            for row in self.measured
            for name, seconds in row.seconds.items()
        ]
        content = {
            "conditions": self.conditions,
            "rows": rows,
            "engines": [f._asdict() for f in self.footprints],
        }
        path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def search_name(beam_size: int) -> str:
    """Return what a search is called in the tables."""
    return "greedy" if beam_size == 1 else f"beam {beam_size}"


def print_tables(conditions: Sequence[str], tables: Sequence[list[list[str]]]) -> None:
    """Print sentences and tables, each with its heading first."""
    console = Console(highlight=False, width=200)  # wide enough for every engine, also into a file
    console.print("\n".join(conditions), markup=False)
    for heading, *rows in tables:
        table = Table(*heading)
        for row in rows:
            table.add_row(*row)
        console.print(table)


def write_markdown(
    path: Path, conditions: Sequence[str], tables: Sequence[list[list[str]]]
) -> None:
    """Write sentences and tables as a page has them."""
    parts = ["\n".join(f"- {line}" for line in conditions), *map(_markdown, tables)]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def processor() -> str:
    """Return the processor's name, how many there are, and those of its instructions that decide
    the speed of products.
    """
    info = Path("/proc/cpuinfo")
    lines = (
        [line.partition(":") for line in info.read_text().splitlines()] if info.is_file() else []
    )
    names = [value.strip() for key, _, value in lines if key.strip() == "model name"]
    flags = {flag for key, _, value in lines if key.strip() == "flags" for flag in value.split()}
    if not names:
        return "an unknown processor"
    found = (
        f"{len(names)} × {names[0]}; of {', '.join(FLAGS)} it has "
        f"{', '.join(flag for flag in FLAGS if flag in flags) or 'none'}"
    )
    left = LEFT.get(os.environ.get("HIDE", ""))
    return f"{found}, of which these programs found {' and '.join(left)} only" if left else found


def _markdown(table: list[list[str]]) -> str:
    heading, *rows = table
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (heading, ["---"] * len(heading), *rows)
    )
