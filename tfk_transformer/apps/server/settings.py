"""The settings of the server."""

import importlib
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from pydantic import ConfigDict, Field, SecretStr, field_validator

from tfk_transformer.config.record import Record
from tfk_transformer.constants import LANGUAGE_PATTERN

# The parts of the settings.
ADDRESS, TRANSLATION, BATCHES = "Address and access", "Translation", "Batches"
# Browsers send an origin in lower case, and compare it with the header of the answer.
ORIGIN_PATTERN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[a-z0-9.:\[\]_-]+")


def _field(
    part: str, default: Any, description: str, metavar: str | None = None, **rules: Any
) -> Any:
    extra: Any = {"part": part, "metavar": metavar}
    return Field(default=default, description=description, json_schema_extra=extra, **rules)


_address = partial(_field, ADDRESS)
_translation = partial(_field, TRANSLATION)
_batches = partial(_field, BATCHES)
_limit = partial(_field, "Limits")


class ServerSettings(Record):
    """The served model's name and languages, and the server's batches, limits and timeouts."""

    model_config = ConfigDict(strict=True)

    name: str = _address("translator", "the model's name in URLs", "NAME", pattern=r"^\w[\w.-]*$")
    # Not strict: the command line passes a list.
    allow_origin: tuple[str, ...] = _address(
        (),
        "a website whose pages may send requests, such as https://example.com, or * for all",
        "ORIGIN",
        strict=False,
    )
    root_path: str | None = _address(
        None,
        "the path at which a proxy serves this server, such as /translator",
        "PATH",
        pattern=r"^(/[\w.~-]+)+$",
    )
    grpc_port: int | None = _address(
        None,
        "the port of TensorFlow Serving's gRPC interface, or 0 for any free port; requires the "
        "extra `grpc`",
        ge=0,
        le=65535,
    )
    source_language: str | None = _translation(
        None,
        "the code of the language that the model reads; by default, the model's own",
        "CODE",
        pattern=LANGUAGE_PATTERN,
    )
    target_language: str | None = _translation(
        None, "the code of the language that the model writes", "CODE", pattern=LANGUAGE_PATTERN
    )
    split_sentences: bool | None = _translation(
        None,
        "split texts into sentences, by the rules of the source language or of English, or let the "
        "model read each text as one sentence; default: as the model is used",
    )
    max_batch: int = _batches(64, "maximum number of sentences that are run together", ge=1)
    max_delay: float = _batches(
        10, "maximum number of milliseconds that a sentence waits for others", "MS", ge=0, le=10_000
    )
    workers: int = _batches(
        1,
        "number of batches that run at the same time; a single batch already uses all processors",
        ge=1,
        le=256,
    )
    max_body: int = _limit(2**20, "maximum size of a request's body in bytes", "BYTES", ge=1)
    max_head: int = _limit(
        2**16, "maximum size of a request's URL and headers in bytes", "BYTES", ge=1024
    )
    max_headers: int = _limit(100, "maximum number of headers of a request", ge=10)
    max_texts: int = _limit(256, "maximum number of texts of a request", ge=1)
    max_characters: int = _limit(5000, "maximum number of characters of a text", ge=1)
    max_beam_size: int = _limit(16, "maximum beam size of a request", ge=1)
    max_cost: int = _limit(
        2**17, "maximum cost of a request: beam size × tokens, about one for 4 characters", ge=1
    )
    max_queue: int = _limit(
        2048,
        "maximum number of sentences that wait, and of gRPC calls; further requests are refused",
        ge=1,
    )
    max_streams: int = _limit(8, "maximum number of streams at the same time", ge=1, le=1000)
    timeout: float = _limit(30, "seconds that an answer may take", "SECONDS", gt=0, le=3600)
    body_timeout: float = _limit(
        10, "seconds that a request's head or body may take to arrive", "SECONDS", gt=0, le=3600
    )
    drain_delay: float = _limit(
        1,
        "minimum number of seconds between SIGTERM and the end of the server",
        "SECONDS",
        ge=0,
        le=600,
    )

    version: str = Field(default="1", pattern=r"^[0-9]+$", description="the model's version")
    search: Mapping[str, Any] = Field(
        default={}, description="search settings of requests that do not set them"
    )
    api_key: SecretStr | None = Field(default=None, description="the key that requests must carry")

    @field_validator("grpc_port")
    @classmethod
    def _check_grpc(cls, port: int | None) -> int | None:
        if port is not None:
            importlib.import_module("grpc")  # before the model is loaded
        return port

    @field_validator("allow_origin")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(ORIGIN_PATTERN.fullmatch, origins)):
            raise ValueError("expected a scheme and a host in lower case, as https://example.com")
        return origins

    def _problems(self) -> Iterable[str]:
        if (self.source_language is None) != (self.target_language is None):
            yield (
                "source_language, target_language: expected both or neither, got only one; set both"
            )
        if self.max_texts > self.max_queue:
            yield (
                f"max_texts: expected at most max_queue, got {self.max_texts} and "
                f"{self.max_queue}; raise max_queue"
            )
        if self.api_key is not None and not self.api_key.get_secret_value().isascii():
            yield "api_key: expected only ASCII characters, as HTTP headers require"
