"""Train a model from a recipe: prepare the data, compile, fit, and write a bundle."""

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import keras
import numpy as np
from rich.console import Console

from tfk_transformer.atomic_write import atomic_write, lock, temporary_folder
from tfk_transformer.data.labels import Labels
from tfk_transformer.datasets import Source, load
from tfk_transformer.models.precision import dtype_policy, precision_line
from tfk_transformer.pipelines.bundle import CURVE, RECIPE, Json
from tfk_transformer.pipelines.model_record import remake
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.plots import training_curve
from tfk_transformer.runtime_environment import keep_tensor_memory
from tfk_transformer.training import checkpoints
from tfk_transformer.training.callbacks import (
    BleuEvaluation,
    EpochLines,
    History,
    Metrics,
    ProgressBar,
    Stopped,
    Stops,
    moving_averages,
)
from tfk_transformer.training.compilation import compiled_model
from tfk_transformer.training.data import TrainingData, save_digests
from tfk_transformer.training.distribution import Team, gather, report_sudden_end
from tfk_transformer.training.fine_tuning import Start, frozen_line, frozen_names, load_start
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.towers import fit_in_towers, share_processors

WRITE_EVERY = 60.0  # seconds from one bundle of an unfinished run to the next


def train(
    recipe: Recipe,
    out: str | Path,
    resume: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    say: Callable[[str], None] = print,
    cache: str | Path | None = None,
    devices: int | None = None,
    distributed: bool = False,
    towers: bool = True,
    bar: bool = True,
    *,
    data: Source | Iterable[object] | None = None,
    validation_data: Source | Iterable[object] | None = None,
) -> Translator | TextClassifier:
    """Train a model and write a bundle.

    During the run, `out` contains the bundle of the epochs so far, updated about once a minute. The
    folder `OUT.training` next to it contains the checkpoint of the last epoch, from which `resume`
    continues. This folder is deleted at the end. Only one process at a time can write `out`.

    Args:
        recipe: data, model and options of the training run. If it has a `start`, training continues
            from that bundle.
        out: folder of the bundle; it must not exist.
        resume: whether to continue an unfinished training run of the same recipe. Without one, a
            run begins, or ends at once if `out` is the finished bundle of the recipe.
        callbacks: additional Keras callbacks.
        say: called with each line about the data, the model and the epochs.
        cache: folder for the encoded data. Once it is complete, the texts are not read again. None:
            the texts are encoded in each epoch.
        devices: number of devices of this machine that share each batch. None: all GPUs.
        distributed: whether other processes take part. Environment variables name them; see
            `distribution.gather`. Start all processes with the same arguments and access to the
            same files.
        towers: whether the processors of a machine without a GPU compute parts of each batch in
            parallel; see `fit_in_towers`.
        bar: whether to show a progress bar if standard output is a terminal.
        data: training pairs in memory, as `datasets.load` reads them, instead of the recipe's data.
            The name of their source, with a hash of the texts, is the data in the bundle's recipe.
        validation_data: validation pairs in memory, instead of the recipe's.

    Returns:
        A `Translator`, or a `TextClassifier` if the architecture of the recipe is "encoder", loaded
        from the bundle `out`.

    Raises:
        ValueError: for bad data, an existing bundle, values that do not fit the bundle to start
            from, an earlier run of another recipe, a run that writes `out`, or a full disk.
        KeyboardInterrupt: if a signal asked to stop (SIGINT, SIGTERM), after writing a bundle.
        FloatingPointError: if the loss is not finite, after writing the last good bundle.
        ConnectionError: if another process is lost; the checkpoint and the bundle stay.
    """
    keep_tensor_memory()
    out = Path(out)
    work = checkpoints.work_folder_of(out)
    recipe, sources = _with_memory(recipe, data=data, validation_data=validation_data)
    start = load_start(recipe, work, resume)
    recipe = start.adopt(recipe) if start else recipe
    if resume and checkpoints.is_finished(recipe, out):
        say(f"{out} is finished: nothing to do")
        return (TextClassifier if recipe.classifies else Translator).load(out)
    # Towers do not support the sample weights of a classifier's batches.
    num_towers = share_processors() if towers and not recipe.classifies else 1
    team = gather(devices, distributed)
    advice = (
        f"{work} holds the state after the last whole epoch, if there was one; start all processes "
        "again with --resume"
    )
    with report_sudden_end(team, advice), lock(out) if team.leads else contextlib.nullcontext():
        try:
            training = Training(
                recipe, out, resume, say, cache, team, num_towers, start, bar, sources
            )
            return training.run(callbacks)
        except Exception as error:
            explanation = team.explain(error)
            if explanation is error:
                raise
            raise ConnectionError(f"{explanation}; {advice}") from None


