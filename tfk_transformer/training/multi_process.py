"""Parts of a training run on several devices or processes.

All processes stop at the same step, only one of them saves, and gradients are summed before they
are clipped.
"""

import signal
from typing import Any

import keras

from tfk_transformer.array_types import Tensor
from tfk_transformer.training.callbacks import Stops
from tfk_transformer.training.checkpoints import About, Checkpoints
from tfk_transformer.training.distribution import Team

STEPS_TO_AGREE = 10


class AgreedStops(Stops):
    """Stop all processes at the same training step.

    They stop soon after one of them received a signal or exceeded the time limit.

    Args:
        team: the devices that train.
        minutes: see `Stops`.
        seconds: see `Stops`.
    """

    def __init__(self, team: Team, minutes: float | None = None, seconds: float = 0.0):
        super().__init__(minutes, seconds)
        self.team = team
        self._steps = 0

    def stop_requests(self) -> tuple[str | None, bool]:
        """Return the requests of all processes every ten training steps, and none in between."""
        if self.team.processes == 1:
            return super().stop_requests()
        self._steps += 1
        if self._steps % STEPS_TO_AGREE:
            return None, False
        signal_name, time_is_over = super().stop_requests()
        number = signal.Signals[signal_name] if signal_name else 0
        number, any_time_is_over = self.team.maximum([number, int(time_is_over)])
        return (signal.Signals(number).name if number else None), bool(any_time_is_over)


class ReadOnlyCheckpoints(Checkpoints):
    """The checkpoints of process 0 in the other processes, which only read them."""

    def save(self, model: keras.Model, about: About) -> None:
        """Do nothing: process 0 saves."""

    def update_snapshots(self, model: keras.Model, epoch: int, epochs: list[int]) -> None:
        """Do nothing: process 0 saves and deletes."""

    def clean(self) -> None:
        """Do nothing: process 0 deletes."""


def clipping_sums(
    base: type[keras.optimizers.Optimizer], team: Team
) -> type[keras.optimizers.Optimizer]:
    """Return an optimizer class that sums the gradients of all devices before it clips them.

    Under `tf.distribute`, Keras clips the gradients of each device and sums them afterwards. The
    result differs from that on a single device. Where Keras sums first, the result is `base`.

    Args:
        base: the optimizer class.
        team: the devices that train.
    """
    if not team.exact_clipping:
        return base
    import tensorflow as tf

    class Summing(base):
        def __init__(self, *args: Any, global_clipnorm: float | None = None, **kwargs: Any):
            super().__init__(*args, **kwargs)
            self._max_norm = global_clipnorm

        def apply(
            self, grads: list[Tensor], trainable_variables: list[keras.Variable] | None = None
        ) -> None:
            context = tf.distribute.get_replica_context()
            total = context.all_reduce(
                tf.distribute.ReduceOp.SUM, [tf.convert_to_tensor(gradient) for gradient in grads]
            )
            if self._max_norm:
                total, _ = tf.clip_by_global_norm(total, self._max_norm)
            # Keras sums the gradients of the devices again.
            return super().apply(
                [gradient / context.num_replicas_in_sync for gradient in total], trainable_variables
            )

    Summing.__name__ = base.__name__
    return Summing
