"""The result of reading a model of another library: everything that a translator consists of."""

import difflib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from pydantic import ConfigDict
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.record import Record
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.vocabulary import WORD_MARK, Piece, text_pieces
from tfk_transformer.text.languages import Languages
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

MAX_LISTED_LANGUAGES = 10  # languages that an error message lists
FREE_LENGTH = 1000.0  # a `max_length_factor` with which sources do not limit the targets


class ForeignConfig(Record):
    """The values of another library's configuration on which results depend.

    Other values are ignored. A wrong value is not a typing error, so errors propose no other one.
    """

    model_config = ConfigDict(extra="ignore")
    proposes_values = False


class Imported(NamedTuple):
    """A model of another library, converted to this project's options, names and ids."""

    config: TransformerConfig
    arrays: Mapping[str, np.ndarray]  # by the names of `Transformer.named_weights`
    source_model: bytes  # a SentencePiece model with this project's ids
    target_model: bytes
    family: str
    search: Mapping[str, Any]  # the model's settings, the translator's defaults
    notes: tuple[str, ...]  # one sentence for each setting that has no counterpart here
    languages: Languages = Languages()  # the selected ones


def check_languages(
    languages: Languages,
    available: Collection[str],
    family: str,
    required: Collection[str] = ("source", "target"),
) -> None:
    """Refuse languages that a folder lacks. Sides that are not `required` may be None."""
    problems = []
    for name, language in languages._asdict().items():
        is_passed = language is not None or name in required
        if is_passed and language not in available:
            names = list(available)
            if close := difflib.get_close_matches(language or "", names, MAX_LISTED_LANGUAGES // 2):
                listed = f"the nearest: {', '.join(close)}"
            else:
                more = ["…"] if len(names) > MAX_LISTED_LANGUAGES else []
                listed = ", ".join(names[:MAX_LISTED_LANGUAGES] + more)
            got = "nothing" if language is None else f"'{shorten(language)}'"
            problems.append(
                f"{name}_language: expected one of the {len(names)} languages of this folder of "
                f"{family} ({listed}), got {got}"
            )
    if problems:
        raise ValueError("; ".join(problems) + ".")


def with_text_prefix(imported: Imported, prefix: str) -> Imported:
    """Return a model that puts the tokens of a text before every source.

    Results are the same as with the text, and a blank if the tokenizer marks words, typed before
    each source.
    """
    config = imported.config
    ids = SubwordTokenizer(imported.source_model).encode([prefix])[0]
    problem = ""
    if not ids:
        problem = "a text with tokens"
    elif config.source_additions:
        problem = f"none for {imported.family}, which puts a language before or after the source"
    elif config.has_learned_positions:
        problem = f"none for {imported.family}, whose positions have no row for it"
    elif not _segments_apart(ModelProto.FromString(imported.source_model)):
        problem = "none for a tokenizer whose pieces span words; type it before each source"
    if problem:
        raise ValueError(f"source_text_prefix: expected {problem}, got {shorten(repr(prefix))}.")
    return imported._replace(config=config.replace(source_prefix=tuple(ids)))


def _segments_apart(model: ModelProto) -> bool:
    """Return whether a prefix and a text have the same tokens together and apart."""
    normalizer = model.normalizer_spec
    ordinary = [piece for piece in model.pieces if piece.type == Piece.NORMAL]
    if not normalizer.escape_whitespaces:
        return len(ordinary) <= 1  # the spare piece of a model of bytes
    if model.trainer_spec.treat_whitespace_as_suffix or not normalizer.add_dummy_prefix:
        return False
    return all(WORD_MARK not in piece.lstrip(WORD_MARK) for piece in text_pieces(model))
