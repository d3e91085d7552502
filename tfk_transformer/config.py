"""The model's configuration and the search's settings.

Letters used in every docstring of this package: B batch, S source length, T target length, D model_dim, F ff_dim,
H num_heads, K key_dim, V value_dim, L layers, M beams a sentence.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from tfk_transformer.records import Record, nearest

PAD_ID, START_ID, END_ID, UNKNOWN_ID = 0, 1, 2, 3

PRESETS = {
    "tiny": {"model_dim": 128, "ff_dim": 512, "num_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0},
    "small": {"model_dim": 256, "ff_dim": 1024, "num_heads": 4, "encoder_layers": 3, "decoder_layers": 3, "dropout": 0.2},
    "base": {"model_dim": 512, "ff_dim": 2048, "num_heads": 8, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.1},
    "big": {"model_dim": 1024, "ff_dim": 4096, "num_heads": 16, "encoder_layers": 6, "decoder_layers": 6, "dropout": 0.3},
}


class TransformerConfig(Record):
    """Describe an encoder-decoder Transformer: "Attention Is All You Need" (arXiv:1706.03762), section 3.

    Sizes are counts; dropouts are probabilities in [0, 1). We depart from the paper in the default norm placement: "pre"
    normalises the input of each sublayer ("On Layer Normalization in the Transformer Architecture", arXiv:2002.04745).
    """

    source_vocab_size: int = Field(gt=UNKNOWN_ID)
    target_vocab_size: int = Field(gt=UNKNOWN_ID)
    model_dim: int = Field(default=512, gt=0)
    ff_dim: int = Field(default=2048, gt=0)
    num_heads: int = Field(default=8, gt=0)
    key_dim: int | None = Field(default=None, gt=0, description="width of a query or key head; None: model_dim / num_heads")
    value_dim: int | None = Field(default=None, gt=0, description="width of a value head; None: model_dim / num_heads")
    encoder_layers: int = Field(default=6, gt=0)
    decoder_layers: int = Field(default=6, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1, description="on embeddings and on the output of each sublayer")
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="on attention probabilities")
    ff_dropout: float = Field(default=0.0, ge=0, lt=1, description="inside the feed-forward block")
    norm: Literal["pre", "post"] = "pre"
    norm_epsilon: float = Field(default=1e-6, gt=0)
    attention_bias: bool = False
    positions: Literal["sinusoidal", "sinusoidal_halves", "learned"] = "sinusoidal"
    tie_embeddings: Literal["none", "target", "all"] = Field(
        default="none", description="share weights: 'target' input and output; 'all' these and the source (one vocabulary)"
    )
    max_length: int = Field(default=256, gt=1, description="longest source or target in tokens, start and end included")

    @model_validator(mode="after")
    def _check_dimensions_together(self) -> Self:
        problems = []
        if self.model_dim % self.num_heads and None in (self.key_dim, self.value_dim):
            problems.append(
                "model_dim must be a multiple of num_heads unless key_dim and value_dim are given, "
                f"got {self.model_dim} and {self.num_heads}"
            )
        if self.positions != "learned" and self.model_dim % 2:
            problems.append(f"model_dim must be even for sinusoidal positions, got {self.model_dim}")
        if self.tie_embeddings == "all" and self.source_vocab_size != self.target_vocab_size:
            problems.append(
                "tie_embeddings='all' needs one vocabulary on both sides, "
                f"got source_vocab_size {self.source_vocab_size} and target_vocab_size {self.target_vocab_size}"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def query_width(self) -> int:
        """K: the width of a query or key head."""
        return self.key_dim or self.model_dim // self.num_heads

    @property
    def value_width(self) -> int:
        """V: the width of a value head."""
        return self.value_dim or self.model_dim // self.num_heads

    @classmethod
    def preset(cls, name: str, **overrides) -> Self:
        """Return a named configuration; `base` and `big` have the sizes of the paper's table 3.

        Args:
            name: "tiny", "small", "base" or "big".
            **overrides: any field; the two vocabulary sizes are always needed.

        Raises:
            ValueError: for an unknown preset or an invalid field.
        """
        if name not in PRESETS:
            raise ValueError(f"preset: expected one of {', '.join(PRESETS)}, got '{name}'.{nearest(name, PRESETS)}")
        return cls(**{**PRESETS[name], **overrides})


class SearchSettings(Record):
    """Say how translations are searched for; beam size and length penalty default to the paper's (section 6.1)."""

    beam_size: int = Field(default=4, ge=1, description="open hypotheses a sentence; 1 is greedy search")
    n_best: int = Field(default=1, ge=1, description="hypotheses returned a sentence, best first")
    length_penalty: float = Field(default=0.6, ge=0, description="alpha of ((5 + length) / 6) ** alpha")
    max_length: int = Field(default=256, ge=1, description="longest target in tokens, the end token included")
    max_length_factor: float = Field(default=2.0, ge=0, description="longest target as a multiple of its source's tokens, plus ten")

    @model_validator(mode="after")
    def _check_n_best(self) -> Self:
        if self.n_best > self.beam_size:
            raise ValueError(f"n_best must not exceed beam_size, got n_best {self.n_best} and beam_size {self.beam_size}")
        return self


# How the settings stand in graphs and files, in their order.
SETTING_DTYPES = {name: "float32" if field.annotation is float else "int32" for name, field in SearchSettings.model_fields.items()}
