"""Search settings: how translations are searched for."""

from typing import Any, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from tfk_transformer.config.record import Record


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


def setting_rules(model_max_length: int | None = None) -> dict[str, dict[str, Any]]:
    """Return the rules of each search setting as in a JSON schema: default, type, minimum and so on, and a description.

    Args:
        model_max_length: the `max_length` of a model, which the default of the setting `max_length` does not exceed.
    """
    properties = SearchSettings.model_json_schema()["properties"]
    found = {name: {key: value for key, value in rules.items() if key != "title"} for name, rules in properties.items()}
    if model_max_length is not None:
        found["max_length"]["default"] = min(found["max_length"]["default"], model_max_length)
    return found


def default_settings(model_max_length: int | None = None) -> dict[str, int | float]:
    """Return the defaults in `setting_rules`."""
    return {name: rules["default"] for name, rules in setting_rules(model_max_length).items()}


# How the settings stand in graphs and files, in their order.
SETTING_DTYPES = {name: "float32" if field.annotation is float else "int32" for name, field in SearchSettings.model_fields.items()}
