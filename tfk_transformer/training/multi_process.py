"""What a training does otherwise where several devices or processes train: stop together, save once, clip what they have in common."""

import signal

from tfk_transformer.training.callbacks import Stops
from tfk_transformer.training.checkpoints import Checkpoints
from tfk_transformer.training.distribution import Team

STEPS_TO_AGREE = 10


class AgreedStops(Stops):
    """The same for a team: all processes stop at the same step, a few after one of them was asked to or found the time over.

    Args:
        team: of which this process is one.
        minutes: of `Stops`.
        seconds: of `Stops`.
    """

    def __init__(self, team: Team, minutes: float | None = None, seconds: float = 0.0):
        super().__init__(minutes, seconds)
        self.team = team
        self._steps = 0

    def wishes(self):
        """Ask all processes, now and then."""
        if self.team.processes == 1:
            return super().wishes()
        self._steps += 1
        if self._steps % STEPS_TO_AGREE:
            return None, False
        asked, late = super().wishes()
        number, late = self.team.greatest([signal.Signals[asked] if asked else 0, late])
        return (signal.Signals(number).name if number else None), bool(late)


class FollowedCheckpoints(Checkpoints):
    """What process 0 saves, for the others to read."""

    def save(self, model, about):
        """Leave it to process 0."""

    def keep(self, model, epoch, wanted):
        """Leave it to process 0."""

    def clean(self):
        """Leave it to process 0."""


def clipping_sums(kind: type, team: Team) -> type:
    """Return a kind of optimizer that adds up the gradients of all devices before it clips them, where Keras does not.

    Under `tf.distribute`, Keras clips each device's part of the gradients, and adds up what is left.

    Args:
        kind: of optimizer.
        team: that trains.
    """
    if not team.exact_clipping:
        return kind
    import tensorflow as tf

    class Summing(kind):
        def __init__(self, *args, global_clipnorm=None, **kwargs):
            super().__init__(*args, **kwargs)
            self._greatest_norm = global_clipnorm

        def apply(self, grads, trainable_variables=None):
            context = tf.distribute.get_replica_context()
            total = context.all_reduce(tf.distribute.ReduceOp.SUM, [tf.convert_to_tensor(gradient) for gradient in grads])
            if self._greatest_norm:
                total, _ = tf.clip_by_global_norm(total, self._greatest_norm)
            # Keras adds the devices' gradients up once more.
            return super().apply([gradient / context.num_replicas_in_sync for gradient in total], trainable_variables)

    Summing.__name__ = kind.__name__
    return Summing
