"""The options of layers and models, and the search's settings.

Letters used in every docstring of this package: B batch, S source length, T target length, D model_dim, F ff_dim,
H num_heads, K key_dim, V value_dim, L layers, M beams a sentence.
"""

from typing import Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, field_validator, model_validator

from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.record import Record, nearest
from tfk_transformer.constants import END_ID as END_ID
from tfk_transformer.constants import PAD_ID as PAD_ID
from tfk_transformer.constants import START_ID as START_ID
from tfk_transformer.constants import UNKNOWN_ID as UNKNOWN_ID

Role = Literal["query", "key", "value", "output"]
ROLES = Role.__args__


class LayerOptions(Record):
    """What one encoder or decoder layer is made of; sizes are counts, dropouts probabilities in [0, 1)."""

    model_dim: int = Field(default=512, gt=0)
    num_heads: int = Field(default=8, gt=0)
    key_dim: int | None = Field(default=None, gt=0, description="width of a query or key head; None: model_dim / num_heads")
    value_dim: int | None = Field(default=None, gt=0, description="width of a value head; None: model_dim / num_heads")
    attention_bias: tuple[Role, ...] = Field(default=(), description="projections that have a bias; True: all, False: none")
    attention_scale: Literal["sqrt_key_dim", "key_dim"] = Field(default="sqrt_key_dim", description="what scores are divided by")
    keys_are_values: bool = Field(default=False, description="no key projection: queries are scored against the values")
    shared_projections: bool = Field(
        default=False, description="each head reads its slice of the input, and one query, key and value projection serves all heads"
    )
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="on attention probabilities")
    attention_output_dropout: float = Field(default=0.0, ge=0, lt=1, description="on what attention gives, before the residual connection")
    ff_dim: int | None = Field(default=None, gt=0, description="inner width of the feed-forward block; None: ff_expansion * model_dim")
    ff_expansion: int = Field(default=4, gt=0, description="inner width as a multiple of model_dim, where ff_dim is None")
    ff_activation: Literal["relu", "gelu", "silu"] = "relu"
    ff_dropout: float = Field(default=0.0, ge=0, lt=1, description="inside the feed-forward block")
    norm: Literal["pre", "post", "post_dropout"] = "pre"
    norm_epsilon: float = Field(default=1e-6, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1, description="of each residual connection")

    @field_validator("attention_bias", mode="before")
    @classmethod
    def _name_all_or_none(cls, value):
        return (ROLES if value else ()) if isinstance(value, bool) else value

    @field_validator("attention_bias")
    @classmethod
    def _sort_roles(cls, value):
        return tuple(role for role in ROLES if role in value)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if problems := self._problems():
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> list[str]:
        problems = []
        uneven = self.model_dim % self.num_heads
        if uneven and (self.shared_projections or None in (self.key_dim, self.value_dim)):
            cure = "with shared_projections" if self.shared_projections else "unless key_dim and value_dim are given"
            problems.append(f"model_dim must be a multiple of num_heads {cure}, got {self.model_dim} and {self.num_heads}")
        if self.keys_are_values and self.query_width != self.value_width:
            problems.append(f"keys_are_values needs key_dim and value_dim to be equal, got {self.query_width} and {self.value_width}")
        return problems

    @property
    def query_width(self) -> int:
        """K: the width of a query or key head."""
        return self.key_dim or self.model_dim // self.num_heads

    @property
    def value_width(self) -> int:
        """V: the width of a value head."""
        return self.value_dim or self.model_dim // self.num_heads

    @property
    def ff_width(self) -> int:
        """F: the inner width of the feed-forward block."""
        return self.ff_dim or self.ff_expansion * self.model_dim

    def layer_options(self, **changes) -> "LayerOptions":
        """Return a model's options of its layers alone, with `changes`."""
        return LayerOptions(**{**{name: getattr(self, name) for name in LayerOptions.model_fields}, **changes})


class ModelOptions(LayerOptions):
    """What every model adds to its layers."""

    positions: Literal["sinusoidal", "sinusoidal_halves", "learned"] = "sinusoidal"
    scale_embeddings: bool = Field(default=True, description="whether embeddings are multiplied by sqrt(model_dim)")
    embedding_dropout: float | None = Field(default=None, ge=0, lt=1, description="on embeddings with their positions; None: dropout")
    max_length: int = Field(default=256, gt=1, description="longest source or target in tokens, start and end included")

    @property
    def embedding_dropout_rate(self) -> float:
        """The dropout on embeddings."""
        return self.dropout if self.embedding_dropout is None else self.embedding_dropout

    @classmethod
    def preset(cls, name: str, **overrides) -> Self:
        """Return a named configuration, of `presets.PRESETS`.

        Args:
            name: "tiny", "small", "base" or "big" (the last two have the sizes of the paper's table 3), or the name of a
                document, see docs/seeds.md.
            **overrides: any field; vocabulary sizes are always needed.

        Raises:
            ValueError: for an unknown preset or an invalid field.
        """
        if name not in PRESETS:
            raise ValueError(f"preset: expected one of {', '.join(PRESETS)}, got '{name}'.{nearest(name, PRESETS)}")
        options = {key: value for key, value in PRESETS[name].items() if key in cls.model_fields}
        return cls(**{**options, **overrides})


