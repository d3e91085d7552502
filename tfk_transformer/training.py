"""The training recipe: data, tokenizer, compile, fit, bundle."""

import csv
import itertools
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import keras
from pydantic import Field, model_validator

from tfk_transformer import datasets
from tfk_transformer.architectures import CONFIGS, make_model
from tfk_transformer.batching import JoinedBatches, TokenBatches
from tfk_transformer.config import PRESETS
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.metrics import Perplexity, TokenAccuracy
from tfk_transformer.plots import training_curve
from tfk_transformer.records import Record
from tfk_transformer.schedules import InverseSquareRoot
from tfk_transformer.tokenizers import MODEL_TYPES, SubwordTokenizer
from tfk_transformer.translator import Translator

PROBE_COUNT = 128
RECIPE, CURVE = "recipe.json", "curve.png"
TOKENIZER, LOG, BACKUP = "tokenizer.model", "log.csv", "backup"


class Recipe(Record):
    """Everything that decides how a model is trained."""

    data: str = Field(description="spec of the training pairs, see `datasets.load`")
    validation_data: str | None = Field(
        default=None, description="spec of the validation pairs; None: the validation split of `data`, if any"
    )
    architecture: Literal["encoder_decoder", "decoder"] = Field(
        default="encoder_decoder", description="'decoder' has no encoder and continues a source with its target"
    )
    preset: Literal[tuple(PRESETS)] = "small"
    tokenizer: Literal[MODEL_TYPES] = Field(default="unigram", description="of the joint vocabulary; 'char': a piece a character")
    vocab_size: int = Field(default=8000, gt=4, description="subwords of the joint vocabulary; plain text gives fewer")
    dropout: float | None = Field(default=None, ge=0, lt=1, description="None: the preset's")
    options: dict[str, Any] = Field(default={}, description="options of the model that differ from the preset's, by name")
    max_length: int = Field(default=256, gt=1, description="longest side of a pair in tokens; longer pairs are dropped and counted")
    batch_tokens: int = Field(default=4096, gt=0, description="tokens a batch and side")
    epochs: int = Field(default=10, gt=0)
    learning_rate: float = Field(default=1e-3, gt=0, description="the schedule's peak")
    warmup_steps: int = Field(default=1000, ge=1)
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check_batch_holds_a_pair(self) -> Self:
        if self.batch_tokens < self.max_length:
            raise ValueError(
                "batch_tokens must be at least max_length, or the longest pairs fit no batch, "
                f"got {self.batch_tokens} and {self.max_length}"
            )
        return self

    @model_validator(mode="after")
    def _check_the_model(self) -> Self:
        own = sorted({"max_length", "dropout", "vocab_size", "source_vocab_size", "target_vocab_size"} & set(self.options))
        if own:
            raise ValueError(f"options: expected options of the model alone, got {', '.join(own)}, which the recipe itself decides")
        self.config(self.vocab_size)
        return self

    def config(self, vocab_size: int):
        """Return the model's configuration for a joint vocabulary of so many pieces; embeddings are shared if no preset says otherwise."""
        chosen = {} if self.dropout is None else {"dropout": self.dropout}
        kind = CONFIGS[self.architecture]
        sizes = {name: vocab_size for name in ("vocab_size", "source_vocab_size", "target_vocab_size") if name in kind.model_fields}
        shared = {} if "tie_embeddings" in PRESETS[self.preset] else {"tie_embeddings": "all"}
        return kind.preset(self.preset, **{**shared, **sizes, **chosen, "max_length": self.max_length, **self.options})


def train(recipe: Recipe, out, resume: bool = False, callbacks: Sequence = (), say: Callable[[str], None] = print) -> Translator:
    """Train a model and leave a bundle.

    Beside the bundle stands `OUT.training` while training goes on, from which `resume` continues after the last whole
    epoch; it goes away at the end.

    Args:
        recipe: what to do.
        out: folder of the bundle; it must not exist.
        resume: continue an unfinished training of the same recipe.
        callbacks: more Keras callbacks.
        say: takes a line about the data or the model.

    Returns:
        The translator, whose bundle is `out`.

    Raises:
        ValueError: for bad data, an existing bundle, or nothing or something else to resume.
    """
    out = Path(out)
    work = _work_folder(recipe, out, resume)
    keras.utils.set_random_seed(recipe.seed)
    data = datasets.load(recipe.data)
    tokenizer = _tokenizer(recipe, data, work)
    batches = _batches(recipe, data, "train", tokenizer, shuffle=True)
    validation = _validation(recipe, data, tokenizer)
    model = _model(recipe, tokenizer)
    _introduce(say, model, tokenizer, batches, validation)
    _prepare_to_resume(recipe, tokenizer, work)
    kept = [
        keras.callbacks.CSVLogger(str(work / LOG), append=resume),
        keras.callbacks.BackupAndRestore(str(work / BACKUP), double_checkpoint=True, delete_checkpoint=False),
    ]
    _fit(model, batches, validation, recipe.epochs, [*kept, *callbacks])
    history = _history(work / LOG)
    translator = Translator(model, tokenizer, probes=_probes(validation or batches))
    figures = {name: values[-1] for name, values in history.items()} | {"parameters": model.count_params()}
    translator.save(out, history, figures, more=lambda folder: _add_records(folder, recipe, history))
    shutil.rmtree(work)
    return Translator.load(out)


