"""Batches, what is known of all batches of a split, and the rows that a process reads."""

from typing import NamedTuple, TypeAlias

import numpy as np

from tfk_transformer.datasets import Report

Inputs: TypeAlias = dict[str, np.ndarray] | np.ndarray
# The third array contains sample weights.
Batch: TypeAlias = tuple[Inputs, np.ndarray] | tuple[Inputs, np.ndarray, np.ndarray]


class Survey(NamedTuple):
    """Counts of one pass over a split."""

    pairs: int
    source_tokens: int  # end tokens included
    target_tokens: int  # end tokens included; 0 if the targets are labels
    steps: int  # batches in a pass
    padded_tokens: int  # source and target tokens in the batches of a pass, padding included
    report: Report  # the dropped pairs

    @property
    def trained_tokens(self) -> int:
        """The number of tokens for measuring speed.

        These are the target tokens, or the source tokens if the targets are labels.
        """
        return self.target_tokens or self.source_tokens

    @property
    def padding(self) -> float:
        """The proportion of padding in the batches, from 0 to 1."""
        return 1 - (self.source_tokens + self.target_tokens) / self.padded_tokens


class Share(NamedTuple):
    """The part of each batch that a process reads if several processes train together."""

    process: int = 0
    processes: int = 1
    devices: int = 1  # of all processes together; the number of rows of a batch is a multiple of it

    def of(self, rows: int) -> slice:
        """Return the rows of this process."""
        part = rows // self.processes
        return slice(self.process * part, (self.process + 1) * part)
