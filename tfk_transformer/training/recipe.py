"""The recipe: everything that decides how a model is trained, as one validated record, in TOML."""

import tomllib
from pathlib import Path
from typing import Any, Literal, Self

import tomlkit
from pydantic import Field, model_validator

from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.record import Record
from tfk_transformer.models.registry import CONFIGS
from tfk_transformer.tokenizers.subword_tokenizer import MODEL_TYPES

DATA, MODEL, SUBWORDS, TRAINING, EVALUATION, RUN = "Data", "Model", "Subwords", "Training", "Evaluation", "The run"


def _field(part: str, default, description: str, **rules):
    return Field(default=default, description=description, json_schema_extra={"part": part}, **rules)


class Recipe(Record):
    """Everything that decides how a model is trained."""

    data: str = _field(DATA, ..., "numbers:en-de | addition:2 | files:SOURCE,TARGET | folder:DIR:de-en | tfds:NAME:pt-en, see docs/data.md")
    validation_data: str | None = _field(
        DATA, None, "spec of the validation pairs; by default the validation split of the data, if it has one"
    )
    max_length: int = _field(DATA, 256, "longest side of a pair in tokens; longer pairs are dropped and counted", gt=1)
    batch_tokens: int = _field(DATA, 4096, "tokens a batch and side, padding included", gt=0)

    tokenizer: Literal[MODEL_TYPES] = _field(SUBWORDS, "unigram", "kind of pieces; 'char': a piece a character")
    vocab_size: int = _field(SUBWORDS, 8000, "pieces of a vocabulary; plain text gives fewer", gt=4)
    separate_vocabularies: bool = _field(SUBWORDS, False, "a vocabulary for each side, and not one for both")
    byte_fallback: bool = _field(SUBWORDS, False, "spell characters that the training text lacks as bytes, instead of the unknown piece")
    subword_sampling: float = _field(
        SUBWORDS,
        0.0,
        "draw how a training text is cut into pieces, anew in each pass (subword regularization): 0.3 is mild, less varies more; 0: do not",
        ge=0,
        lt=1,
    )

    architecture: Literal["encoder_decoder", "decoder"] = _field(
        MODEL, "encoder_decoder", "'decoder' has no encoder and continues a source with its target"
    )
    preset: Literal[tuple(PRESETS)] = _field(MODEL, "small", "sizes of the model, or the model of a document")
    dropout: float | None = _field(MODEL, None, "of each residual connection; by default the preset's", ge=0, lt=1)
    options: dict[str, Any] = _field(MODEL, {}, "options of the model that differ from the preset's, by name")
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = _field(MODEL, "float32", "precision of training")

    optimizer: Literal["adam", "adamw", "lion", "adafactor", "sgd"] = _field(TRAINING, "adam", "of Keras")
    beta_2: float = _field(TRAINING, 0.98, "decay of the second moments, of adam and adamw", gt=0, lt=1)
    weight_decay: float = _field(TRAINING, 0.0, "of adamw and lion", ge=0)
    clip_norm: float = _field(TRAINING, 1.0, "greatest norm of all gradients together; 0: do not clip", ge=0)
    schedule: Literal["inverse_sqrt", "cosine", "constant"] = _field(TRAINING, "inverse_sqrt", "of the learning rate, after the warm-up")
    learning_rate: float = _field(TRAINING, 1e-3, "the schedule's peak", gt=0)
    warmup_steps: int = _field(TRAINING, 1000, "updates of the linear rise", ge=1)
    accumulate: int = _field(TRAINING, 1, "batches whose gradients make one update", ge=1)
    label_smoothing: float = _field(TRAINING, 0.1, "share of the probability spread over the vocabulary", ge=0, lt=1)
    consistency: float = _field(
        TRAINING,
        0.0,
        "read each batch twice, and weigh by this how far the two predictions are apart, as dropout differs (R-Drop); 0: read it once",
        ge=0,
    )
    epochs: int = _field(TRAINING, 10, "to train for; an epoch is a pass over the data, or so many batches as `epoch_steps` says", gt=0)
    epoch_steps: int | None = _field(TRAINING, None, "batches an epoch: after each, the state is saved and the model evaluated", gt=0)
    minutes: float | None = _field(TRAINING, None, "end after so many minutes of training, if epochs are left", gt=0)
    average: int = _field(TRAINING, 1, "the bundle has the mean of the weights of so many epochs", ge=1)
    average_of: Literal["last", "best"] = _field(TRAINING, "last", "which epochs: the last, or the best by `monitor`")
    ema: float | None = _field(
        TRAINING, None, "instead of each epoch's weights, their exponential moving average with this momentum a step", gt=0, lt=1
    )

    evaluate_every: int = _field(EVALUATION, 0, "measure BLEU on the validation split every so many epochs; 0: never", ge=0)
    evaluation_beam: int = _field(EVALUATION, 1, "beam size of that", ge=1)
    monitor: Literal["loss", "bleu"] = _field(EVALUATION, "loss", "validation figure that decides what is best")
    patience: int | None = _field(EVALUATION, None, "stop after so many epochs without a better one", ge=1)

    seed: int = _field(RUN, 0, "of weights, order, dropout and subword sampling", ge=0)
    deterministic: bool = _field(RUN, False, "the same to the bit on the same machine, whether interrupted or not; a little slower")
    tensorboard: bool = _field(RUN, False, "write figures and sample translations for TensorBoard into OUT.tensorboard")
    profile: tuple[int, int] | None = _field(RUN, None, "first and last batch to profile, for TensorBoard")

    @classmethod
    def read(cls, path) -> Self:
        """Read a recipe from a TOML file.

        Raises:
            ValueError: if it is no TOML, or says something that no recipe has.
        """
        return cls(**cls.read_values(path))

    @staticmethod
    def read_values(path) -> dict:
        """Return what a TOML file says, unchecked.

        Raises:
            ValueError: if it is no TOML.
        """
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"recipe: expected a TOML file, got {path}, which is not there.")
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"recipe: expected TOML in {path}, got something else: {error}") from None

    def to_toml(self) -> str:
        """Return the recipe as TOML, each value with what it means."""
        document = tomlkit.document()
        schema = type(self).model_json_schema()["properties"]
        part = None
        for name, value in self.model_dump(exclude_none=True, mode="json").items():
            if schema[name]["part"] != part:
                part = schema[name]["part"]
                document.add(tomlkit.nl()) if document.body else None
                document.add(tomlkit.comment(part))
            item = tomlkit.inline_table() if isinstance(value, dict) else tomlkit.item(value)
            if isinstance(value, dict):
                item.update(value)
            document.add(name, item.comment(schema[name]["description"]))
        return tomlkit.dumps(document)

    @model_validator(mode="after")
    def _check_batch_holds_a_pair(self) -> Self:
        if self.batch_tokens < self.max_length:
            raise ValueError(
                "batch_tokens must be at least max_length, or the longest pairs fit no batch, "
                f"got {self.batch_tokens} and {self.max_length}"
            )
        return self

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        rules = {
            "monitor='bleu' needs evaluate_every": self.monitor == "bleu" and not self.evaluate_every,
            "byte_fallback needs tokenizer 'unigram' or 'bpe'": self.byte_fallback and self.tokenizer == "char",
            "subword_sampling needs tokenizer 'unigram'": self.subword_sampling and self.tokenizer != "unigram",
            "separate_vocabularies needs an encoder": self.separate_vocabularies and self.architecture == "decoder",
            "weight_decay needs optimizer 'adamw' or 'lion'": self.weight_decay and self.optimizer not in ("adamw", "lion"),
            "profile needs tensorboard": self.profile and not self.tensorboard,
        }
        if broken := [rule for rule, breaks in rules.items() if breaks]:
            raise ValueError("; ".join(broken))
        return self

    @model_validator(mode="after")
    def _check_the_model(self) -> Self:
        own = sorted({"max_length", "dropout", "vocab_size", "source_vocab_size", "target_vocab_size"} & set(self.options))
        if own:
            raise ValueError(f"options: expected options of the model alone, got {', '.join(own)}, which the recipe itself decides")
        output = self.config(self.vocab_size, self.vocab_size).output
        if self.consistency and output != "logits":
            raise ValueError(f"consistency: expected 0 for a model whose output is '{output}', got {self.consistency}")
        return self

    def config(self, source_vocab_size: int, target_vocab_size: int | None = None):
        """Return the model's configuration for vocabularies of so many pieces; weights are shared as far as the vocabularies are.

        Args:
            source_vocab_size: pieces of the source, or of the joint vocabulary.
            target_vocab_size: pieces of the target; None: as many.
        """
        chosen = {} if self.dropout is None else {"dropout": self.dropout}
        kind = CONFIGS[self.architecture]
        sizes = {"vocab_size": source_vocab_size, "source_vocab_size": source_vocab_size}
        sizes["target_vocab_size"] = target_vocab_size or source_vocab_size
        sizes = {name: size for name, size in sizes.items() if name in kind.model_fields}
        usual = {"tie_embeddings": "target" if self.separate_vocabularies else "all"}
        shared = {} if "tie_embeddings" in PRESETS[self.preset] else usual
        return kind.preset(self.preset, **{**shared, **sizes, **chosen, "max_length": self.max_length, **self.options})
