"""Vocabularies that are lists of tokens with a rule, where there is no SentencePiece model."""

from collections.abc import Collection, Sequence
from pathlib import Path

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES, read_json, read_small_file
from tfk_transformer.config.words import shorten
from tfk_transformer.tokenizers.token_vocabulary import (
    LONGEST,
    WORD_MARK,
    piece_of,
    split_function,
    token_model,
)


def read_token_list(path: Path) -> list[str]:
    """Return the tokens of a vocabulary by row: a JSON list, or a text file with one a line."""
    if path.suffix == ".json":
        tokens = read_json(path, MAX_VOCABULARY_BYTES)
        if not isinstance(tokens, list) or not all(type(token) is str for token in tokens):
            raise ValueError(f"vocabulary: expected a list of tokens in {path}, got other values.")
    else:
        content = read_small_file(path, MAX_VOCABULARY_BYTES)
        if content.startswith(b"\x80"):
            raise ValueError(
                f"vocabulary: expected a list of tokens in {path}, got a pickle, which could run "
                "code; in the program that made it, write the tokens by id: "
                "json.dump(vocabulary.itos, open('tokens.json', 'w'))."
            )
        text = content.decode(errors="replace")
        tokens = text.removesuffix("\n").split("\n") if text else []
        # CTranslate2 takes a carriage return at the end of a line as part of a token, unless every
        # line has one.
        if all(token.endswith("\r") for token in tokens):
            tokens = [token.removesuffix("\r") for token in tokens]
    if not tokens:
        raise ValueError(f"vocabulary: expected tokens in {path}, got none.")
    return tokens


def token_list_model(
    tokens: Sequence[str], rule: str, special: Collection[str]
) -> tuple[ModelProto, list[str]]:
    """Return a SentencePiece model that splits texts by a rule, and the piece of each token.

    The tokens that the rule does not give, such as tags, are not split off in texts.
    """
    split = split_function(rule)
    ordinary = [token for token in tokens if token not in special]
    texts = [
        token
        for token in ordinary
        if rule == LONGEST or split(token) == [token.replace(WORD_MARK, " ")]
    ]
    if 2 * len(texts) < len(ordinary):
        raise ValueError(
            f"tokens: expected a rule that gives the {len(ordinary):,} tokens of the vocabulary, "
            f"such as {', '.join(map(shorten, ordinary[:3]))}, got {shorten(repr(rule))}, which "
            f"gives {len(texts):,} of them."
        )
    pieces = {token: piece_of(token, rule) for token in texts}
    model = ModelProto.FromString(token_model(texts, rule))
    return model, [pieces.get(token, token) for token in tokens]
