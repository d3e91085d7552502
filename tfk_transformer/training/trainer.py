"""Training: data, vocabularies, compile, fit, bundle."""

import contextlib
import hashlib
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import keras
from rich.console import Console

from tfk_transformer.atomic_write import written_whole
from tfk_transformer.evaluation import evaluate
from tfk_transformer.pipelines.bundle import plain_copy
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.plots import training_curve
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.callbacks import Bar, Lines, Quality, Records, Stopped, duration, smoothed
from tfk_transformer.training.checkpoints import Checkpoints, no_space
from tfk_transformer.training.compilation import compiled_model, has_gpu
from tfk_transformer.training.data import batches, check_measures, validation_batches, vocabularies
from tfk_transformer.training.data_cache import TOKENIZERS, Prepared
from tfk_transformer.training.distribution import Team, gather, watched
from tfk_transformer.training.history import History
from tfk_transformer.training.multi_process import AgreedStops, FollowedCheckpoints
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.towers import fit_in_towers, share_processors

SAMPLE_COUNT = 3
RECIPE, CURVE = "recipe.toml", "curve.png"
BUNDLE_EVERY = 60.0  # seconds


def train(
    recipe: Recipe,
    out,
    resume: bool = False,
    callbacks: Sequence = (),
    say: Callable[[str], None] = print,
    cache=None,
    devices: int | None = None,
    distributed: bool = False,
) -> Translator:
    """Train a model and leave a bundle.

    While training goes on, the bundle so far stands at `out` from the first minute on, and beside it `OUT.training`, from
    which `resume` continues after the last whole epoch; it goes away at the end.

    Args:
        recipe: what to do.
        out: folder of the bundle; it must not exist.
        resume: continue an unfinished training of the same recipe.
        callbacks: more Keras callbacks.
        say: takes a line about the data, the model or an epoch.
        cache: folder that keeps what training needs of the data, above all the ids; once it is there, the data is not read any
            more. None: texts are encoded in each epoch.
        devices: how many of this machine share each batch; None: all GPUs.
        distributed: train together with the processes that the environment names, see `distribution.gather`; every process is
            started with the same arguments, and sees the same files.

    Returns:
        The translator, whose bundle is `out`.

    Raises:
        ValueError: for bad data, an existing bundle, nothing or something else to resume, or a full disk.
        KeyboardInterrupt: if it was asked to stop (SIGINT, SIGTERM), after leaving a bundle.
        FloatingPointError: if the loss is no number any more, with the last good bundle.
        ConnectionError: if another process is lost; what was saved stays.
    """
    towers = share_processors()
    team, out = gather(devices, distributed), Path(out)
    advice = f"{_work_of(out)} holds the state after the last whole epoch, if there was one; start all processes again with --resume"
    with watched(team, advice):
        try:
            return Training(recipe, out, resume, say, cache, team, towers).run(callbacks)
        except Exception as error:
            if (explained := team.explained(error)) is error:
                raise
            raise ConnectionError(f"{explained}; {advice}") from None


