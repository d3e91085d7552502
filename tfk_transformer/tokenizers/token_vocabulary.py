"""Vocabularies of whole tokens: a list of tokens, and the rule that splits texts into them.

A vocabulary is a SentencePiece model with one piece a token, which every runtime has: a model of
words for the rule "words", and otherwise a model of characters, in which a token is the longest one
that the rest of the text begins with. Texts are not normalized.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sentencepiece

from tfk_transformer.config.words import shorten
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID

CHARACTERS, WORDS, LONGEST = "characters", "words", "longest"
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")  # pieces by id
UNKNOWN_TEXT = "\u2047"  # of an unknown token in a text; SentencePiece adds a blank on both sides
WORD_MARK = "\u2581"  # of SentencePiece, at the start of a word
CHECKED_TEXTS = 100_000  # of a training set


def split_function(rule: str) -> Callable[[str], list[str]]:
    """Return the function that splits a text into tokens. As in SentencePiece, "▁" is a blank.

    Raises:
        ValueError: if `rule` is a pattern that is not a regular expression.
    """
    if rule == CHARACTERS:
        return lambda text: list(text.replace(WORD_MARK, " "))
    if rule == WORDS:
        return lambda text: [word for word in text.replace(WORD_MARK, " ").split(" ") if word]
    try:
        pattern = re.compile(rule)
    except re.error as error:
        raise ValueError(
            f"tokens: expected {CHARACTERS}, {WORDS} or a regular expression, got {rule!r}: {error}"
        ) from None

    def matches(text: str) -> list[str]:
        matches = pattern.finditer(text.replace(WORD_MARK, " "))
        return [match[0] for match in matches if match[0]]

    return matches


def learn_tokens(
    texts: Iterable[str], rule: str, vocab_size: int
) -> tuple[list[str], Sequence[str]]:
    """Return the most frequent tokens of texts, and the first texts, to check the split of."""
    split = split_function(rule)
    texts = iter(texts)
    first = list(itertools.islice(texts, CHECKED_TEXTS))
    counts = Counter(itertools.chain.from_iterable(map(split, itertools.chain(first, texts))))
    if not counts:
        raise ValueError(f"texts: expected tokens of the rule {rule!r}, got none.")
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    size = len(ranked) + len(SPECIAL)
    if size <= vocab_size:
        return ranked, first
    if rule in (CHARACTERS, WORDS):
        return ranked[: vocab_size - len(SPECIAL)], ()
    # Without one of its tokens, texts would be split into other, shorter tokens.
    raise ValueError(
        f"vocab_size: expected at least {size:,}, the special pieces and one for each token of the "
        f"texts by the pattern {rule!r}, got {vocab_size:,}."
    )


def piece_of(token: str, rule: str) -> str:
    """Return the SentencePiece piece of a token."""
    return WORD_MARK + token if rule == WORDS else token.replace(" ", WORD_MARK)


def token_model(tokens: Sequence[str], rule: str, special: Sequence[str] = SPECIAL) -> bytes:
    """Return the SentencePiece model of tokens, whose ids begin after the special ones.

    Raises:
        ValueError: if a token occurs twice, or no text has it by the rule.
    """
    from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

    tokens = [token.replace(WORD_MARK, " ") for token in tokens]
    _check_tokens(tokens, rule, special)
    types = ModelProto.SentencePiece
    is_words = rule == WORDS
    model = ModelProto()
    for id_, name in enumerate(special):
        model.pieces.add(piece=name, type=types.UNKNOWN if id_ == UNKNOWN_ID else types.CONTROL)
    trainer = model.trainer_spec
    for token in tokens:
        piece = model.pieces.add(piece=piece_of(token, rule), type=types.NORMAL)
        if not is_words and len(token) > 1:
            piece.type = types.USER_DEFINED
            trainer.user_defined_symbols.append(piece.piece)
    trainer.model_type = TrainerSpec.WORD if is_words else TrainerSpec.CHAR
    trainer.vocab_size = len(model.pieces)
    trainer.unk_surface = f" {UNKNOWN_TEXT}" if is_words else UNKNOWN_TEXT
    name_special_pieces(trainer, special)
    normalizer = model.normalizer_spec
    normalizer.name = "identity"
    normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = is_words
    return bytes(model.SerializeToString())


def name_special_pieces(trainer: Any, pieces: Sequence[str]) -> None:
    """State the special tokens, which are the first pieces, in the `TrainerSpec` of a model."""
    for id_, name in ((PAD_ID, "pad"), (START_ID, "bos"), (END_ID, "eos"), (UNKNOWN_ID, "unk")):
        setattr(trainer, f"{name}_id", id_)
        setattr(trainer, f"{name}_piece", pieces[id_])


def _check_tokens(tokens: Sequence[str], rule: str, special: Sequence[str]) -> None:
    split = split_function(rule)
    seen = set() if rule == WORDS else set(special)  # pieces of words begin with a mark
    for token in tokens:
        name = shorten(repr(token))
        if not token or token in seen:
            raise ValueError(f"tokens: expected each token once, got {name} again or empty.")
        seen.add(token)
        if rule != LONGEST and (parts := split(token)) != [token]:
            raise ValueError(
                f"tokens: expected tokens by the rule {rule!r}, got {name}, which it splits into "
                f"{shorten(repr(parts))}; remove the token, or use the rule {LONGEST!r}."
            )


def check_split(
    processor: sentencepiece.SentencePieceProcessor, rule: str, texts: Iterable[str]
) -> None:
    """Refuse tokens with which SentencePiece splits a text otherwise than the rule.

    Several unknown tokens in a row are one for SentencePiece.
    """
    if rule == LONGEST:
        return
    split = split_function(rule)
    for text in texts:
        tokens = split(text)
        ids = [processor.piece_to_id(piece_of(token, rule)) for token in tokens]
        runs = ((token, list(run)) for token, run in itertools.groupby(ids))
        expected = [id_ for token, run in runs for id_ in (run[:1] if token == UNKNOWN_ID else run)]
        actual = processor.encode(text)
        if actual != expected:
            got = [
                UNKNOWN_TEXT if token == UNKNOWN_ID else processor.id_to_piece(token)
                for token in actual
            ]
            raise ValueError(
                f"tokens: expected {shorten(repr(text))} as {shorten(repr(tokens), 200)} by the "
                f"rule {rule!r}, got {shorten(repr(got), 200)}; add the tokens that are missing, "
                "or change the pattern so that it covers every character and prefers no shorter "
                "token."
            )
