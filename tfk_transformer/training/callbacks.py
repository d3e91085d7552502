"""Keras callbacks that stop a training run, measure BLEU and save each epoch."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import keras
import numpy as np

from tfk_transformer.data.batches import TokenBatches
from tfk_transformer.evaluation import bleu_metric, evaluate
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.training.checkpoints import Checkpoints
from tfk_transformer.training.distribution import Team
from tfk_transformer.training.history import History, Metrics
from tfk_transformer.training.recipe import Recipe

STEPS_TO_AGREE = 10
SAMPLE_COUNT = 3


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


class EpochSaver(keras.callbacks.Callback):
    """Add the metrics of each epoch to the history, save the epoch, and stop early if it is stale.

    `tokens` is the number of tokens in an epoch.
    """

    def __init__(
        self,
        recipe: Recipe,
        checkpoints: Checkpoints,
        history: History,
        stops: Stops,
        tokens: int,
        after_save: Callable[[], None],
    ):
        super().__init__()
        self.recipe = recipe
        self.checkpoints = checkpoints
        self.history = history
        self.stops = stops
        self.tokens = tokens
        self.after_save = after_save

    def on_epoch_begin(self, epoch: int, logs: Metrics | None = None) -> None:
        """Start the clock."""
        self._started = time.perf_counter()
        self._trained: float | None = None

    def on_test_begin(self, logs: Metrics | None = None) -> None:
        """Stop the clock: validation does not count as training time."""
        self._trained = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Metrics | None = None) -> None:
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
        best = self.recipe.average_of == "best"
        epochs = self.history.epochs_to_average(self.recipe.average, best)
        with moving_averages(self.model):
            self.checkpoints.update_snapshots(self.model, epoch, epochs)
        self.checkpoints.save(
            self.model, {"rows": self.history.rows, "seconds": self.stops.seconds}
        )
        if self.history.stale(self.recipe.patience):
            self.model.stop_training = True
        self.after_save()


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
