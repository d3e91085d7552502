"""Tokens as the labels of a picture."""

from collections.abc import Sequence

WORD = "\u2581"  # SentencePiece's mark of a blank
LONGEST = 24  # characters of a label


def token_labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens without SentencePiece's mark for the blank before a word; a token that is only
    this mark becomes "␣".

    Args:
        tokens: pieces of the vocabulary.
    """
    return [_label(token) for token in tokens]


def label_text(text: str) -> str:
    """Return a text as a label: no longer than a label may be, and without control characters."""
    text = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _label(token: str) -> str:
    return label_text(token.removeprefix(WORD).replace(WORD, " ")) or "\u2423"
