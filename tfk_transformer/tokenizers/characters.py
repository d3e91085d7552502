"""The characters that a vocabulary represents."""

import itertools
import unicodedata
from collections.abc import Container
from typing import TYPE_CHECKING

from tfk_transformer.constants import UNKNOWN_ID

if TYPE_CHECKING:
    import sentencepiece

# Below this, normalization rules map characters that have no compatibility decomposition.
FIRST_IDEOGRAPH = 0x3000
UNASSIGNED = ("Cn", "Co", "Cs")


class RepresentedCharacters(Container[str]):
    """The characters that a vocabulary represents, checked when they are asked for."""

    def __init__(self, processor: "sentencepiece.SentencePieceProcessor") -> None:
        self._processor = processor
        self._represented: dict[str, bool] = {}

    def __contains__(self, character: object) -> bool:
        text = str(character)
        if text not in self._represented:
            self._represented[text] = UNKNOWN_ID not in self._processor.encode(text)
        return self._represented[text]

    def as_text(self) -> str:
        """Return the represented characters in the order of their code points."""
        in_pieces = set(
            itertools.chain.from_iterable(
                map(self._processor.id_to_piece, range(self._processor.vocab_size()))
            )
        )
        candidates = [
            character
            for character in map(chr, range(0x20, 0x110000))
            if character in in_pieces or _may_normalize_to(character, in_pieces)
        ]
        return "".join(character for character in candidates if character in self)


def _may_normalize_to(character: str, in_pieces: set[str]) -> bool:
    """Return whether a tokenizer may replace a character by characters of its pieces."""
    if unicodedata.category(character) in UNASSIGNED:
        return False
    normalized = unicodedata.normalize("NFKC", character)
    return ord(character) < FIRST_IDEOGRAPH or set(normalized.casefold()) <= in_pieces
