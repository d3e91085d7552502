"""The metrics of each epoch, and callbacks that stop a run, measure BLEU and report progress."""

import contextlib
import itertools
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TypeAlias

import keras
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tfk_transformer.data.batches import TokenBatches
from tfk_transformer.evaluation import bleu_metric, evaluate
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.training.distribution import Team
from tfk_transformer.training.recipe import Recipe

STEPS_TO_AGREE = 10
SAMPLE_COUNT = 3

Metrics: TypeAlias = dict[str, float]


class History:
    """The metrics of each epoch, compared by "val_loss" or "val_bleu".

    Early stopping and the choice of epochs depend only on these metrics, so that a resumed training
    run makes the same decisions as an uninterrupted one.
    """

    def __init__(self, monitor: str = "val_loss", rows: Sequence[Metrics] = ()):
        self.monitor = monitor
        self.rows = list(rows)

    def _measured(self) -> list[int]:
        """Return the epochs for which the monitored metric was measured."""
        return [epoch for epoch, row in enumerate(self.rows) if row.get(self.monitor) is not None]

    def ranked(self) -> list[int]:
        """Return the epochs for which the monitored metric was measured, best first.

        Among equal epochs, the lower validation loss decides, then the earlier epoch.
        """

        def key(epoch: int) -> list[float]:
            row = self.rows[epoch]
            sign = -1 if self.monitor == "val_bleu" else 1
            values = [sign * row[self.monitor], row.get("val_loss", 0.0)]
            return [math.inf if math.isnan(value) else value for value in values]

        return sorted(self._measured(), key=key)

    def undecided(self) -> str | None:
        """Return a note if BLEU is monitored, and equal in several epochs and different in none."""
        values = [self.rows[epoch][self.monitor] for epoch in self._measured()]
        if self.monitor != "val_bleu" or len(values) < 2 or len(set(values)) > 1:
            return None
        reason = "" if values[0] else " (it is always 0 for targets of fewer than four words)"
        return f"BLEU is {values[0]:.2f} in every epoch{reason}, so the validation loss decides"

    def epochs_to_average(self, count: int, best: bool) -> list[int]:
        """Return the epochs whose weights are averaged: the `count` best ones, or the last ones."""
        epochs = self.ranked() if best else range(len(self.rows))[::-1]
        return sorted(epochs[:count])

    def stale(self, patience: int | None) -> bool:
        """Return whether `patience` epochs, if it is not None, have passed since the best one."""
        ranked = self.ranked()
        return patience is not None and bool(ranked) and len(self.rows) - 1 - ranked[0] >= patience

    def columns(self) -> dict[str, list[float | None]]:
        """Return the values of each metric by epoch, None where it was not measured."""
        names = dict.fromkeys(itertools.chain.from_iterable(self.rows))
        return {name: [row.get(name) for row in self.rows] for name in names}

    def summary(self, seconds: float) -> str:
        """Return a line with the number of epochs, the training time and the best epoch, if any."""
        line = f"{len(self.rows)} epochs in {duration(seconds)}"
        if not (ranked := self.ranked()):
            return line
        metric = "val_loss" if self.undecided() else self.monitor
        return (
            f"{line}, best {metric.removeprefix('val_')} {self.rows[ranked[0]][metric]:.3f} after "
            f"epoch {ranked[0] + 1}"
        )


