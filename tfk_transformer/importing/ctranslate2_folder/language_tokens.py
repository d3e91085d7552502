"""The tokens that users of CTranslate2 pass with every text, such as the tokens of languages.

CTranslate2 does not know them: they are part of the tokens of a source and of a target prefix.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.importing.ctranslate2_folder.token_files import CONFIG, FolderConfig
from tfk_transformer.importing.languages import Languages, check_languages
from tfk_transformer.importing.vocabulary import text_pieces

# M2M100: __de__; NLLB-200: deu_Latn; mBART: de_DE. fairseq has the latter as __deu_Latn__ and
# [de_DE].
LANGUAGE_TOKEN = re.compile(
    r"__([a-z]{2,3})__|(?:__)?([a-z]{3}_[A-Z][a-z]{3})(?:__)?|\[?([a-z]{2}_[A-Z]{2})\]?"
)


class PassedTokens(NamedTuple):
    """The tokens with every text. All but the start token may be several."""

    start: str | None  # the decoder's first token, or the one after `target_prefix`
    source_prefix: tuple[str, ...] = ()
    source_suffix: tuple[str, ...] = ()  # after the end token
    target_prefix: tuple[str, ...] = ()  # before the start token


def language_tokens(tokens: Sequence[str], proto: ModelProto) -> dict[str, str]:
    """Return the language tokens of a vocabulary by language code."""
    pieces = set(text_pieces(proto))
    matches = {token: LANGUAGE_TOKEN.fullmatch(token) for token in tokens if token not in pieces}
    return {next(filter(None, match.groups())): token for token, match in matches.items() if match}


def passed_tokens(
    config: FolderConfig,
    available: Mapping[str, str],
    languages: Languages,
    target_prefix: str | None,
    family: str,
) -> tuple[PassedTokens, Languages]:
    """Return the tokens with every text, and the languages that they select, if any.

    A model with language tokens reads and writes them where its family does: as M2M100, NLLB-200
    and mBART-50 if its decoder starts with the end token, as mBART-25 if its users pass the start
    token.

    Args:
        config: the values of config.json.
        available: the language tokens of the target by language code.
        languages: the languages that the user selects.
        target_prefix: the token that a program passes before every target, or None.
        family: the name of the family, for errors.

    Raises:
        ValueError: if a language is missing or unknown, or the start token is.
    """
    first = config.decoder_start_token
    before = (str(config.bos_token),) if config.add_source_bos else ()
    if target_prefix is not None:
        prefix = () if first is None else (first,)
        return PassedTokens(target_prefix, before, target_prefix=prefix), Languages()
    if len(available) > 1 and first in (None, config.eos_token):
        check_languages(languages, available, family)
        source, target = (available[str(language)] for language in languages)
        if first is None:
            return PassedTokens(target, before, source_suffix=(source,)), languages
        return PassedTokens(target, (*before, source), target_prefix=(first,)), languages
    if first is None:
        raise ValueError(
            f"folder: expected a decoder_start_token in {CONFIG}, got null: this model expects its "
            "start token in each target prefix; name it in the file."
        )
    return PassedTokens(first, before), Languages()
