"""Search settings."""

from typing import Any, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from tfk_transformer.config.record import Record

INT32 = 2**31 - 1  # the largest integer that exported files accept
MAX_BEAMS = 1000  # the hypotheses of one sentence of 256 tokens then take gigabytes


class SearchSettings(Record):
    """Settings of the beam search and of sampling.

    Beam size and length penalty default to the paper's values (section 6.1).
    """

    # The string "4" is not accepted as a number, as in `OnnxTranslator`.
    model_config = ConfigDict(strict=True)

    beam_size: int = Field(
        default=4,
        ge=1,
        le=MAX_BEAMS,
        description="number of open hypotheses for each sentence; 1 is greedy search",
    )
    n_best: int = Field(
        default=1,
        ge=1,
        le=MAX_BEAMS,
        description="number of hypotheses returned for each sentence, best first",
    )
    length_penalty: float = Field(
        default=0.6, ge=0, le=10, description="alpha of ((5 + length) / 6) ** alpha"
    )
    coverage_penalty: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="beta of beta * sum(log(min(total attention to a source token, 1)))",
    )
    min_length: int = Field(
        default=0, ge=0, le=INT32, description="shortest target in tokens, the end token included"
    )
    max_length: int = Field(
        default=256, ge=1, le=INT32, description="longest target in tokens, the end token included"
    )
    max_length_factor: float = Field(
        default=2.0,
        ge=0,
        le=1000,
        description="longest target as a multiple of the number of source tokens, plus ten",
    )
    temperature: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        description="0: beam search; above 0: tokens are drawn from softmax(logits / temperature)",
    )
    top_k: int = Field(
        default=0,
        ge=0,
        le=INT32,
        description="draw from this many most probable tokens; 0: from all",
    )
    top_p: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="draw from the fewest most probable tokens whose probabilities add up to this",
    )
    seed: int = Field(default=0, ge=0, le=INT32, description="seed of the random draws")
    repetition_penalty: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="above 1: tokens that a hypothesis already contains become less probable",
    )
    no_repeat_ngram_size: int = Field(
        default=0,
        ge=0,
        le=INT32,
        description="no sequence of this many tokens occurs twice; 0: no such rule",
    )

    def as_arrays(self) -> dict[str, np.ndarray]:
        """Return the settings as inputs of exported files: scalar arrays by name.

        `SETTING_DTYPES` has the dtypes.
        """
        return {
            name: np.array(value, SETTING_DTYPES[name]) for name, value in self.model_dump().items()
        }

    @model_validator(mode="after")
    def _check_n_best(self) -> Self:
        if self.n_best > self.beam_size:
            raise ValueError(
                f"n_best must not exceed beam_size, got n_best {self.n_best} and beam_size "
                f"{self.beam_size}"
            )
        return self


def search_defaults(max_length: int | None = None) -> SearchSettings:
    """Return the default search settings.

    Args:
        max_length: the model's limit in tokens, which the default `max_length` does not exceed.
            None: no limit.
    """
    defaults = SearchSettings()
    if max_length is None or max_length >= defaults.max_length:
        return defaults
    return SearchSettings(max_length=max_length)


def setting_rules(
    max_length: int | None = None, vocab_size: int | None = None
) -> dict[str, dict[str, Any]]:
    """Return the rules of each search setting as a JSON schema.

    The rules of a setting are its default, type, minimum, maximum and description.

    Args:
        max_length: the model's limit in tokens, which is the maximum of all lengths. None: no
            limit.
        vocab_size: number of target tokens, which is the maximum of `beam_size`, `n_best` and
            `top_k`. None: no limit.
    """
    properties = SearchSettings.model_json_schema()["properties"]
    defaults = search_defaults(max_length).model_dump()
    limits = dict.fromkeys(("min_length", "max_length", "no_repeat_ngram_size"), max_length)
    limits |= dict.fromkeys(("beam_size", "n_best", "top_k"), vocab_size)
    return {
        name: {
            **{key: value for key, value in rules.items() if key != "title"},
            "default": defaults[name],
            "maximum": min(rules["maximum"], limits.get(name) or INT32),
        }
        for name, rules in properties.items()
    }


# The dtypes of the settings as inputs of exported files, in their order.
SETTING_DTYPES = {
    name: "float32" if field.annotation is float else "int32"
    for name, field in SearchSettings.model_fields.items()
}
