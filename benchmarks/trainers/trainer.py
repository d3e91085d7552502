"""The common parts of the engines of training: requests, and the rate of matrix products."""

import contextlib
import ctypes
import time

PRODUCTS, TRIES = 4, 2


class Trainer:
    """An engine that trains.

    Subclasses have `version`, `parameters`, `product_size`, the size at which products are fastest,
    and the methods below that raise.
    """

    def prepare(self, product_size: int | None = None, first: bool = False):
        """Take a step, which makes buffers again, unless this is the first request."""
        if not first:
            self.train(1)
        return product_size or self.product_size

    def run(self, inputs):
        """Take a training step on each batch."""
        return self.train(None), inputs

    def result(self, outputs):
        """Return the loss, the rate of products, and what the model and the device need."""
        loss, size = outputs
        answer = {
            "loss": loss,
            "rate": self._product_rate(size),
            "parameters": self.parameters,
            "device_megabytes": self.device_megabytes(),
        }
        with contextlib.suppress(OSError, AttributeError):  # only glibc has it
            # All engines wait side by side, and would not fit with the memory they freed.
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        return answer

    def train(self, count: int | None) -> float:
        """Take a step on each of the first `count` batches (None: all); return the mean loss."""
        raise NotImplementedError

    def multiply(self, size: int, count: int) -> None:
        """Compute this number of products of matrices (size, size), one after the other."""
        raise NotImplementedError

    def device_megabytes(self) -> float | None:
        """Return the peak memory of the accelerator; None without one."""
        raise NotImplementedError

    def _product_rate(self, size: int) -> float:
        """Return the FLOP/s of products, the best of a few tries."""
        self.multiply(size, 1)
        return 2 * size**3 * PRODUCTS / min(self._seconds(size) for _ in range(TRIES))

    def _seconds(self, size: int) -> float:
        begun = time.perf_counter()
        self.multiply(size, PRODUCTS)
        return time.perf_counter() - begun
