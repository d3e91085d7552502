"""The settings of the server."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import ConfigDict, Field, SecretStr, model_validator

from tfk_transformer.config.record import Record


class ServerSettings(Record):
    """The served model's name and languages, and the server's batches, limits and timeouts."""

    model_config = ConfigDict(strict=True)

    name: str = Field(
        default="translator",
        pattern=r"^\w[\w.-]*$",
        description="the model's name, which is part of URLs",
    )
    version: str = Field(default="1", pattern=r"^[0-9]+$")
    source_language: str | None = Field(
        default=None, pattern=r"^\w[\w-]*$", description="code of the language that the model reads"
    )
    target_language: str | None = Field(
        default=None, pattern=r"^\w[\w-]*$", description="code of the language that it writes"
    )
    search: Mapping[str, Any] = Field(
        default={}, description="search settings of requests that do not give them"
    )

    workers: int = Field(default=1, ge=1, le=256, description="batches that run at the same time")
    max_batch: int = Field(default=64, ge=1, description="texts in a batch")
    max_delay: float = Field(
        default=0.01, ge=0, le=10, description="most seconds that a text waits for others"
    )

    max_body: int = Field(default=2**20, ge=1, description="bytes of a request's body")
    max_texts: int = Field(default=256, ge=1, description="texts in a request")
    max_characters: int = Field(default=5000, ge=1, description="characters in a text")
    max_beam_size: int = Field(default=16, ge=1, description="the greatest beam_size of a request")
    max_queue: int = Field(default=2048, ge=1, description="texts that wait")
    max_streams: int = Field(default=8, ge=1, le=1000, description="streams at the same time")
    timeout: float = Field(
        default=30.0, gt=0, le=3600, description="seconds from a request's body to its answer"
    )
    body_timeout: float = Field(
        default=10.0, gt=0, le=3600, description="seconds that a request's body may take to arrive"
    )
    drain_delay: float = Field(
        default=1.0, ge=0, le=600, description="least seconds between SIGTERM and the end"
    )

    api_key: SecretStr | None = None

    @model_validator(mode="after")
    def _check_languages_and_queue(self) -> Self:
        if (self.source_language is None) != (self.target_language is None):
            raise ValueError(
                "source_language, target_language: expected both or neither, got one; give the "
                "other too"
            )
        if self.max_texts > self.max_queue:
            raise ValueError(
                f"max_texts: expected at most max_queue, got {self.max_texts} and "
                f"{self.max_queue}; raise max_queue"
            )
        if self.api_key is not None and not self.api_key.get_secret_value().isascii():
            raise ValueError("api_key: expected ASCII characters, which HTTP headers carry")
        return self
