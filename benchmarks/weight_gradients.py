"""Time the products that are the gradients of weights, with rows as they are and as towers read
them.

python benchmarks/weight_gradients.py
ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/weight_gradients.py
    as on a processor that has AVX2 only

A product is that of the columns of two matrices of POSITIONS rows, on one thread. Run it on an idle
machine.
"""

import os
import statistics
import time
from typing import Annotated

import typer
from engines.report import print_tables, processor

from tfk_transformer.runtime_environment import keep_tensor_memory, load_backend

GRADIENTS = (
    (128, 1024),
    (256, 1024),
    (1024, 256),
    (256, 2048),
    (2048, 256),
    (512, 2048),
    (2048, 512),
    (8192, 256),
    (32768, 512),
)


def main(
    positions: Annotated[
        int, typer.Option(min=1, help="rows of both matrices: half a batch of tokens")
    ] = 2052,
    repeats: Annotated[
        int, typer.Option(min=1, help="interleaved rounds, of which the median counts")
    ] = 11,
) -> None:
    """Print GFLOP/s of each gradient, in both ways."""
    load_backend()
    import tensorflow as tf

    keep_tensor_memory()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    from tfk_transformer.training.towers import product_of_columns

    ways = [
        tf.function(way)
        for way in (
            lambda left, right: tf.matmul(left, right, transpose_a=True),
            product_of_columns,
        )
    ]
    table = [["gradient", "rows as they are", "longer rows", "ratio"]]
    for width, height in GRADIENTS:
        rows = [tf.random.normal((positions, size)) for size in (width, height)]
        plain, longer = (
            2 * positions * width * height / seconds / 1e9
            for seconds in medians(ways, rows, repeats)
        )
        table.append(
            [f"{width:,} × {height:,}", f"{plain:.3g}", f"{longer:.3g}", f"{longer / plain:.2f} ×"]
        )
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "none")
    print_tables(
        [
            (
                f"GFLOP/s of one thread, {positions:,} positions. Limit of oneDNN: {limit}. "
                f"Processor: {processor()}."
            )
        ],
        [table],
    )


def medians(ways, rows, repeats: int) -> list[float]:
    """Return the seconds that each way takes."""
    for way in ways:
        way(*rows)
    spent = [[] for _ in ways]
    for _ in range(repeats):
        for way, seconds in zip(ways, spent, strict=True):
            started = time.perf_counter()
            way(*rows)
            seconds.append(time.perf_counter() - started)
    return [statistics.median(seconds) for seconds in spent]


if __name__ == "__main__":
    typer.run(main)
