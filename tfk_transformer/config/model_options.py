"""Options of models."""

from typing import Literal, Self

from pydantic import Field

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.record import nearest
from tfk_transformer.constants import UNKNOWN_ID


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
