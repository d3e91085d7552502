"""Write the bundle of a training run, during the run and at its end."""

import time
from pathlib import Path
from types import MappingProxyType

import keras

from tfk_transformer.data.labels import Labels
from tfk_transformer.pipelines.bundle import CURVE, RECIPE, Json
from tfk_transformer.pipelines.model_record import remake
from tfk_transformer.pipelines.recipe import Recipe
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.plots import training_curve
from tfk_transformer.training.callbacks import moving_averages
from tfk_transformer.training.checkpoints import Checkpoints, disk_full_error
from tfk_transformer.training.data import TrainingData
from tfk_transformer.training.distribution import Team
from tfk_transformer.training.history import History

WRITE_EVERY = 60.0  # seconds


class BundleWriter:
    """Write the bundle of a training run.

    Args:
        out: the folder of the bundle.
        recipe: the recipe of the training run.
        model: the model that is trained.
        data: its tokenizers and probes.
        checkpoints: contains the weights of the epochs to average.
        team: the devices that train; only the first process writes.
        origin: the origin of the model if training started from an imported one.
        search: the model's own defaults of search settings by name.

    Attributes:
        pipeline: a `Translator` or `TextClassifier` with a float32 model of the same class. Its
            weights are set before it is used.
    """

    def __init__(
        self,
        out: Path,
        recipe: Recipe,
        model: keras.Model,
        data: TrainingData,
        checkpoints: Checkpoints,
        team: Team,
        origin: Json = MappingProxyType({}),
        search: Json = MappingProxyType({}),
    ):
        self.out = out
        self.recipe = recipe
        self.model = model
        self.checkpoints = checkpoints
        self.team = team
        self.pipeline = _pipeline(remake(model), data, search)
        self.pipeline.origin = origin
        self._last_write = time.perf_counter()

    def update(self, history: History, seconds: float) -> None:
        """Write the bundle after an epoch, at most once a minute; see `write`."""
        if time.perf_counter() - self._last_write > WRITE_EVERY:
            self.write(history, seconds)
            self._last_write = time.perf_counter()

    def write(self, history: History, seconds: float) -> None:
        """Write the bundle of the finished epochs.

        If no epoch can be selected yet, the bundle has the current weights.

        Args:
            history: the metrics of the finished epochs.
            seconds: the training time.

        Raises:
            ValueError: if the disk is full; an earlier bundle stays.
        """
        epochs = history.epochs_to_average(self.recipe.average, self.recipe.average_of == "best")
        if epochs:
            weights = self.checkpoints.mean(epochs) if self.team.leads else []
        else:
            with self.team.scope(), moving_averages(self.model):
                weights = self.model.get_weights()
        if self.team.leads:
            with self.team.local_scope():
                self.pipeline.model.set_weights(weights)
                self._save(history, seconds, epochs)

    def _save(self, history: History, seconds: float, averaged: list[int]) -> None:
        def add_records(folder: Path) -> None:
            (folder / RECIPE).write_text(self.recipe.to_toml(), encoding="utf-8")
            if history.rows:
                training_curve(history.columns()).savefig(folder / CURVE, dpi=120)

        metrics = {
            **(history.rows[-1] if history.rows else {}),
            "parameters": self.pipeline.model.count_params(),
            "averaged_epochs": [epoch + 1 for epoch in averaged],
            "training_seconds": round(seconds, 1),
        }
        try:
            self.pipeline.save(self.out, history.columns(), metrics, more=add_records)
        except OSError as error:
            raise disk_full_error(error, f"bundle {self.out}") from None


def _pipeline(model: keras.Model, data: TrainingData, search: Json) -> Translator | TextClassifier:
    tokenizer, target = data.tokenizers
    if isinstance(target, Labels):
        return TextClassifier(model, tokenizer, target.names, data.probes)
    return Translator(model, tokenizer, target, probes=data.probes, search=search)