def duration(seconds: float) -> str:
    """Return a time in hours, minutes and seconds, such as "2 h 1 min" or "7 s"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Stopped(Exception):
    """Raised when a signal asked the training run to stop."""


class Stops(keras.callbacks.Callback):
    """End a training run on a signal (SIGINT, SIGTERM), a time limit or a loss that is not finite.

    All processes of a team stop at the same training step. The training time includes the `seconds`
    before the run was resumed.
    """

    def __init__(self, team: Team, minutes: float | None, seconds: float):
        super().__init__()
        self.team = team
        self.minutes = minutes
        self.seconds_before = seconds
        self.signal_name: str | None = None
        self._steps = 0

    @property
    def seconds(self) -> float:
        """The training time so far."""
        return self.seconds_before + time.perf_counter() - self._started

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals while the block runs; a second signal ends the process at once."""
        self._started = time.perf_counter()

        def handle(number: int, frame: FrameType | None) -> None:
            if self.signal_name:
                raise KeyboardInterrupt
            self.signal_name = signal.Signals(number).name

        try:
            former = {
                number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)
            }
        except ValueError:  # signals can only be handled in the main thread
            former = {}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def on_epoch_begin(self, epoch: int, logs: Metrics | None = None) -> None:
        """Note the number of the epoch."""
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Metrics | None = None) -> None:
        """Check whether to continue."""
        signal_name, time_is_over = self._requests()
        if signal_name:
            raise Stopped(signal_name)
        loss = (logs or {})["loss"]
        if not math.isfinite(loss):
            rate = float(np.asarray(self.model.optimizer.learning_rate))
            step = int(np.asarray(self.model.optimizer.iterations))
            raise FloatingPointError(
                f"the loss became {loss} in epoch {self.epoch + 1}, at update {step}, learning "
                f"rate {rate:.3g}"
            )
        if time_is_over:
            self.model.stop_training = True

    def _requests(self) -> tuple[str | None, bool]:
        """Return the name of the signal that asked to stop, if any, and whether time is over.

        Several processes exchange their requests every ten training steps.
        """
        self._steps += 1
        if self.team.processes > 1 and self._steps % STEPS_TO_AGREE:
            return None, False
        time_is_over = self.minutes is not None and self.seconds > 60 * self.minutes
        if self.team.processes == 1:
            return self.signal_name, time_is_over
        number = signal.Signals[self.signal_name] if self.signal_name else 0
        number, any_time_is_over = self.team.maximum([number, int(time_is_over)])
        return (signal.Signals(number).name if number else None), bool(any_time_is_over)


class BleuEvaluation(keras.callbacks.Callback):
    """Measure BLEU on the validation pairs, and add it to the metrics of the epoch as "val_bleu".

    The translator's model gets the weights of the trained one. `logs` is the TensorBoard folder for
    sample translations.
    """

    def __init__(
        self, translator: Translator, validation: TokenBatches, recipe: Recipe, logs: Path | None
    ):
        super().__init__()
        self.translator = translator
        self.validation = validation
        self.recipe = recipe
        self.logs = logs

    def on_epoch_end(self, epoch: int, logs: Metrics | None = None) -> None:
        """Measure BLEU if the number of the epoch is a multiple of `evaluate_every`."""
        if (epoch + 1) % self.recipe.evaluate_every:
            return
        with moving_averages(self.model):
            self.translator.model.set_weights(self.model.get_weights())
        data = self.validation.data
        pairs = list(data.pairs(self.validation.split))
        scores, translations = evaluate(
            self.translator,
            pairs,
            target_language=data.target_language,
            beam_size=self.recipe.evaluation_beam,
        )
        # Without four right words in a row, BLEU consists of sacreBLEU's smoothing, which says
        # nothing about the model.
        targets = [pair.target for pair in pairs]
        metric = bleu_metric(targets, data.target_language)
        has_matches = metric.corpus_score(translations, [targets]).counts[-1] > 0
        if logs is not None:
            logs["val_bleu"] = scores.bleu if has_matches else 0.0
        if self.logs is not None:
            import tensorflow as tf

            samples = zip(pairs[:SAMPLE_COUNT], translations, strict=False)
            text = [f"{pair.source}  \n→ {best}  \n({pair.target})" for pair, best in samples]
            with tf.summary.create_file_writer(str(self.logs / "validation")).as_default():
                tf.summary.text("translations", text, step=epoch)


