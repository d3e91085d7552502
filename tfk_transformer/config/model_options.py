"""Options of models."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field

from tfk_transformer.config.layer_options import LayerOptions, option
from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.record import Record
from tfk_transformer.config.words import nearest
from tfk_transformer.constants import LANGUAGE_PATTERN, PAD_ID, UNKNOWN_ID

LANGUAGE_OPTIONS = ("source_language", "target_language")
VOCAB_SIZES = ("source_vocab_size", "target_vocab_size")
ADDED_TOKENS = ("source_prefix", "source_suffix", "target_prefix")


class ModelOptions(LayerOptions):
    """Options that all models have in addition to the options of their layers."""

    has_encoder: ClassVar[bool] = True
    has_decoder: ClassVar[bool] = True  # and predicts tokens
    positions: Literal[
        "sinusoidal",
        "sinusoidal_halves",
        "sinusoidal_paper_halves",
        "learned",
        "relative",
        "relative_by_layer",
    ] = option(
        "sinusoidal",
        "'relative' adds learned biases to the scores of self-attention, by head and bucket "
        "of distances, from one table a stack; 'relative_by_layer' from one table a layer",
    )
    position_buckets: int = option(
        32, "number of buckets of relative positions", ge=4, multiple_of=2
    )
    position_max_distance: int = option(
        128, "distance in tokens from which on all relative positions share a bucket", gt=1
    )
    position_offset: int = option(
        0, "the number of the first position of a sequence, for sinusoids", ge=0
    )
    scale_embeddings: bool = option(True, "whether embeddings are multiplied by sqrt(model_dim)")
    embedding_norm: bool = option(
        False, "whether the sum of embeddings and positions is normalized, before dropout"
    )
    embedding_dropout: float | None = option(
        None, "on the sum of embeddings and positions; by default, as in `dropout`", ge=0, lt=1
    )
    max_length: int = option(
        256, "longest source or target in tokens, start and end included", gt=1
    )

    def _problems(self) -> list[str]:
        problems = super()._problems()
        if self.position_offset and not self.positions.startswith("sinusoidal"):
            problems.append(
                f"position_offset needs sinusoids, got {self.position_offset} and "
                f"positions='{self.positions}'; leave unused rows out"
            )
        if self.position_max_distance <= self.position_buckets // 2:
            problems.append(
                "position_max_distance must be above half of position_buckets, got "
                f"{self.position_max_distance} and {self.position_buckets}"
            )
        return problems

    @property
    def embedding_dropout_rate(self) -> float:
        """The dropout on the sum of embeddings and positions."""
        return self.dropout if self.embedding_dropout is None else self.embedding_dropout

    @property
    def has_learned_positions(self) -> bool:
        """Whether a learned vector for each position is added to the embeddings."""
        return self.positions == "learned"

    @property
    def has_relative_positions(self) -> bool:
        """Whether attention adds biases by distance, and nothing is added to the embeddings."""
        return self.positions in ("relative", "relative_by_layer")

    @property
    def has_biases_by_layer(self) -> bool:
        """Whether each layer has a table of biases of relative positions, or a stack shares one."""
        return self.positions == "relative_by_layer"

    @property
    def relative_positions(self) -> tuple[int, int, bool] | None:
        """The options of a stack with relative positions; see `layers.encoder.Encoder`."""
        if not self.has_relative_positions:
            return None
        return self.position_buckets, self.position_max_distance, self.has_biases_by_layer

    @property
    def members(self) -> tuple[Self, ...]:
        """The configurations of the models that predict together: this one."""
        return (self,)

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """Return a named configuration from `presets.PRESETS`.

        Args:
            name: "tiny", "small", "base" or "big" (the last two have the sizes of the paper's table
                3), or a name from docs/seeds.md.
            **overrides: values of fields. Vocabulary sizes are always required.

        Raises:
            ValueError: if the preset is unknown or a field is invalid.
        """
        if name not in PRESETS:
            raise ValueError(
                f"preset: expected one of {', '.join(PRESETS)}, got "
                f"'{name}'.{nearest(name, PRESETS)}"
            )
        options = {key: value for key, value in PRESETS[name].items() if key in cls.model_fields}
        return cls(**{**options, **overrides})


def _language(verb: str) -> Any:
    return option(
        None,
        f"the code of the language that the model {verb}, such as 'de'; None: unknown",
        pattern=LANGUAGE_PATTERN,
    )


class DecoderOptions(ModelOptions):
    """Options of all models that predict tokens."""

    source_language: str | None = _language("reads")
    target_language: str | None = _language("writes")
    split_sentences: bool = option(
        True,
        "whether texts are split into sentences that are translated separately; false for a "
        "model that reads whole texts, such as one that summarizes",
    )
    decoder_layers: int = option(6, "number of decoder layers", gt=0)
    decoder_final_norm: bool | None = option(
        None, "norm after the decoder; by default, only where norm is 'pre'"
    )
    decoder_mixer: Literal["attention", "ssru"] = option(
        "attention",
        "what combines the target tokens: self-attention, or a simpler simple recurrent unit "
        "(SSRU), whose state has one vector",
    )
    decoder_ff_dim: int | None = option(
        None,
        "inner width of the decoder's feed-forward blocks; by default, as in the encoder",
        gt=0,
    )
    decoder_attention_dropout: float | None = option(
        None,
        "on attention probabilities of the decoder; by default, as in `attention_dropout`",
        ge=0,
        lt=1,
    )
    output_bias: bool = option(False, "whether the projection to the vocabulary has a bias")
    output: Literal["logits", "probabilities"] = option(
        "logits", "the values that a call of the model returns"
    )

    @property
    def has_ssru(self) -> bool:
        """Whether an SSRU combines the target tokens, and not self-attention."""
        return self.decoder_mixer == "ssru"

    @property
    def returns_logits(self) -> bool:
        """Whether a call of the model returns logits, and not probabilities."""
        return self.output == "logits"

    def decoder_options(self) -> LayerOptions:
        """Return the options of the decoder's layers."""
        override = self.decoder_attention_dropout
        dropout = self.attention_dropout if override is None else override
        return self.layer_options(
            attention_dropout=dropout, ff_dim=self.decoder_ff_dim or self.ff_dim
        )