class Training:
    """One training; see `train`."""

    def __init__(
        self, recipe: Recipe, out: Path, resume: bool, say: Callable[[str], None], cache=None, team: Team | None = None, towers: int = 1
    ):
        self.recipe = recipe
        self.out = out
        self.team = team or Team()
        self.say = say if self.team.leads else lambda line: None
        self.work = _work_folder(recipe, out, resume) if self.team.leads else _work_of(out)
        self.checkpoints = Checkpoints(self.work) if self.team.leads else FollowedCheckpoints(self.work)
        self.logs = out.with_name(out.name + ".tensorboard")
        _seed(recipe)
        prepared = Prepared(cache, recipe)
        data = prepared.source()
        self.tokenizers = self._vocabularies(data, prepared)
        with self.team.in_turn() if cache else contextlib.nullcontext():  # the first makes the cache, the others find it
            self._read_data(data, prepared)
        self.team.check_same(**self._facts(resume))
        with self.team.scope():
            self.model = compiled_model(recipe, self.tokenizers, len(self.batches), self.team)
        fit_in_towers(self.model, 1 if self.team.devices > 1 else towers)
        self.plain = plain_copy(self.model)
        self.translator = Translator(self.plain, *self.tokenizers, probes=self.probes)

    def _vocabularies(self, data, prepared: Prepared) -> tuple[SubwordTokenizer, SubwordTokenizer]:
        """Learn or read them in one process, for all."""
        ours = vocabularies(self.recipe, data, self.work, prepared) if self.team.leads else ()
        source, target = (SubwordTokenizer(self.team.of_first(model)) for model in ([t.model for t in ours] or (b"", b"")))
        return source, target if self.recipe.separate_vocabularies else source

    def _read_data(self, data, prepared: Prepared) -> None:
        """Make batches and probes, of the texts or of what an earlier look at them has left."""
        recipe = self.recipe
        few_shapes = has_gpu() or keras.backend.backend() != "tensorflow"  # what is compiled is compiled for each shape
        both = {"few_shapes": few_shapes, "share": self.team.share, "copies": 2 if recipe.consistency else 1}
        more = {"sampling": recipe.subword_sampling, "cache": prepared.ids("train"), "steps": recipe.epoch_steps}
        self.batches = batches(recipe, data, "train", self.tokenizers, shuffle=True, **both, **more)
        self.validation = validation_batches(recipe, data, self.tokenizers, prepared, **both)
        check_measures(recipe, self.validation)
        for part in filter(None, (self.validation, self.batches)):
            part.survey()
        self.probes = prepared.probes(self.validation or self.batches)
        prepared.complete(self.tokenizers, self.probes)

    def _facts(self, resume: bool) -> dict:
        """Return what has to be the same in all processes."""
        surveys = [part and part.survey()[:5] for part in (self.batches, self.validation)]
        vocabularies = [hashlib.sha256(tokenizer.model).hexdigest()[:8] for tokenizer in self.tokenizers]
        facts = {"recipe": hashlib.sha256(self.recipe.to_toml().encode()).hexdigest()[:8], "vocabularies": vocabularies}
        return {**facts, "data": surveys, "resume": resume, "state": self.checkpoints.exists}

    def run(self, callbacks: Sequence = ()) -> Translator:
        """Fit, and leave the bundle."""
        about = self._restore()
        self.history = History(f"val_{self.recipe.monitor}", about["rows"])
        self._introduce()
        self._prepare_to_resume()
        self.stops = AgreedStops(self.team, self.recipe.minutes, about["seconds"])
        with self.stops.listening():
            self._left = time.perf_counter()
            try:
                self._fit([*self._own_callbacks(), *callbacks])
            except Stopped as stopped:
                self._leave_bundle()
                self.say(f"stopped by {stopped}: {self.out} holds the model so far; the same command with --resume goes on")
                raise KeyboardInterrupt from None
            except FloatingPointError as error:
                raise FloatingPointError(f"{error}; {self._last_good()}") from None
            self._leave_bundle()
        self.team.finish()
        if self.team.leads:
            shutil.rmtree(self.work)
        self._summarise()
        return Translator.load(self.out)

    def _restore(self) -> dict:
        if self.checkpoints.exists:
            with self.team.scope():
                return self.checkpoints.restore(self.model)
        return {"rows": [], "seconds": 0.0}

    def _fit(self, callbacks: list) -> None:
        done = len(self.history.rows)
        if done >= self.recipe.epochs or self.history.stale(self.recipe.patience):
            return
        self.batches.epoch = done
        ours = keras.backend.backend() == "tensorflow"
        training, validation = (part and (part.dataset() if ours else part.sequence()) for part in (self.batches, self.validation))
        try:
            with self.team.fitting():
                self.model.fit(
                    training,
                    validation_data=validation,
                    initial_epoch=done,
                    epochs=self.recipe.epochs,
                    shuffle=False,  # the batches come shuffled
                    verbose=0,
                    callbacks=callbacks,
                )
        finally:  # Keras tells callbacks of the end of a training alone, not of errors
            for bar in callbacks:
                if isinstance(bar, Bar):
                    bar.on_train_end()

    def _own_callbacks(self) -> list:
        r, tokens = self.recipe, round(self._tokens())
        kept = [keras.callbacks.LambdaCallback(on_epoch_begin=self._set_epoch), self.stops]
        if r.ema:
            kept.append(keras.callbacks.SwapEMAWeights())  # for the validation loss
        if r.evaluate_every:
            kept.append(Quality(self._measure, r.evaluate_every, self._show))
        best = r.average_of == "best"
        kept.append(Records(self.checkpoints, self.history, r.average, best, r.patience, self.stops, tokens, self._leave_now_and_then))
        kept.append(Lines(r.epochs, self.history, self.say))
        if r.tensorboard and self.team.leads:
            kept.append(self._tensorboard())
        if sys.stdout.isatty() and self.team.leads:
            kept.append(Bar(r.epochs, len(self.batches), tokens, Console()))
        return kept

    def _set_epoch(self, epoch, logs=None) -> None:
        """Tell the batches which epoch comes; what Keras reads to look at shapes does not count."""
        self.batches.epoch = epoch

    def _tokens(self) -> float:
        """Return the target tokens of an epoch."""
        found = self.batches.survey()
        return found.target_tokens * len(self.batches) / found.steps

    def _tensorboard(self):
        # With figures of single batches, Keras 3.15 loses those of an epoch whose last batch is none of them.
        return keras.callbacks.TensorBoard(str(self.logs), update_freq="epoch", profile_batch=self.recipe.profile or 0)

    def _measure(self, model) -> tuple[float, list]:
        """Return BLEU on the validation split, and some translations."""
        self.plain.set_weights(model.get_weights())
        pairs = list(self.validation.data.pairs(self.validation.split))
        found, translations = evaluate(self.translator, pairs, beam_size=self.recipe.evaluation_beam)
        return found.bleu, list(zip(pairs, translations, strict=True))[:SAMPLE_COUNT]

    def _show(self, epoch: int, samples) -> None:
        """Show sample translations, where TensorBoard is on."""
        if not self.recipe.tensorboard:
            return
        import tensorflow as tf

        text = [f"{pair.source}  \n→ {translation}  \n({pair.target})" for pair, translation in samples]
        with tf.summary.create_file_writer(str(self.logs / "validation")).as_default():
            tf.summary.text("translations", text, step=epoch - 1)

    def _leave_now_and_then(self) -> None:
        """Refresh the bundle after an epoch, but not so often that it takes time."""
        if time.perf_counter() - self._left > BUNDLE_EVERY:
            self._leave_bundle()
            self._left = time.perf_counter()

    def _leave_bundle(self) -> None:
        """Write the bundle of the epochs so far, or of the weights as they are where no epoch is over."""
        r = self.recipe
        if wanted := self.history.wanted(r.average, r.average_of == "best"):
            weights = self.checkpoints.mean(wanted) if self.team.leads else []
        else:
            with self.team.scope(), smoothed(self.model):
                weights = self.model.get_weights()
        if self.team.leads:
            with self.team.apart():
                self._write_bundle(weights, wanted)

    def _write_bundle(self, weights: list, wanted: list[int]) -> None:
        """Write the bundle of these weights, the mean of those after the wanted epochs."""
        self.plain.set_weights(weights)
        figures = {**(self.history.rows[-1] if self.history.rows else {}), "parameters": self.plain.count_params()}
        figures |= {"averaged_epochs": [epoch + 1 for epoch in wanted], "training_seconds": round(self.stops.seconds, 1)}
        try:
            self.translator.save(self.out, self.history.columns(), figures, more=self._add_records)
        except OSError as error:
            raise no_space(error, f"bundle {self.out}") from None

    def _add_records(self, folder: Path) -> None:
        """Add to a bundle how it came about."""
        (folder / RECIPE).write_text(self.recipe.to_toml(), encoding="utf-8")
        if self.history.rows:
            training_curve(self.history.columns()).savefig(folder / CURVE, dpi=120)

    def _last_good(self) -> str:
        """Leave what was saved before, and say where."""
        if self.checkpoints.exists:
            self._restore()  # where no epoch was chosen yet, the bundle has the weights as they are
            self._leave_bundle()
            return f"{self.out} holds the model as it was after epoch {len(self.history.rows)}"
        return "there is no earlier model, as the first epoch was not over; a lower learning rate or more warm-up steps may help"

    def _prepare_to_resume(self) -> None:
        """Keep what a resumed training needs; only now, with model made and data read, is there anything worth resuming."""
        if not self.team.leads:
            return
        self.work.mkdir(parents=True, exist_ok=True)
        self.checkpoints.clean()
        for tokenizer, name in zip(self.tokenizers, TOKENIZERS, strict=True):
            with written_whole(self.work / name) as new:
                tokenizer.save(new)
        with written_whole(self.work / RECIPE) as new:
            new.write_text(self.recipe.to_toml(), encoding="utf-8")

    def _introduce(self) -> None:
        sizes = " and ".join(f"{tokenizer.vocab_size:,}" for tokenizer in dict.fromkeys(self.tokenizers))
        self.say(f"model: {self.model.count_params():,} parameters, {sizes} subwords")
        for part in filter(None, (self.batches, self.validation)):
            found = part.survey()
            counts = f"{found.pairs:,} pairs, {found.target_tokens:,} target tokens, {found.steps:,} batches, {found.padding:.1%} padding"
            self.say(f"{part.split}: {counts}")
            for line in found.report.lines():
                self.say(f"{part.split}: {line}")
        if self.history.rows:
            self.say(f"goes on after epoch {len(self.history.rows)}")

    def _summarise(self) -> None:
        ranked = self.history.ranked()
        best = (
            f", best {self.recipe.monitor} {self.history.rows[ranked[0]][self.history.monitor]:.3f} after epoch {ranked[0] + 1}"
            if ranked
            else ""
        )
        self.say(f"{len(self.history.rows)} epochs in {duration(self.stops.seconds)}{best}")


