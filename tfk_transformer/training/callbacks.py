"""Callbacks of `fit`: what ends a training, what it leaves after each epoch, and what is said meanwhile."""

import contextlib
import math
import signal
import time
from collections.abc import Callable

import keras
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tfk_transformer.training.checkpoints import Checkpoints
from tfk_transformer.training.history import History


class Stopped(Exception):
    """A training that was asked to stop."""


class Stops(keras.callbacks.Callback):
    """End a training that is asked to (SIGINT, SIGTERM), out of time, or lost.

    Args:
        minutes: of training, those before a resumption included; None: no limit.
        seconds: spent before.
    """

    def __init__(self, minutes: float | None = None, seconds: float = 0.0):
        super().__init__()
        self.minutes = minutes
        self.seconds_before = seconds
        self.asked = None

    @property
    def seconds(self) -> float:
        """Time spent in all."""
        return self.seconds_before + time.perf_counter() - self._started

    @contextlib.contextmanager
    def listening(self):
        """Take signals while the block runs; a second one ends the process at once."""
        self._started = time.perf_counter()
        try:
            former = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not in the main thread, which alone has signals
            former = {}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    def _ask(self, number, frame):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = signal.Signals(number).name

    def on_epoch_begin(self, epoch, logs=None):
        """Note where the training is."""
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        """Look whether to go on.

        Raises:
            Stopped: if a signal asked to stop.
            FloatingPointError: if the loss is no number any more.
        """
        asked, late = self.wishes()
        if asked:
            raise Stopped(asked)
        if not math.isfinite(logs["loss"]):
            rate = float(np.asarray(self.model.optimizer.learning_rate))
            step = int(np.asarray(self.model.optimizer.iterations))
            raise FloatingPointError(
                f"the loss became {logs['loss']} in epoch {self.epoch + 1}, at update {step}, learning rate {rate:.3g}"
            )
        if late:
            self.model.stop_training = True

    def wishes(self) -> tuple[str | None, bool]:
        """Return the signal that asked to stop, if one did, and whether the time is over."""
        return self.asked, self.minutes is not None and self.seconds > 60 * self.minutes


class Quality(keras.callbacks.Callback):
    """Measure BLEU on the validation pairs after some epochs; the figure joins the others as "val_bleu".

    Args:
        measure: model -> BLEU and some sample translations.
        every: so many epochs.
        tell: takes the number of the epoch, from 1, and the samples.
    """

    def __init__(self, measure: Callable, every: int, tell: Callable):
        super().__init__()
        self.measure = measure
        self.every = every
        self.tell = tell

    def on_epoch_end(self, epoch, logs=None):
        """Measure, if it is time."""
        if (epoch + 1) % self.every == 0:
            with smoothed(self.model):
                logs["val_bleu"], samples = self.measure(self.model)
            self.tell(epoch + 1, samples)


class Records(keras.callbacks.Callback):
    """After each epoch, save the state and the weights to be averaged, and stop where nothing gets better.

    Args:
        checkpoints: where to.
        history: what it has reached so far.
        average: how many epochs' weights are averaged.
        best: whether these are the best, or the last.
        patience: of early stopping, in epochs; None: never.
        stops: knows the time.
        tokens: target tokens an epoch.
        leave: called after a save.
    """

    def __init__(self, checkpoints: Checkpoints, history: History, average: int, best: bool, patience, stops: Stops, tokens: int, leave):
        super().__init__()
        self.checkpoints = checkpoints
        self.history = history
        self.average = average
        self.best = best
        self.patience = patience
        self.stops = stops
        self.tokens = tokens
        self.leave = leave

    def on_epoch_begin(self, epoch, logs=None):
        """Start the clock."""
        self._started, self._trained = time.perf_counter(), None

    def on_test_begin(self, logs=None):
        """Stop it: evaluation is not training."""
        self._trained = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        """Save."""
        seconds = (self._trained or time.perf_counter()) - self._started
        rate = float(np.asarray(self.model.optimizer.learning_rate))
        speed = {"seconds": round(seconds, 3), "tokens_per_second": round(self.tokens / seconds, 1)}
        self.history.rows.append({"epoch": epoch + 1, **{k: float(v) for k, v in logs.items()}, "learning_rate": rate, **speed})
        with smoothed(self.model):
            self.checkpoints.keep(self.model, epoch, self.history.wanted(self.average, self.best))
        self.checkpoints.save(self.model, {"rows": self.history.rows, "seconds": self.stops.seconds})
        if self.history.stale(self.patience):
            self.model.stop_training = True
        self.leave()


class Lines(keras.callbacks.Callback):
    """Say a line after each epoch.

    Args:
        epochs: there are in all.
        history: as `Records` keeps it, which must come before.
        say: takes the line.
    """

    def __init__(self, epochs: int, history: History, say: Callable[[str], None]):
        super().__init__()
        self.epochs = epochs
        self.history = history
        self.say = say

    def on_train_begin(self, logs=None):
        """Start the clock."""
        self._started, self._first = time.perf_counter(), len(self.history.rows)

    def on_epoch_end(self, epoch, logs=None):
        """Say it."""
        row = self.history.rows[-1]
        left = (time.perf_counter() - self._started) / (len(self.history.rows) - self._first) * (self.epochs - epoch - 1)
        figures = [f"loss {row['loss']:.3f}"]
        figures += [f"validation {row['val_loss']:.3f}"] if "val_loss" in row else []
        figures += [f"BLEU {row['val_bleu']:.2f}"] if "val_bleu" in row else []
        figures += [f"{row['tokens_per_second']:,.0f} tokens/s", f"learning rate {row['learning_rate']:.2g}"]
        self.say(f"epoch {epoch + 1}/{self.epochs}: {', '.join(figures)}, {duration(row['seconds'])}, {duration(left)} left")


class Bar(keras.callbacks.Callback):
    """Show on a terminal how far an epoch is.

    Args:
        epochs: there are in all.
        steps: batches an epoch.
        tokens: target tokens an epoch.
        console: of rich.
    """

    def __init__(self, epochs: int, steps: int, tokens: int, console):
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

    def on_train_begin(self, logs=None):
        """Appear."""
        self.progress.start()

    def on_train_end(self, logs=None):
        """Vanish."""
        self.progress.stop()

    def on_epoch_begin(self, epoch, logs=None):
        """Begin anew."""
        self._started = time.perf_counter()
        self._task = self.progress.add_task(f"epoch {epoch + 1}/{self.epochs}", total=self.steps, figures="")

    def on_train_batch_end(self, batch, logs=None):
        """Move on."""
        speed = self.tokens * (batch + 1) / (time.perf_counter() - self._started)
        rate = float(np.asarray(self.model.optimizer.learning_rate))
        figures = f"loss {logs['loss']:.3f}  {speed:,.0f} tokens/s  learning rate {rate:.2g}"
        self.progress.update(self._task, completed=batch + 1, figures=figures)

    def on_epoch_end(self, epoch, logs=None):
        """Be seen whole, and make way for the next."""
        self.progress.refresh()  # an epoch may be over between two of its own redrawings
        self.progress.remove_task(self._task)


@contextlib.contextmanager
def smoothed(model):
    """Give a model the moving averages of its weights for a while, where its optimizer keeps them."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # Keras scales the loss in float16 from around it
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


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