def _with_memory(
    recipe: Recipe, **memory: Source | Iterable[object] | None
) -> tuple[Recipe, dict[str, Source]]:
    """Return the recipe with the names of data in memory, and the sources by these names."""
    sources = {}
    for field, data in memory.items():
        if data is not None:
            source = load(data)
            if getattr(recipe, field) not in ("", None, source.name):
                raise ValueError(
                    f"{field}: expected pairs in memory or a recipe with {field}, got both; leave "
                    "one out."
                )
            recipe = recipe.replace(**{field: source.name})
            sources[source.name] = source
    return recipe, sources


class Training:
    """A training run; only the first process of the team writes files and prints lines."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        resume: bool,
        say: Callable[[str], None],
        cache: str | Path | None,
        team: Team,
        towers: int,
        start: Start | None = None,
        bar: bool = True,
        sources: Mapping[str, Source] | None = None,
    ):
        self.recipe = recipe
        self.start = start
        self.out = out
        self.team = team
        self.say = say if team.leads else lambda line: None
        self.bar = bar and team.leads
        self.work = checkpoints.work_folder_of(out)
        if team.leads:
            checkpoints.check_work_folder(recipe, out, resume)
        self.checkpoints = checkpoints.Checkpoints(self.work, writes=team.leads)
        if start:  # refuses wrong names before the data is read
            frozen_names(recipe.freeze, start.weights)
        keras.utils.set_random_seed(recipe.seed)
        if recipe.deterministic and keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            tf.config.experimental.enable_op_determinism()
        self.data = TrainingData(recipe, team, self.work, cache, start, sources)
        team.check_same(
            recipe=hashlib.sha256(recipe.to_toml().encode()).hexdigest()[:8],
            dtype=dtype_policy(recipe.dtype),
            **self.data.facts(),
            start=start.fingerprint if start and team.processes > 1 else "",
            resume=resume,
            state=self.checkpoints.exists,
        )
        with team.scope():
            self.model = compiled_model(
                recipe, self.data.tokenizers, len(self.data.batches), team, start
            )
        fit_in_towers(self.model, 1 if team.devices > 1 else towers)
        # The pipeline of the bundle has a float32 model, whose weights are set before use.
        model = remake(self.model)
        tokenizer, target = self.data.tokenizers
        self.pipeline: Translator | TextClassifier
        if isinstance(target, Labels):
            self.pipeline = TextClassifier(model, tokenizer, target.names, self.data.probes)
        else:
            search = {**(start.search if start else {}), **recipe.search}
            self.pipeline = Translator(model, tokenizer, target, self.data.probes, search=search)
        self.pipeline.origin = start.origin if start else {}
        self.last_write = time.perf_counter()

    def run(
        self, callbacks: Sequence[keras.callbacks.Callback] = ()
    ) -> Translator | TextClassifier:
        """Fit the model, write the bundle, and return its pipeline."""
        about = self._restore()
        self.history = History(f"val_{self.recipe.monitor}", about["rows"])
        self._report_setup()
        self._prepare_to_resume()
        self.stops = Stops(self.team, self.recipe.minutes, about["seconds"])
        with self.stops.listening():
            try:
                self._fit([*self._callbacks(), *callbacks])
            except Stopped as stopped:
                self.write_bundle()
                self.say(
                    f"stopped by {stopped}: {self.out} holds the model so far; run the same "
                    "command with --resume to continue"
                )
                raise KeyboardInterrupt from None
            except FloatingPointError as error:
                result = (
                    "there is no earlier model, as the first epoch was not over; a lower learning "
                    "rate or more warm-up steps may help"
                )
                if self.checkpoints.exists:
                    self._restore()  # if no epoch is selected, the bundle has the current weights
                    self.write_bundle()
                    epochs = len(self.history.rows)
                    result = f"{self.out} holds the model as it was after epoch {epochs}"
                raise FloatingPointError(f"{error}; {result}") from None
            self.write_bundle()
        self.team.finish()
        if self.team.leads:
            # In one step, and a killed process leaves what the next one deletes.
            with temporary_folder(self.out) as folder:
                os.replace(self.work, folder / self.work.name)
        self.say(self.history.summary(self.stops.seconds))
        return type(self.pipeline).load(self.out)

    def _restore(self) -> Json:
        if self.checkpoints.exists:
            with self.team.scope():
                return self.checkpoints.restore(self.model)
        return {"rows": [], "seconds": 0.0}

    def _report_setup(self) -> None:
        r = self.recipe
        if self.start:
            self.say(f"start: {r.start}")
        self.say(f"model: {self.model.count_params():,} parameters, {self.data.vocabulary_line()}")
        lines = [precision_line(r.dtype), frozen_line(self.model, r.freeze), *self.data.lines()]
        for line in filter(None, lines):
            self.say(line)
        updates = len(self.data.batches) * r.epochs // r.accumulate
        if r.warmup_steps >= updates:
            self.say(
                f"note: the learning rate rises for {r.warmup_steps:,} updates (warmup_steps), and "
                f"the {r.epochs} epochs have {updates:,}; expect a poor model, or choose fewer "
                "warmup_steps, more epochs or smaller batches (batch_tokens)"
            )
        if self.start and "learning_rate" not in r.model_fields_set:
            self.say(
                f"note: the learning rate is {r.learning_rate:g}, which suits new models; for "
                "fine-tuning, 1e-5 to 1e-4 is usual"
            )
        if self.history.rows:
            self.say(f"resumed after epoch {len(self.history.rows)}")

    def _prepare_to_resume(self) -> None:
        """Save everything that a resumed run needs in addition to a checkpoint."""
        if not self.team.leads:
            return
        if self.work.exists():
            self.checkpoints.clean()
            checkpoints.save_recipe(self.work, self.recipe)
            return
        with atomic_write(self.work) as work:
            work.mkdir()
            if self.start:
                self.start.copy_to(work)
            checkpoints.save_tokenizers(work, self.recipe, self.data.tokenizers)
            checkpoints.save_recipe(work, self.recipe)
            save_digests(work, self.data.digests)

    def _fit(self, callbacks: list[keras.callbacks.Callback]) -> None:
        done = len(self.history.rows)
        if done >= self.recipe.epochs or self.history.stale(self.recipe.patience):
            return
        self.data.batches.epoch = done
        with self.team.fitting(), contextlib.ExitStack() as stack:
            for callback in callbacks:
                if isinstance(callback, ProgressBar):
                    stack.callback(callback.on_train_end)  # Keras does not call it after an error
            self.model.fit(
                self.data.batches,
                validation_data=self.data.validation,
                initial_epoch=done,
                epochs=self.recipe.epochs,
                verbose=0,
                callbacks=callbacks,
            )

    def _callbacks(self) -> list[keras.callbacks.Callback]:
        r = self.recipe
        tokens = round(self.data.tokens_per_epoch)
        logs = self.out.with_name(self.out.name + ".tensorboard") if r.tensorboard else None
        callbacks: list[keras.callbacks.Callback] = [self.stops]
        if r.ema:
            callbacks.append(keras.callbacks.SwapEMAWeights())  # for the validation loss
        validation = self.data.validation
        if r.evaluate_every and isinstance(self.pipeline, Translator) and validation:
            callbacks.append(BleuEvaluation(self.pipeline, validation, r, logs))
        callbacks += [
            EpochSaver(self, tokens),
            EpochLines(r.epochs, self.history, self.say, accuracy=r.classifies),
        ]
        if logs and self.team.leads:
            # Keras 3.15 loses metrics of an epoch if `update_freq` does not divide its batches.
            callbacks.append(
                keras.callbacks.TensorBoard(
                    str(logs), update_freq="epoch", profile_batch=r.profile or 0
                )
            )
        if self.bar and sys.stdout.isatty():
            callbacks.append(ProgressBar(r.epochs, len(self.data.batches), tokens, Console()))
        return callbacks

    def epochs_to_average(self) -> list[int]:
        """Return the epochs whose weights the bundle averages."""
        best = self.recipe.average_of == "best"
        return self.history.epochs_to_average(self.recipe.average, best)

    def write_bundle(self) -> None:
        """Write the bundle of the selected epochs, or of the current weights if there are none."""
        seconds = self.stops.seconds
        epochs = self.epochs_to_average()
        if epochs:
            weights = self.checkpoints.mean(epochs) if self.team.leads else []
        else:
            with self.team.scope(), moving_averages(self.model):
                weights = self.model.get_weights()
        if not self.team.leads:
            return

        def add_records(folder: Path) -> None:
            (folder / RECIPE).write_text(self.recipe.to_toml(), encoding="utf-8")
            if self.history.rows:
                training_curve(self.history.columns()).savefig(folder / CURVE, dpi=120)

        with self.team.local_scope():
            self.pipeline.model.set_weights(weights)
            metrics = {
                **(self.history.rows[-1] if self.history.rows else {}),
                "parameters": self.pipeline.model.count_params(),
                "averaged_epochs": [epoch + 1 for epoch in epochs],
                "training_seconds": round(seconds, 1),
            }
            try:
                self.pipeline.save(self.out, self.history.columns(), metrics, more=add_records)
            except OSError as error:
                raise checkpoints.disk_full_error(error, f"bundle {self.out}") from None


class EpochSaver(keras.callbacks.Callback):
    """Record the metrics of each epoch, save it, and stop early; an epoch has `tokens` tokens."""

    def __init__(self, training: Training, tokens: int):
        super().__init__()
        self.training = training
        self.tokens = tokens

    def on_epoch_begin(self, epoch: int, logs: Metrics | None = None) -> None:
        """Start the clock."""
        self._started = time.perf_counter()
        self._trained: float | None = None

    def on_test_begin(self, logs: Metrics | None = None) -> None:
        """Stop the clock: validation does not count as training time."""
        self._trained = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Metrics | None = None) -> None:
        """Record the metrics, save the epoch, and at most once a minute the bundle."""
        training = self.training
        seconds = (self._trained or time.perf_counter()) - self._started
        rows = training.history.rows
        rows.append(
            {
                "epoch": epoch + 1,
                **{k: float(v) for k, v in (logs or {}).items()},
                "learning_rate": float(np.asarray(self.model.optimizer.learning_rate)),
                "seconds": round(seconds, 3),
                "tokens_per_second": round(self.tokens / seconds, 1),
            }
        )
        with moving_averages(self.model):
            epochs = training.epochs_to_average()
            training.checkpoints.update_snapshots(self.model, epoch, epochs)
        training.checkpoints.save(self.model, {"rows": rows, "seconds": training.stops.seconds})
        if training.history.stale(training.recipe.patience):
            self.model.stop_training = True
        if time.perf_counter() - training.last_write > WRITE_EVERY:
            training.write_bundle()
            training.last_write = time.perf_counter()
