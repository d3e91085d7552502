"""Compare every hypothesis of every exported file with that of Keras, on a test split.

python benchmarks/equality.py BUNDLE EXPORT --data SPEC
"""

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

SEARCHES = {
    "greedy": {"beam_size": 1},
    "beam 4, 4 best": {"n_best": 4},
    "drawn": {"beam_size": 2, "n_best": 2, "temperature": 0.8, "seed": 11},
}


def main(
    bundle: Annotated[Path, typer.Argument(help="What `train` left.")],
    export: Annotated[Path, typer.Argument(help="What `export` made of it.")],
    data: Annotated[str, typer.Option(help="As for `tfk-transformer evaluate`.")],
    batch_size: Annotated[int, typer.Option(help="Sentences translated at once.")] = 64,
) -> None:
    """Print how many sentences have the same hypotheses as from Keras, and how far apart the scores
    are.
    """
    from tfk_transformer.datasets.specs import load as load_data
    from tfk_transformer.export.runtime.opening import load

    sources = [pair.source for pair in load_data(data).pairs("test")]
    files = [export / "saved_model", *sorted(export.glob("translate*.onnx"))]
    console, table = Console(), Table("search", "file", "same", "scores apart", "seconds")
    for name, settings in SEARCHES.items():
        expected = load(bundle).translate(sources, batch_size=batch_size, **settings)
        for path in (path for path in files if path.exists()):
            start = time.perf_counter()
            found = load(path).translate(sources, batch_size=batch_size, **settings)
            seconds = time.perf_counter() - start
            same = [
                [h.text for h in a.hypotheses] == [h.text for h in b.hypotheses]
                for a, b in zip(expected, found, strict=True)
            ]
            differences = [
                _difference(a, b)
                for a, b, alike in zip(expected, found, same, strict=True)
                if alike
            ]
            table.add_row(
                name,
                path.name,
                f"{sum(same)} of {len(same)}",
                f"{max(differences, default=0):.1e}",
                f"{seconds:.1f}",
            )
            for number in (
                np.flatnonzero(np.logical_not(same))[:5] if "int8" not in path.name else ()
            ):
                console.print(
                    f"{name}, {path.name}, sentence {number + 1}: "
                    f"{_first_difference(expected[number], found[number])}"
                )
    console.print(table)


def _difference(a, b) -> float:
    return max(
        abs(one.score - other.score) for one, other in zip(a.hypotheses, b.hypotheses, strict=True)
    )


def _first_difference(a, b) -> str:
    pairs = zip(a.hypotheses, b.hypotheses, strict=True)
    place, one, other = next(
        (i, one, other) for i, (one, other) in enumerate(pairs, 1) if one.text != other.text
    )
    return f"hypothesis {place}: '{one.text}' ({one.score:.7f}), '{other.text}' ({other.score:.7f})"


if __name__ == "__main__":
    typer.run(main)