class DecoderOptions(ModelOptions):
    """What the models that predict tokens have in common."""

    decoder_layers: int = Field(default=6, gt=0)
    decoder_final_norm: bool | None = Field(default=None, description="norm after the decoder; None: only where norm is 'pre'")
    decoder_attention_dropout: float | None = Field(default=None, ge=0, lt=1, description="None: attention_dropout")
    output_bias: bool = Field(default=False, description="whether the projection to the vocabulary has a bias")
    output: Literal["logits", "probabilities"] = Field(default="logits", description="what a call of the model returns")

    def decoder_options(self) -> LayerOptions:
        """Return the options of the decoder's layers."""
        own = self.decoder_attention_dropout
        return self.layer_options(attention_dropout=self.attention_dropout if own is None else own)


class TransformerConfig(DecoderOptions):
    """Describe an encoder-decoder Transformer: "Attention Is All You Need" (arXiv:1706.03762), section 3.

    We depart from the paper in the default norm placement: "pre" normalises the input of each sublayer ("On Layer
    Normalization in the Transformer Architecture", arXiv:2002.04745).
    """

    architecture: Literal["encoder_decoder"] = "encoder_decoder"
    source_vocab_size: int = Field(gt=UNKNOWN_ID)
    target_vocab_size: int = Field(gt=UNKNOWN_ID)
    encoder_layers: int = Field(default=6, gt=0)
    encoder_final_norm: bool | None = Field(default=None, description="norm after the encoder; None: only where norm is 'pre'")
    tie_embeddings: Literal["none", "target", "all"] = Field(
        default="none", description="share weights: 'target' input and output; 'all' these and the source (one vocabulary)"
    )

    def _problems(self) -> list[str]:
        problems = super()._problems()
        if self.tie_embeddings == "all" and self.source_vocab_size != self.target_vocab_size:
            problems.append(
                "tie_embeddings='all' needs one vocabulary on both sides, "
                f"got source_vocab_size {self.source_vocab_size} and target_vocab_size {self.target_vocab_size}"
            )
        return problems


class LanguageModelConfig(DecoderOptions):
    """Describe a decoder that stands alone and continues a sequence."""

    architecture: Literal["decoder"] = "decoder"
    vocab_size: int = Field(gt=UNKNOWN_ID)
    tie_embeddings: Literal["none", "all"] = Field(default="none", description="'all': tokens are read and predicted by one table")

    @property
    def source_vocab_size(self) -> int:
        """The vocabulary of prompts."""
        return self.vocab_size

    @property
    def target_vocab_size(self) -> int:
        """The vocabulary of continuations: the same."""
        return self.vocab_size


class ClassifierConfig(ModelOptions):
    """Describe an encoder with a classification head."""

    architecture: Literal["encoder"] = "encoder"
    vocab_size: int = Field(gt=UNKNOWN_ID)
    num_classes: int = Field(gt=1)
    encoder_layers: int = Field(default=6, gt=0)
    encoder_final_norm: bool | None = Field(default=None, description="norm after the encoder; None: only where norm is 'pre'")


class SearchSettings(Record):
    """Say how translations are searched for; beam size and length penalty default to the paper's (section 6.1)."""

    model_config = ConfigDict(strict=True)  # as `OnnxTranslator` is: "4" is no number

    beam_size: int = Field(default=4, ge=1, description="open hypotheses a sentence; 1 is greedy search")
    n_best: int = Field(default=1, ge=1, description="hypotheses returned a sentence, best first")
    length_penalty: float = Field(default=0.6, ge=0, description="alpha of ((5 + length) / 6) ** alpha")
    coverage_penalty: float = Field(default=0.0, ge=0, description="beta of beta * sum(log(min(attention a source token got, 1)))")
    min_length: int = Field(default=0, ge=0, description="shortest target in tokens, the end token included")
    max_length: int = Field(default=256, ge=1, description="longest target in tokens, the end token included")
    max_length_factor: float = Field(default=2.0, ge=0, description="longest target as a multiple of its source's tokens, plus ten")
    temperature: float = Field(default=0.0, ge=0, description="0: search; else each hypothesis draws from softmax(logits / temperature)")
    top_k: int = Field(default=0, ge=0, description="draw among so many best tokens; 0: among all")
    top_p: float = Field(default=1.0, gt=0, le=1, description="draw among the fewest best tokens that together are so probable")
    seed: int = Field(default=0, ge=0, description="of what is drawn")
    repetition_penalty: float = Field(default=1.0, gt=0, description="above 1: tokens that a hypothesis has become less probable")
    no_repeat_ngram_size: int = Field(default=0, ge=0, description="no sequence of so many tokens twice; 0: no such rule")

    def as_arrays(self) -> dict[str, np.ndarray]:
        """Return the settings by name as graphs and files take them: scalars of `SETTING_DTYPES`."""
        return {name: np.array(value, SETTING_DTYPES[name]) for name, value in self.model_dump().items()}

    @model_validator(mode="after")
    def _check_n_best(self) -> Self:
        if self.n_best > self.beam_size:
            raise ValueError(f"n_best must not exceed beam_size, got n_best {self.n_best} and beam_size {self.beam_size}")
        return self


def setting_rules() -> dict[str, dict]:
    """Return what each search setting may be, as JSON schema has it: default, type, minimum and so on, and a description."""
    properties = SearchSettings.model_json_schema()["properties"]
    return {name: {key: value for key, value in rules.items() if key != "title"} for name, rules in properties.items()}


# How the settings stand in graphs and files, in their order.
SETTING_DTYPES = {name: "float32" if field.annotation is float else "int32" for name, field in SearchSettings.model_fields.items()}
