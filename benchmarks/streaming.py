"""Measure memory use and speed of reading a large corpus: texts that are encoded, or ids from a
cache.

    python benchmarks/streaming.py [--pairs 5000000] [--buffer 131072]

The corpus is generated line by line and not stored. Each way of reading it has its own process,
whose peak memory is printed at the start and after each fifth of the pairs. "cache survey" is the
pass before training that counts pairs and batches.
"""

import argparse
import itertools
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from tfk_transformer.data import batches as batching
from tfk_transformer.data.batches import TokenBatches
from tfk_transformer.datasets import Pair, Source
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

WAYS = ("write cache", "cache", "cache survey", "texts")


class MadeCorpus(Source):
    """Pairs of words that do not exist, made as they are read.

    Args:
        count: of pairs.
    """

    splits = ("train",)

    def __init__(self, count: int):
        super().__init__(f"made:{count}")
        self.count = count

    def _read(self, split):
        random = np.random.default_rng(0)
        syllables = np.array(
            ["ka", "lo", "mi", "ten", "sur", "va", "nel", "or", "pi", "dra", "ush", "em"]
        )
        words = np.array(
            ["".join(random.choice(syllables, n)) for n in random.integers(1, 4, 5_000)]
        )
        for first in range(0, self.count, 10_000):
            lengths = np.minimum(random.geometric(1 / 12, (2, 10_000)) + 2, 60)
            picked = iter(
                words[
                    (random.pareto(1.0, int(lengths.sum())) * 20).astype(np.int64) % len(words)
                ].tolist()
            )
            for number, (source, target) in enumerate(zip(*lengths.tolist(), strict=True), first):
                if number < self.count:
                    yield Pair(
                        " ".join(itertools.islice(picked, source)),
                        " ".join(itertools.islice(picked, target)),
                        str(number),
                    )


def peak() -> float:
    """Return the greatest memory that this process has had, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def vocabulary() -> bytes:
    """Learn a vocabulary from some of the corpus."""
    texts = (text for pair in MadeCorpus(20_000).pairs("train") for text in pair[:2])
    return SubwordTokenizer.train(texts, 1500, "bpe").model


def read(way: str, count: int, cache: str) -> None:
    """Read the corpus one way, and print where memory and time stand at each fifth."""
    data = MadeCorpus(count)
    # Learning takes memory, which would hide what reading takes.
    with ProcessPoolExecutor(1, get_context("spawn")) as elsewhere:
        tokenizer = SubwordTokenizer(elsewhere.submit(vocabulary).result())
    batches = TokenBatches(
        data,
        "train",
        tokenizer,
        tokenizer,
        shuffle=True,
        cache=cache if "cache" in way else None,
        few_shapes=False,
    )
    base, started = peak(), time.perf_counter()
    print(f"0 {base:.0f} 0", flush=True)
    if way in ("write cache", "cache survey"):
        batches.survey()
        print(f"{count} {peak():.0f} {time.perf_counter() - started:.2f}", flush=True)
        return
    seen, marks = 0, [count * fifth // 5 for fifth in range(1, 6)]
    for _, labels in batches._pass(0):
        seen += len(labels)
        while marks and seen >= marks[0]:
            print(f"{marks.pop(0)} {peak():.0f} {time.perf_counter() - started:.2f}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5_000_000)
    parser.add_argument(
        "--buffer", type=int, default=batching.BUFFERED_PAIRS, help="pairs that are mixed at a time"
    )
    parser.add_argument("--way", choices=WAYS, help="measure only this one, without a table")
    parser.add_argument("--cache", help="folder, if only one way is measured")
    options = parser.parse_args()
    batching.BUFFERED_PAIRS = options.buffer
    batching.SHARD_SIZE = min(batching.SHARD_SIZE, options.buffer)
    if options.way:
        read(options.way, options.pairs, options.cache)
        return
    print(
        "| way | pairs | peak memory, MB | seconds | pairs/s |\n| --- | --- | --- | --- | --- |",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        for way in WAYS:
            command = [sys.executable, __file__, "--way", way, "--cache", f"{folder}/cache"]
            command += ["--pairs", str(options.pairs), "--buffer", str(options.buffer)]
            for line in subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True
            ).stdout.splitlines():
                count, memory, seconds = map(float, line.split())
                speed = f"{count / seconds:,.0f}" if count else ""
                print(
                    f"| {way} | {count:,.0f} | {memory:.0f} | {seconds:.1f} | {speed} |", flush=True
                )


if __name__ == "__main__":
    main()