class TransformerConfig(DecoderOptions):
    """Sizes and options of an encoder-decoder Transformer.

    The architecture is from "Attention Is All You Need" (arXiv:1706.03762), section 3. The default
    norm placement differs from the paper: "pre" normalizes the input of each sublayer ("On Layer
    Normalization in the Transformer Architecture", arXiv:2002.04745).
    """

    architecture: Literal["encoder_decoder"] = "encoder_decoder"
    source_vocab_size: int = Field(gt=UNKNOWN_ID)
    target_vocab_size: int = Field(gt=UNKNOWN_ID)
    encoder_layers: int = option(6, "number of encoder layers", gt=0)
    encoder_final_norm: bool | None = option(
        None, "norm after the encoder; by default, only where norm is 'pre'"
    )
    tie_embeddings: Literal["none", "inputs", "target", "all"] = option(
        "none",
        "share weights: 'inputs' source and target input, 'target' target input and output; "
        "'all' all three; with a shared source, there is one vocabulary",
    )
    source_end: bool = option(
        True, "whether the model reads the end token of a source; false: it is hidden"
    )
    source_prefix: tuple[int, ...] = option(
        (),
        "ids that the model puts before every source, such as a language token; "
        "max_length does not count them",
    )
    source_suffix: tuple[int, ...] = option(
        (),
        "ids that the model puts after the end token of every source; max_length does not "
        "count them",
    )
    target_prefix: tuple[int, ...] = option(
        (), "ids that the model puts before the start token of every target"
    )

    @property
    def has_one_table(self) -> bool:
        """Whether both embeddings and the projection to the vocabulary are one table."""
        return self.tie_embeddings == "all"

    @property
    def shares_source(self) -> bool:
        """Whether source and target have one embedding table."""
        return self.tie_embeddings in ("inputs", "all")

    @property
    def ties_output(self) -> bool:
        """Whether the projection to the vocabulary is the target's embedding table."""
        return self.tie_embeddings in ("target", "all")

    @property
    def source_additions(self) -> tuple[int, ...]:
        """The ids that the model reads with every source: first the suffix, then the prefix.

        The encoder reads them before the source, but gives the suffix the positions after it.
        Attention depends on positions and not on this order.
        """
        return (*self.source_suffix, *self.source_prefix)

    def _problems(self) -> list[str]:
        problems = super()._problems()
        for name in ADDED_TOKENS:
            tokens = getattr(self, name)
            size = getattr(self, f"{name.partition('_')[0]}_vocab_size")
            if not all(PAD_ID < token < size for token in tokens):
                problems.append(
                    f"{name} needs ids from 1 to {size - 1}, the vocabulary without padding, got "
                    f"{tokens}"
                )
        if self.source_suffix and self.has_relative_positions:
            problems.append(
                f"source_suffix needs absolute positions, got {self.source_suffix} and "
                f"positions='{self.positions}'"
            )
        if self.target_prefix and self.has_ssru:
            problems.append(
                "target_prefix needs decoder_mixer='attention', since each step of an SSRU reads "
                f"one token, got {self.target_prefix} and decoder_mixer='ssru'; use source_prefix"
            )
        if self.shares_source and self.source_vocab_size != self.target_vocab_size:
            problems.append(
                f"tie_embeddings='{self.tie_embeddings}' needs one vocabulary on both sides, "
                f"got source_vocab_size {self.source_vocab_size} and target_vocab_size "
                f"{self.target_vocab_size}"
            )
        return problems