class EpochLines(keras.callbacks.Callback):
    """Report a line after each epoch, and once that BLEU does not decide which epoch is best.

    `EpochSaver` updates the history, so it must come before this callback.
    """

    def __init__(
        self, epochs: int, history: History, say: Callable[[str], None], accuracy: bool = False
    ):
        super().__init__()
        self.epochs = epochs
        self.history = history
        self.say = say
        self.accuracy = accuracy

    def on_train_begin(self, logs: Metrics | None = None) -> None:
        """Start the clock."""
        self._started = time.perf_counter()
        self._epochs_before = len(self.history.rows)
        self._has_note = False

    def on_epoch_end(self, epoch: int, logs: Metrics | None = None) -> None:
        """Report the epoch."""
        row = self.history.rows[-1]
        epochs_done = len(self.history.rows) - self._epochs_before
        seconds_per_epoch = (time.perf_counter() - self._started) / epochs_done
        left = seconds_per_epoch * (self.epochs - epoch - 1)
        figures = [f"loss {row['loss']:.3f}"]
        figures += [f"validation {row['val_loss']:.3f}"] if "val_loss" in row else []
        figures += [f"BLEU {row['val_bleu']:.2f}"] if "val_bleu" in row else []
        if self.accuracy:
            figures += [f"accuracy {row.get('val_accuracy', row['accuracy']):.1%}"]
        figures += [
            f"{row['tokens_per_second']:,.0f} tokens/s",
            f"learning rate {row['learning_rate']:.2g}",
        ]
        self.say(
            f"epoch {epoch + 1}/{self.epochs}: {', '.join(figures)}, {duration(row['seconds'])}, "
            f"{duration(left)} left"
        )
        note = self.history.undecided()
        if note and not self._has_note:
            self._has_note = True
            self.say(f"note: {note}")


class ProgressBar(keras.callbacks.Callback):
    """Show a progress bar for each epoch, of a number of batches and tokens, on a terminal."""

    def __init__(self, epochs: int, steps: int, tokens: int, console: Console):
        super().__init__()
        self.epochs = epochs
        self.steps = steps
        self.tokens = tokens / steps
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )

    def on_train_begin(self, logs: Metrics | None = None) -> None:
        """Show the bar."""
        self.progress.start()

    def on_train_end(self, logs: Metrics | None = None) -> None:
        """Remove the bar."""
        self.progress.stop()

    def on_epoch_begin(self, epoch: int, logs: Metrics | None = None) -> None:
        """Start the bar of this epoch."""
        self._started = time.perf_counter()
        self._task = self.progress.add_task(
            f"epoch {epoch + 1}/{self.epochs}", total=self.steps, figures=""
        )

    def on_train_batch_end(self, batch: int, logs: Metrics | None = None) -> None:
        """Advance the bar to this training step."""
        speed = self.tokens * (batch + 1) / (time.perf_counter() - self._started)
        rate = float(np.asarray(self.model.optimizer.learning_rate))
        figures = (
            f"loss {(logs or {})['loss']:.3f}  {speed:,.0f} tokens/s  learning rate {rate:.2g}"
        )
        self.progress.update(self._task, completed=batch + 1, figures=figures)

    def on_epoch_end(self, epoch: int, logs: Metrics | None = None) -> None:
        """Show the complete bar, and remove it."""
        self.progress.refresh()  # an epoch may be shorter than the interval between two redraws
        self.progress.remove_task(self._task)


@contextlib.contextmanager
def moving_averages(model: keras.Model) -> Iterator[None]:
    """Replace a model's weights by their moving averages, if any, while the block runs."""
    # In float16, Keras wraps the optimizer to scale the loss.
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if not optimizer.use_ema:
        yield
        return
    raw = [np.asarray(variable) for variable in model.trainable_variables]
    optimizer.finalize_variable_values(model.trainable_variables)
    try:
        yield
    finally:
        for variable, value in zip(model.trainable_variables, raw, strict=True):
            variable.assign(value)
