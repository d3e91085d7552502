"""Labels of tokens in a figure."""

from collections.abc import Sequence

WORD = "\u2581"  # SentencePiece's mark of a blank
MAX_CHARACTERS = 24  # of a label


def token_labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens without SentencePiece's mark of a blank before a word.

    A token that is only this mark becomes "␣".

    Args:
        tokens: pieces of the vocabulary.
    """
    return [label_text(token.removeprefix(WORD).replace(WORD, " ")) or "\u2423" for token in tokens]


def label_text(text: str) -> str:
    """Return a text as a label of limited length without control characters."""
    text = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