class EnsembleConfig(Record):
    """Configurations of encoder-decoder Transformers that translate together; see `Ensemble`."""

    has_encoder: ClassVar[bool] = True
    has_decoder: ClassVar[bool] = True
    architecture: Literal["ensemble"] = "ensemble"
    members: tuple[TransformerConfig, ...] = Field(min_length=1)
    source_vocab_size: int = Field(description="the same as in every member")
    target_vocab_size: int = Field(description="the same as in every member")
    max_length: int = Field(description="the smallest `max_length` of the members")
    source_language: str | None = _language("reads")
    target_language: str | None = _language("writes")
    split_sentences: bool = option(True, "whether texts of all members are")

    @classmethod
    def of(cls, members: Sequence[TransformerConfig]) -> Self:
        """Return the configuration of an ensemble.

        Args:
            members: at least one configuration; all have the same vocabulary sizes.

        Raises:
            ValueError: if `members` is empty, or their vocabulary sizes differ.
        """
        sizes = {name: getattr(members[0], name) if members else 0 for name in VOCAB_SIZES}
        languages = {
            name: getattr(members[0], name)
            for name in LANGUAGE_OPTIONS
            if len({getattr(member, name) for member in members}) == 1
        }
        return cls(
            members=tuple(members),
            **sizes,
            **languages,
            max_length=min((member.max_length for member in members), default=0),
            split_sentences=all(member.split_sentences for member in members),
        )

    def _problems(self) -> Iterator[str]:
        for number, member in enumerate(self.members):
            for name in VOCAB_SIZES:
                size, expected = getattr(member, name), getattr(self, name)
                if size != expected:
                    yield (
                        f"members: expected {name} {expected} in all, got {size} in "
                        f"members[{number}]; use models of one tokenizer"
                    )
            for name in ADDED_TOKENS:
                length = len(getattr(member, name))
                expected = len(getattr(self.members[0], name))
                if length != expected:
                    yield (
                        f"members: expected {expected} tokens of {name} in all, got {length} in "
                        f"members[{number}]"
                    )
        shortest = min(member.max_length for member in self.members)
        if self.max_length != shortest:
            yield (
                f"max_length: expected {shortest}, the least of the members', got {self.max_length}"
            )


class LanguageModelConfig(DecoderOptions):
    """Sizes and options of a decoder-only model, which continues a sequence."""

    has_encoder: ClassVar[bool] = False
    architecture: Literal["decoder"] = "decoder"
    vocab_size: int = Field(gt=UNKNOWN_ID)
    tie_embeddings: Literal["none", "all"] = option(
        "none", "'all': the input embedding and the output projection share weights"
    )
    # The ids that the model reads with every prompt, and before the start token: none.
    source_additions: ClassVar[tuple[int, ...]] = ()
    target_prefix: ClassVar[tuple[int, ...]] = ()

    def _problems(self) -> list[str]:
        problems = super()._problems()
        if self.has_ssru and self.has_relative_positions:
            problems.append(
                f"positions='{self.positions}' needs self-attention, got decoder_mixer='ssru'"
            )
        return problems

    @property
    def has_one_table(self) -> bool:
        """Whether the embedding and the projection to the vocabulary are one table."""
        return self.tie_embeddings == "all"

    @property
    def ties_output(self) -> bool:
        """Whether the projection to the vocabulary is the embedding table."""
        return self.has_one_table

    @property
    def source_vocab_size(self) -> int:
        """The vocabulary size of prompts."""
        return self.vocab_size

    @property
    def target_vocab_size(self) -> int:
        """The vocabulary size of continuations, which is the same."""
        return self.vocab_size


# The configurations of models that predict tokens.
TokenConfig: TypeAlias = TransformerConfig | LanguageModelConfig | EnsembleConfig


class ClassifierConfig(ModelOptions):
    """Sizes and options of an encoder with a classification head."""

    has_decoder: ClassVar[bool] = False
    architecture: Literal["encoder"] = "encoder"
    vocab_size: int = Field(gt=UNKNOWN_ID)
    num_classes: int = Field(gt=1)
    encoder_layers: int = option(6, "number of encoder layers", gt=0)
    encoder_final_norm: bool | None = option(
        None, "norm after the encoder; by default, only where norm is 'pre'"
    )
