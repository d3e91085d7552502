"""Keras callbacks that stop a training run, save each epoch and report progress."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TypeAlias

import keras
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tfk_transformer.training.checkpoints import Checkpoints
from tfk_transformer.training.history import History, duration

Logs: TypeAlias = dict[str, float]


class Stopped(Exception):
    """Raised when a signal asked the training run to stop."""


class Stops(keras.callbacks.Callback):
    """End a training run on a signal (SIGINT, SIGTERM), a time limit or a loss that is not finite.

    Args:
        minutes: limit of the training time, including the time before the run was resumed. None:
            there is no limit.
        seconds: training time before the run was resumed.
    """

    def __init__(self, minutes: float | None = None, seconds: float = 0.0):
        super().__init__()
        self.minutes = minutes
        self.seconds_before = seconds
        self.signal_name: str | None = None

    @property
    def seconds(self) -> float:
        """The training time so far."""
        return self.seconds_before + time.perf_counter() - self._started

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle signals while the block runs; a second signal ends the process at once."""
        self._started = time.perf_counter()
        try:
            former = {
                number: signal.signal(number, self._handle_signal)
                for number in (signal.SIGINT, signal.SIGTERM)
            }
        except ValueError:  # signals can only be handled in the main thread
            former = {}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal_name:
            raise KeyboardInterrupt
        self.signal_name = signal.Signals(number).name

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Note the number of the epoch."""
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Check whether to continue.

        Raises:
            Stopped: if a signal asked to stop.
            FloatingPointError: if the loss is not finite.
        """
        signal_name, time_is_over = self.stop_requests()
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

    def stop_requests(self) -> tuple[str | None, bool]:
        """Return the name of the signal that asked to stop, if any, and whether time is over."""
        return self.signal_name, self.minutes is not None and self.seconds > 60 * self.minutes


class EpochSaver(keras.callbacks.Callback):
    """Save a checkpoint and the weights to average after each epoch, and stop early.

    Training stops early if the monitored metric does not improve.

    Args:
        checkpoints: the folder to write.
        history: gets the metrics of each epoch.
        average: number of epochs whose weights are averaged.
        best: whether these are the best epochs, or the last ones.
        patience: number of epochs without improvement after which to stop. None: never.
        stops: measures the training time.
        tokens: number of tokens in an epoch.
        after_save: called after each save.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        history: History,
        average: int,
        best: bool,
        patience: int | None,
        stops: Stops,
        tokens: int,
        after_save: Callable[[], None],
    ):
        super().__init__()
        self.checkpoints = checkpoints
        self.history = history
        self.average = average
        self.best = best
        self.patience = patience
        self.stops = stops
        self.tokens = tokens
        self.after_save = after_save

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Start the clock."""
        self._started = time.perf_counter()
        self._trained: float | None = None

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Stop the clock: validation does not count as training time."""
        self._trained = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Record the metrics and save."""
        seconds = (self._trained or time.perf_counter()) - self._started
        self.history.rows.append(
            {
                "epoch": epoch + 1,
                **{k: float(v) for k, v in (logs or {}).items()},
                "learning_rate": float(np.asarray(self.model.optimizer.learning_rate)),
                "seconds": round(seconds, 3),
                "tokens_per_second": round(self.tokens / seconds, 1),
            }
        )
        epochs = self.history.epochs_to_average(self.average, self.best)
        with moving_averages(self.model):
            self.checkpoints.update_snapshots(self.model, epoch, epochs)
        self.checkpoints.save(
            self.model, {"rows": self.history.rows, "seconds": self.stops.seconds}
        )
        if self.history.stale(self.patience):
            self.model.stop_training = True
        self.after_save()


class EpochLines(keras.callbacks.Callback):
    """Report a line after each epoch, and once that BLEU does not decide which epoch is best.

    Args:
        epochs: total number of epochs.
        history: the metrics of the finished epochs. `EpochSaver` updates it, so `EpochSaver` must
            come before this callback.
        say: takes the line.
        accuracy: whether the line contains the accuracy.
    """

    def __init__(
        self, epochs: int, history: History, say: Callable[[str], None], accuracy: bool = False
    ):
        super().__init__()
        self.epochs = epochs
        self.history = history
        self.say = say
        self.accuracy = accuracy

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Start the clock."""
        self._started = time.perf_counter()
        self._epochs_before = len(self.history.rows)
        self._has_note = False

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
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
    """Show a progress bar for each epoch on a terminal.

    Args:
        epochs: total number of epochs.
        steps: number of batches in an epoch.
        tokens: number of tokens in an epoch.
        console: the terminal.
    """

    def __init__(self, epochs: int, steps: int, tokens: int, console: Console):
        super().__init__()
        self.epochs = epochs
        self.steps = steps
        self.tokens = tokens / steps
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
        )
        self.progress = Progress(*columns, console=console, transient=True)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Show the bar."""
        self.progress.start()

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Remove the bar."""
        self.progress.stop()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Start the bar of this epoch."""
        self._started = time.perf_counter()
        self._task = self.progress.add_task(
            f"epoch {epoch + 1}/{self.epochs}", total=self.steps, figures=""
        )

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Advance the bar to this training step."""
        speed = self.tokens * (batch + 1) / (time.perf_counter() - self._started)
        rate = float(np.asarray(self.model.optimizer.learning_rate))
        figures = (
            f"loss {(logs or {})['loss']:.3f}  {speed:,.0f} tokens/s  learning rate {rate:.2g}"
        )
        self.progress.update(self._task, completed=batch + 1, figures=figures)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Show the complete bar, and remove it."""
        self.progress.refresh()  # an epoch may be shorter than the interval between two redraws
        self.progress.remove_task(self._task)


@contextlib.contextmanager
def remove_bars_at_end(callbacks: Sequence[keras.callbacks.Callback]) -> Iterator[None]:
    """Remove progress bars at the end: after an error, Keras does not call `on_train_end`."""
    try:
        yield
    finally:
        for callback in callbacks:
            if isinstance(callback, ProgressBar):
                callback.on_train_end()


@contextlib.contextmanager
def moving_averages(model: keras.Model) -> Iterator[None]:
    """Replace a model's weights by their moving averages while the block runs.

    If the optimizer has no moving averages, the weights stay as they are.
    """
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