def _seed(recipe: Recipe) -> None:
    keras.utils.set_random_seed(recipe.seed)
    if recipe.deterministic and keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()


def _work_of(out: Path) -> Path:
    """Return the folder of an unfinished training."""
    return out.with_name(out.name + ".training")


def _work_folder(recipe: Recipe, out: Path, resume: bool) -> Path:
    """Open the folder of an unfinished training, after checking that no work is lost by it."""
    work = _work_of(out)
    if resume:
        if not (work / RECIPE).is_file():
            raise ValueError(f"resume: expected an unfinished training in {work}, got none; leave resume out to start one.")
        _check_same(Recipe.read(work / RECIPE), recipe, work)
    elif work.exists():
        raise ValueError(f"out: {work} holds an unfinished training; resume it, or remove it to start anew.")
    elif out.exists():
        raise ValueError(f"out: expected a new folder, got {out}, which exists; choose another name or remove it.")
    return work


def _check_same(earlier: Recipe, recipe: Recipe, work: Path) -> None:
    """Refuse to go on with another recipe; only how long to train may differ, where the schedule does not depend on it."""
    free = {"minutes", "patience", "tensorboard", "profile"} | ({"epochs"} if recipe.schedule != "cosine" else set())
    changed = [name for name in Recipe.model_fields if name not in free and getattr(earlier, name) != getattr(recipe, name)]
    if changed:
        was = ", ".join(f"{name}={getattr(earlier, name)!r}" for name in changed)
        raise ValueError(f"resume: expected the recipe that {work} was started with, which had {was}.")
