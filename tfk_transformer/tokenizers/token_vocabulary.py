"""Vocabularies of whole tokens: a list of tokens, and the rule that splits texts into them.

A vocabulary is a SentencePiece model with one piece a token, which every runtime has: a model of
words for the rule "words", and otherwise a model of characters, in which a token is the longest one
that the rest of the text begins with. Texts are not normalized.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

import sentencepiece

from tfk_transformer.config.words import shorten
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID

CHARACTERS, WORDS, LONGEST = "characters", "words", "longest"
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")  # pieces by id
UNKNOWN_TEXT = "\u2047"  # of an unknown token in a text; SentencePiece adds a blank on both sides
WORD_MARK = "\u2581"
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
        found = pattern.finditer(text.replace(WORD_MARK, " "))
        return [match[0] for match in found if match[0]]

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
    size = len(counts) + len(SPECIAL)
    if rule in (CHARACTERS, WORDS):
        ranked = sorted(counts, key=lambda token: (-counts[token], token))
        tokens = ranked[: vocab_size - len(SPECIAL)]
        return tokens, first if len(tokens) == len(counts) else ()
    # Without one of its tokens, texts would be split into other, shorter tokens.
    if size > vocab_size:
        raise ValueError(
            f"vocab_size: expected at least {size:,}, the special pieces and one for each token "
            f"of the texts by the pattern {rule!r}, got {vocab_size:,}."
        )
    return sorted(counts, key=lambda token: (-counts[token], token)), first


def token_order(tokens: Sequence[str], special: Sequence[str]) -> list[int]:
    """Return the index in `tokens` of each id; see `SubwordTokenizer.token_order`."""
    index = {token: number for number, token in enumerate(tokens)}
    missing = [name for name in special if name not in index]
    if missing or len(set(special)) != len(SPECIAL):
        raise ValueError(
            "special: expected the names of the tokens for padding, start, end and unknown, all "
            f"of them in tokens, got {', '.join(special)}"
            f"{f', without {missing[0]} in tokens' if missing else ''}; add what is missing to "
            "tokens, and a row to the tables of the model."
        )
    return [
        *(index[name] for name in special),
        *(number for number, token in enumerate(tokens) if token not in special),
    ]


def token_model(
    tokens: Sequence[str], rule: str, special: Sequence[str], control: Collection[str]
) -> bytes:
    """Return the SentencePiece model of tokens, whose ids begin after the special ones."""
    from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

    tokens = [token if token in control else token.replace(WORD_MARK, " ") for token in tokens]
    _check_tokens(tokens, rule, special, control)
    piece_type = ModelProto.SentencePiece
    is_words = rule == WORDS
    model = ModelProto()
    for id_, name in enumerate(special):
        is_unknown = id_ == UNKNOWN_ID
        model.pieces.add(piece=name, type=piece_type.UNKNOWN if is_unknown else piece_type.CONTROL)
    trainer = model.trainer_spec
    for token in tokens:
        piece = WORD_MARK + token if is_words else token.replace(" ", WORD_MARK)
        kind = piece_type.NORMAL
        if token in control:
            piece, kind = token, piece_type.CONTROL
        elif not is_words and len(token) > 1:
            kind = piece_type.USER_DEFINED
            trainer.user_defined_symbols.append(piece)
        model.pieces.add(piece=piece, type=kind)
    trainer.model_type = TrainerSpec.WORD if is_words else TrainerSpec.CHAR
    trainer.vocab_size = len(model.pieces)
    trainer.unk_surface = f" {UNKNOWN_TEXT}" if is_words else UNKNOWN_TEXT
    for name, id_ in (("pad", PAD_ID), ("bos", START_ID), ("eos", END_ID), ("unk", UNKNOWN_ID)):
        setattr(trainer, f"{name}_id", id_)
        setattr(trainer, f"{name}_piece", special[id_])
    normalizer = model.normalizer_spec
    normalizer.name = "identity"
    normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = is_words
    return bytes(model.SerializeToString())


def _check_tokens(
    tokens: Sequence[str], rule: str, special: Sequence[str], control: Collection[str]
) -> None:
    """Refuse tokens that no text has by the rule, and tokens that occur twice."""
    split = split_function(rule)
    seen = set() if rule == WORDS else set(special)  # pieces of words begin with a mark
    for token in tokens:
        name = shorten(repr(token))
        if not token or token in seen:
            raise ValueError(f"tokens: expected each token once, got {name} again or empty.")
        seen.add(token)
        if token in control or rule == LONGEST:
            continue
        if (parts := split(token)) != [token]:
            raise ValueError(
                f"tokens: expected tokens by the rule {rule!r}, got {name}, which it splits into "
                f"{shorten(repr(parts))}; remove the token, or name it in `control` if it is not "
                f"text, or use the rule {LONGEST!r}."
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
        tokens = [token.replace(" ", WORD_MARK) for token in split(text)]
        pieces = [WORD_MARK + token for token in tokens] if rule == WORDS else tokens
        ids = map(processor.piece_to_id, pieces)
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
