"""Variants of the parts of a training run for several devices or processes: they stop together,
save once and clip the common gradients.
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
    """Stop all processes at the same training step, soon after one of them got a signal or exceeded
    the time limit.

    Args:
        team: the devices that train.
        minutes: see `Stops`.
        seconds: see `Stops`.
    """

    def __init__(self, team: Team, minutes: float | None = None, seconds: float = 0.0):
        super().__init__(minutes, seconds)
        self.team = team
        self._steps = 0

    def wishes(self) -> tuple[str | None, bool]:
        """Return the wishes of all processes every ten training steps, and none in between."""
        if self.team.processes == 1:
            return super().wishes()
        self._steps += 1
        if self._steps % STEPS_TO_AGREE:
            return None, False
        asked, late = super().wishes()
        number, any_late = self.team.greatest([signal.Signals[asked] if asked else 0, int(late)])
        return (signal.Signals(number).name if number else None), bool(any_late)


class FollowedCheckpoints(Checkpoints):
    """The checkpoints that process 0 writes, as the other processes see them: they only read."""

    def save(self, model: keras.Model, about: About) -> None:
        """Do nothing: process 0 does it."""

    def keep(self, model: keras.Model, epoch: int, wanted: list[int]) -> None:
        """Do nothing: process 0 does it."""

    def clean(self) -> None:
        """Do nothing: process 0 does it."""


def clipping_sums(
    kind: type[keras.optimizers.Optimizer], team: Team
) -> type[keras.optimizers.Optimizer]:
    """Return an optimizer class that sums the gradients of all devices before it clips them, if
    Keras does not.

    Under `tf.distribute`, Keras clips each device's gradients and sums them afterwards, which gives
    another result than one device.

    Args:
        kind: the optimizer class.
        team: the devices that train.
    """
    if not team.exact_clipping:
        return kind
    import tensorflow as tf

    class Summing(kind):
        def __init__(self, *args: Any, global_clipnorm: float | None = None, **kwargs: Any):
            super().__init__(*args, **kwargs)
            self._greatest_norm = global_clipnorm

        def apply(
            self, grads: list[Tensor], trainable_variables: list[keras.Variable] | None = None
        ) -> None:
            context = tf.distribute.get_replica_context()
            total = context.all_reduce(
                tf.distribute.ReduceOp.SUM, [tf.convert_to_tensor(gradient) for gradient in grads]
            )
            if self._greatest_norm:
                total, _ = tf.clip_by_global_norm(total, self._greatest_norm)
            # Keras sums the gradients of the devices once more.
            return super().apply(
                [gradient / context.num_replicas_in_sync for gradient in total], trainable_variables
            )

    Summing.__name__ = kind.__name__
    return Summing
