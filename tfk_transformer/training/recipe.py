"""The recipe: everything that decides how a model is trained, as one validated record, in TOML."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import tomlkit
from pydantic import Field, field_validator, model_validator

from tfk_transformer.config.model_options import LANGUAGE_OPTIONS
from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.record import Record
from tfk_transformer.config.search_settings import resolve_settings, setting_rules
from tfk_transformer.config.small_files import (
    MAX_OPTIONS_BYTES,
    one_line_error,
    parse_toml,
    read_small_text,
)
from tfk_transformer.constants import LANGUAGE_PATTERN
from tfk_transformer.datasets.pairs import spec_languages
from tfk_transformer.models.registry import TRAINED, ModelConfig
from tfk_transformer.tokenizers.subword_tokenizer import MODEL_TYPES
from tfk_transformer.tokenizers.token_vocabulary import split_function

TOKEN_FIELDS = ("source_tokens", "target_tokens")
# Fields whose defaults come from the bundle `start`.
START_FIELDS = {"preset", "options", "tokenizer", "vocab_size", "byte_fallback", *TOKEN_FIELDS}

# Options of models that other fields or the data determine.
DECIDED_OPTIONS = {
    "architecture",
    "max_length",
    "dropout",
    "vocab_size",
    "source_vocab_size",
    "target_vocab_size",
    "num_classes",
    *LANGUAGE_OPTIONS,
}

if TYPE_CHECKING:
    ModelType: TypeAlias = str
    Preset: TypeAlias = str
else:
    ModelType = Literal[MODEL_TYPES]
    Preset = Literal[tuple(PRESETS)]


def _field(part: str, default: Any, description: str, **rules: Any) -> Any:
    return Field(
        default=default, description=description, json_schema_extra={"part": part}, **rules
    )


_data = partial(_field, "Data")
_subwords = partial(_field, "Subwords")
_model = partial(_field, "Model")
_training = partial(_field, "Optimization")
_evaluation = partial(_field, "Evaluation")
_run = partial(_field, "Reproducibility and logs")


class Recipe(Record):
    """Everything that decides how a model is trained."""

    data: str = _data(
        "",
        "training pairs (docs/data.md): numbers:en-de, addition:2, files:SOURCE,TARGET, "
        "folder:DIR:de-en, tfds:NAME:pt-en, hf:NAME or a .tsv, .csv, .jsonl, .parquet, .tmx or .po "
        "file; for a classifier, files:TEXTS,LABELS or folder:DIR:TEXTS-LABELS",
    )
    validation_data: str | None = _data(
        None,
        "validation pairs, in the same form as the training pairs; by default, the validation "
        "split of the data, if it has one",
    )
    source_language: str | None = _data(
        None,
        "code of the language that the model reads, such as de; by default, the language that "
        "`data` names, or else the language of `start`",
        pattern=LANGUAGE_PATTERN,
    )
    target_language: str | None = _data(
        None,
        "code of the language that the model writes, by default as for `source_language`",
        pattern=LANGUAGE_PATTERN,
    )
    max_length: int = _data(
        256,
        "maximum length in tokens of either side of a pair, or of a text to classify; longer pairs "
        "or texts are dropped and counted; with `start`, the default is the maximum length of its "
        "model, but at most `batch_tokens`",
        gt=1,
    )
    batch_tokens: int = _data(
        4096, "maximum number of tokens per batch and side, padding included", gt=0
    )

    tokenizer: ModelType = _subwords(
        "unigram",
        "type of the SentencePiece model; 'char' has a piece for each character, 'word' for each "
        "word",
    )
    source_tokens: str | None = _subwords(
        None,
        "whole tokens instead of subwords for the sources: characters, words (which spaces "
        "separate), or a regular expression whose matches are the tokens",
    )
    target_tokens: str | None = _subwords(
        None, "the same for the targets; other tokens than the sources' need separate_vocabularies"
    )
    vocab_size: int = _subwords(
        8000, "number of pieces of a vocabulary; a small amount of text gives fewer", gt=4
    )
    separate_vocabularies: bool = _subwords(
        False, "use a vocabulary for each side instead of a joint one"
    )
    byte_fallback: bool = _subwords(
        False,
        "encode characters that the training texts do not contain as bytes instead of the unknown "
        "piece",
    )
    subword_sampling: float = _subwords(
        0.0,
        "subword regularization: sample a new segmentation of each training text in each pass; "
        "0.3 is mild, lower values vary more, 0 turns it off",
        ge=0,
        lt=1,
    )

    start: str | None = _model(
        None,
        "bundle to fine-tune (`start` in a recipe); the model and the tokenizers come from the "
        "bundle",
    )
    architecture: Literal["encoder_decoder", "decoder", "encoder"] = _model(
        "encoder_decoder",
        "architecture of the model: a decoder continues a source with its target; an encoder "
        "classifies texts, and the targets are labels",
    )
    preset: Preset = _model(
        "small",
        "named sizes and options of the model: tiny, small, base, big, or a published "
        "implementation (docs/seeds.md)",
    )
    dropout: float | None = _model(
        None,
        "dropout rate of each residual connection; by default, the rate of the preset or of "
        "`start`",
        ge=0,
        lt=1,
    )
    options: dict[str, Any] = _model(
        {}, "options of the model that differ from the preset's, by name"
    )
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16", "auto"] = _model(
        "float32",
        "precision of the computation; auto is mixed_bfloat16 if the processor or accelerator has "
        "instructions for it, otherwise float32",
    )

    optimizer: Literal["adam", "adamw", "lion", "adafactor", "sgd"] = _training("adam", "optimizer")
    beta_2: float = _training(
        0.98, "decay rate of the second moments of adam and adamw", gt=0, lt=1
    )
    weight_decay: float = _training(0.0, "weight decay of adamw and lion", ge=0)
    clip_norm: float = _training(
        1.0, "maximum global norm of the gradients; 0 turns clipping off", ge=0
    )
    schedule: Literal["inverse_sqrt", "cosine", "constant"] = _training(
        "inverse_sqrt", "schedule of the learning rate after the warm-up"
    )
    learning_rate: float = _training(1e-3, "peak learning rate", gt=0)
    warmup_steps: int = _training(
        1000, "number of updates during which the learning rate rises linearly", ge=1
    )
    accumulate: int = _training(
        1, "number of batches whose gradients are accumulated for one update", ge=1
    )
    label_smoothing: float = _training(
        0.1,
        "share of the probability that is spread over the whole vocabulary; 0 for a classifier",
        ge=0,
        lt=1,
    )
    freeze: tuple[str, ...] = _training(
        (),
        "weights of `start` that training does not change: encoder, decoder, embeddings, or names "
        "such as encoder/layer_0 or */norm/*",
    )
    consistency: float = _training(
        0.0,
        "weight of the R-Drop loss, for which each batch is computed twice with different dropout; "
        "0 turns it off",
        ge=0,
    )
    epochs: int = _training(
        10, "number of epochs; an epoch is a pass over the data, or `epoch_steps` batches", gt=0
    )
    epoch_steps: int | None = _training(
        None,
        "number of batches in an epoch; after each epoch, a checkpoint is saved and the model is "
        "validated",
        gt=0,
    )
    minutes: float | None = _training(
        None, "stop after this many minutes of training, even if epochs are left", gt=0
    )
    average: int = _training(1, "number of epochs whose weights are averaged for the bundle", ge=1)
    average_of: Literal["last", "best"] = _training(
        "last", "epochs to average: the last ones, or the best ones by `monitor`"
    )
    ema: float | None = _training(
        None,
        "momentum of an exponential moving average of the weights, which replaces the weights "
        "after each epoch",
        gt=0,
        lt=1,
    )

    evaluate_every: int = _evaluation(
        0, "measure BLEU on the validation split after every N epochs; 0 turns it off", ge=0
    )
    evaluation_beam: int = _evaluation(1, "beam size for measuring BLEU", ge=1)
    monitor: Literal["loss", "bleu"] = _evaluation("loss", "validation metric for comparing epochs")
    patience: int | None = _evaluation(
        None, "stop after this many epochs without improvement of `monitor`", ge=1
    )
    search: dict[str, Any] = _evaluation(
        {},
        "search settings with which the bundle translates by default, such as beam_size=6; by "
        "default, those of `start`",
    )

    seed: int = _run(0, "seed of weights, shuffling, dropout and subword sampling", ge=0)
    deterministic: bool = _run(
        False,
        "make results bitwise reproducible on the same machine, even if training is interrupted; "
        "training is slightly slower",
    )
    tensorboard: bool = _run(
        False, "write metrics and sample translations for TensorBoard to OUT.tensorboard"
    )
    profile: tuple[int, int] | None = _run(None, "first and last batch to profile for TensorBoard")

    @model_validator(mode="before")
    @classmethod
    def _classifiers_smooth_no_labels(cls, values: dict[str, Any]) -> dict[str, Any]:
        classifies = values.get("architecture") == "encoder"
        return {"label_smoothing": 0.0, **values} if classifies else values

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a recipe from a TOML file.

        Raises:
            ValueError: if the file is missing, is not TOML, or has unknown or invalid values.
        """
        return cls(**cls.read_values(path))

    @staticmethod
    def read_values(path: str | Path) -> dict[str, Any]:
        """Return the values in a TOML file, unchecked.

        Raises:
            ValueError: if the file is missing or is not TOML.
        """
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"recipe: expected a TOML file, got {path}, which does not exist.")
        text = read_small_text(path, MAX_OPTIONS_BYTES)
        with one_line_error(f"recipe: expected TOML in {path}, got ", "."):
            return parse_toml(text)

    def to_toml(self) -> str:
        """Return the recipe as TOML, each value with a comment that explains it.

        Values that the bundle `start` decides are omitted.
        """
        document = tomlkit.document()
        schema = type(self).model_json_schema()["properties"]
        decided = START_FIELDS - self.model_fields_set if self.start else set()
        part = None
        for name, value in self.model_dump(exclude_none=True, mode="json", exclude=decided).items():
            if schema[name]["part"] != part:
                part = schema[name]["part"]
                if document.body:
                    document.add(tomlkit.nl())
                document.add(tomlkit.comment(part))
            item = tomlkit.inline_table() if isinstance(value, dict) else tomlkit.item(value)
            if isinstance(value, dict):
                item.update(value)
            document.add(name, item.comment(schema[name]["description"]))
        return tomlkit.dumps(document)

    @model_validator(mode="after")
    def _check_batch_tokens(self) -> Self:
        decided_later = self.start is not None and "max_length" not in self.model_fields_set
        if self.batch_tokens < self.max_length and not decided_later:
            raise ValueError(
                "batch_tokens must be at least max_length, or the longest pairs do not fit into a "
                f"batch, got {self.batch_tokens} and {self.max_length}"
            )
        return self

    @property
    def classifies(self) -> bool:
        """Whether the model is a classifier; the other models predict tokens."""
        return self.architecture == "encoder"

    @field_validator(*TOKEN_FIELDS)
    @classmethod
    def _check_rule(cls, rule: str | None) -> str | None:
        if rule is not None:
            split_function(rule)
        return rule

    @property
    def token_rules(self) -> tuple[str | None, ...]:
        """The rules of whole tokens of the vocabularies; None: subwords."""
        return (
            (self.source_tokens,) if self.classifies else (self.source_tokens, self.target_tokens)
        )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        breaks: dict[str, Any] = {
            "monitor='bleu' needs evaluate_every": (
                self.monitor == "bleu" and not self.evaluate_every
            ),
            "byte_fallback needs tokenizer 'unigram' or 'bpe'": (
                self.byte_fallback
                and (self.tokenizer not in ("unigram", "bpe") or None not in self.token_rules)
            ),
            "subword_sampling needs tokenizer 'unigram' on both sides": (
                self.subword_sampling and (self.tokenizer != "unigram" or any(self.token_rules))
            ),
            "source_tokens and target_tokens must be equal without separate_vocabularies": (
                len(set(self.token_rules)) > 1 and not self.separate_vocabularies
            ),
            "separate_vocabularies needs architecture 'encoder_decoder'": (
                self.separate_vocabularies and self.architecture != "encoder_decoder"
            ),
            "weight_decay needs optimizer 'adamw' or 'lion'": (
                self.weight_decay and self.optimizer not in ("adamw", "lion")
            ),
            "profile needs tensorboard": self.profile and not self.tensorboard,
            "freeze needs start (--from), since new weights are random": (
                self.freeze and self.start is None
            ),
        }
        if self.classifies:
            breaks |= {
                "evaluate_every must be 0 with architecture 'encoder', which does not translate": (
                    self.evaluate_every
                ),
                "consistency must be 0 with architecture 'encoder'": self.consistency,
                "source_language and target_language need a model that translates": (
                    self.source_language or self.target_language
                ),
                "label_smoothing must be 0 with architecture 'encoder'": self.label_smoothing,
                "target_tokens needs a model that translates": self.target_tokens,
                "search needs a model that translates": self.search,
            }
        if broken := [rule for rule, is_broken in breaks.items() if is_broken]:
            raise ValueError("; ".join(broken))
        resolve_settings(self.search, setting_rules(self.max_length))
        return self

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if misplaced := sorted(DECIDED_OPTIONS & set(self.options)):
            raise ValueError(
                f"options: expected only options of the model, got {', '.join(misplaced)}, which "
                "the recipe or the data determines"
            )
        if self.start is not None:
            return self  # the bundle determines the model
        output = getattr(self.config(self.vocab_size, self.vocab_size), "output", None)
        if self.consistency and output != "logits":
            raise ValueError(
                f"consistency: expected 0 for a model whose output is '{output}', got "
                f"{self.consistency}"
            )
        return self

    def languages(self) -> dict[str, str]:
        """Return the languages that the recipe or its data names, as options of a model."""
        named = spec_languages(self.data)
        languages = (self.source_language or named.source, self.target_language or named.target)
        options = zip(LANGUAGE_OPTIONS, languages, strict=True)
        return {name: language for name, language in options if language}

    def config(self, source_vocab_size: int, target_vocab_size: int | None = None) -> ModelConfig:
        """Return the configuration of the model.

        Unless the preset decides otherwise, a joint vocabulary has a shared embedding table.

        Args:
            source_vocab_size: number of pieces of the source or joint vocabulary.
            target_vocab_size: number of pieces of the target vocabulary, or of a classifier's
                labels. None: the size of the source vocabulary.
        """
        config_class = TRAINED[self.architecture]
        target_size = target_vocab_size or source_vocab_size
        decided: dict[str, int | str] = {
            **self.languages(),
            "vocab_size": source_vocab_size,
            "source_vocab_size": source_vocab_size,
            "target_vocab_size": target_size,
            "num_classes": target_size,
        }
        if "tie_embeddings" not in PRESETS[self.preset]:
            decided["tie_embeddings"] = "target" if self.separate_vocabularies else "all"
        decided = {
            name: value for name, value in decided.items() if name in config_class.model_fields
        }
        dropout = {} if self.dropout is None else {"dropout": self.dropout}
        return config_class.preset(
            self.preset, **{**decided, **dropout, "max_length": self.max_length, **self.options}
        )


def changed_values(recipe: Recipe, earlier: Recipe, names: Iterable[str]) -> list[str]:
    """Return the earlier values that differ in some fields, such as "seed=0"."""
    return [
        f"{name}={value!r}"
        for name in names
        if (value := getattr(earlier, name)) != getattr(recipe, name)
    ]
