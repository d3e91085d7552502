"""Random sentence pairs in memory, and the rows of batches that are made of them."""

import itertools

import numpy as np

from tfk_transformer.datasets import Pair, Source

WORDS = (
    "der die das Bär Mädchen Garten Straße grün groß läuft spielt und über am Tisch zwei drei"
).split()
BUDGET, LONGEST = 149, 31


class Memory(Source):
    """Pairs from a list; each split gives the same."""

    splits = ("train", "validation")

    def __init__(self, sides):
        super().__init__("memory")
        self.sides = sides

    def _read(self, split):
        return (
            Pair(source, target, f"{split}:{place}")
            for place, (source, target) in enumerate(self.sides, 1)
        )


def sentences(count, longest, seed):
    random = np.random.default_rng(seed)
    return [
        " ".join(random.choice(WORDS, size=random.integers(1, longest + 1))) for _ in range(count)
    ]


SOURCES, TARGETS = sentences(211, 13, seed=1), sentences(211, 11, seed=2)
SIDES = [*zip(SOURCES, TARGETS, strict=True), (SOURCES[0], TARGETS[0])]  # one pair twice


def taken(dataset):
    """The batches of one epoch as (source, target, labels) arrays."""
    return [
        (inputs["source"].numpy(), inputs["target"].numpy(), labels.numpy())
        for inputs, labels in dataset
    ]


def unpadded(epoch):
    """The pairs of an epoch in their order, rows of padding left out."""
    rows = itertools.chain.from_iterable(zip(*batch, strict=True) for batch in epoch)
    return [
        tuple(tuple(side[side != 0].tolist()) for side in sides)
        for sides in rows
        if any(side.any() for side in sides)
    ]