def _fit(model, batches: TokenBatches, validation: TokenBatches | None, epochs: int, callbacks: list) -> None:
    model.fit(
        batches.dataset(),
        validation_data=validation.dataset() if validation else None,
        epochs=epochs,
        shuffle=False,  # the batches come shuffled
        verbose=1 if sys.stdout.isatty() else 2,  # a bar on a terminal, a line an epoch in a log
        callbacks=callbacks,
    )


def _work_folder(recipe: Recipe, out: Path, resume: bool) -> Path:
    """Open the folder of an unfinished training, after checking that no work is lost by it."""
    if out.exists():
        raise ValueError(f"out: expected a new folder, got {out}, which exists; choose another name or remove it.")
    work = out.with_name(out.name + ".training")
    if resume:
        if not (work / RECIPE).is_file():
            raise ValueError(f"resume: expected an unfinished training in {work}, got none; leave resume out to start one.")
        earlier = Recipe.from_json((work / RECIPE).read_text())
        changed = [name for name in Recipe.model_fields if name != "epochs" and getattr(earlier, name) != getattr(recipe, name)]
        if changed:
            was = ", ".join(f"{name}={getattr(earlier, name)!r}" for name in changed)
            raise ValueError(f"resume: expected the recipe that {work} was started with, which had {was}.")
    elif work.exists():
        raise ValueError(f"out: {work} holds an unfinished training; resume it, or remove it to start anew.")
    return work


def _tokenizer(recipe: Recipe, data, work: Path) -> SubwordTokenizer:
    """Learn the joint vocabulary from the training split, or take it from the training that is resumed."""
    if (work / TOKENIZER).is_file():
        return SubwordTokenizer.load(work / TOKENIZER)
    texts = itertools.chain.from_iterable((pair.source, pair.target) for pair in data.pairs("train"))
    return SubwordTokenizer.train(texts, recipe.vocab_size, recipe.tokenizer)


def _prepare_to_resume(recipe: Recipe, tokenizer: SubwordTokenizer, work: Path) -> None:
    """Keep what a resumed training needs; only now, with model made and data read, is there anything worth resuming."""
    work.mkdir(parents=True, exist_ok=True)
    tokenizer.save(work / TOKENIZER)
    (work / RECIPE).write_text(recipe.to_json())


def _batches(recipe: Recipe, data, split: str, tokenizer: SubwordTokenizer, shuffle=False) -> TokenBatches:
    kind = JoinedBatches if recipe.architecture == "decoder" else TokenBatches
    return kind(data, split, tokenizer, tokenizer, recipe.batch_tokens, recipe.max_length, shuffle, recipe.seed)


def _validation(recipe: Recipe, data, tokenizer) -> TokenBatches | None:
    if recipe.validation_data:
        return _batches(recipe, datasets.load(recipe.validation_data), "validation", tokenizer)
    # Pairs given as two files are the training pairs whatever split is asked for, and validate nothing.
    separate = "validation" in data.splits and not recipe.data.startswith("files:")
    return _batches(recipe, data, "validation", tokenizer) if separate else None


def _model(recipe: Recipe, tokenizer: SubwordTokenizer):
    model = make_model(recipe.config(tokenizer.vocab_size), dtype=recipe.dtype)
    from_logits = model.config.output == "logits"
    model.compile(
        optimizer=keras.optimizers.Adam(
            InverseSquareRoot(recipe.learning_rate, recipe.warmup_steps), beta_2=0.98, epsilon=1e-9, global_clipnorm=1.0
        ),
        loss=LabelSmoothedCrossentropy(recipe.label_smoothing, from_logits),
        metrics=[TokenAccuracy(), Perplexity(from_logits)],
        jit_compile=_has_gpu(),
    )
    return model


def _has_gpu() -> bool:
    """XLA pays on a GPU; on a CPU it gains little and compiles for long."""
    if keras.backend.backend() != "tensorflow":
        return True
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def _introduce(say, model, tokenizer, batches: TokenBatches, validation: TokenBatches | None) -> None:
    say(f"model: {model.count_params():,} parameters, {tokenizer.vocab_size:,} subwords")
    for part in filter(None, (batches, validation)):
        found = part.survey()
        say(f"{part.split}: {found.pairs:,} pairs, {found.target_tokens:,} target tokens, {found.steps:,} batches an epoch")
        for line in found.report.lines():
            say(f"{part.split}: {line}")


def _history(log: Path) -> dict[str, list[float]]:
    """Return what CSVLogger wrote, a list a column; of an epoch run again after an interruption, the last."""
    with log.open(newline="") as file:
        rows = list({row["epoch"]: row for row in csv.DictReader(file)}.values())
    # Without validation data Keras writes "NA" columns.
    return {name: [float(row[name]) for row in rows] for name in rows[0] if rows[0][name] != "NA"}


def _add_records(folder: Path, recipe: Recipe, history) -> None:
    """Add to a bundle how it came about."""
    (folder / RECIPE).write_text(recipe.to_json())
    training_curve(history).savefig(folder / CURVE, dpi=120)


def _probes(batches: TokenBatches) -> list[str]:
    return [pair.source for pair in itertools.islice(batches.data.pairs(batches.split), PROBE_COUNT)]
