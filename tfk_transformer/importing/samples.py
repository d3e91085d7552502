"""Sample texts that an import encodes, to find tokens that the vocabulary of the model lacks."""

from collections.abc import Iterable, Sequence

import numpy as np

from tfk_transformer.config.words import shorten
from tfk_transformer.constants import UNKNOWN_ID
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

TEXTS = 20  # of random pieces
TOKENS = 6  # of each of them


def check_samples(
    tokenizer: SubwordTokenizer, table: np.ndarray, texts: Iterable[str]
) -> str | None:
    """Return a note about the unknown tokens of texts: probes, and examples of the model's card.

    In `table`, the embeddings of the source (V, D), tokens that the model's own vocabulary lacks
    have the row of the unknown token.

    Raises:
        ValueError: if each of these texts and of texts of random pieces begins with such a token.
    """
    (candidates,) = np.nonzero(table[:, 0] == table[UNKNOWN_ID, 0])  # to save memory
    same = (table[candidates] == table[UNKNOWN_ID]).all(axis=1)
    unknown = set(candidates[same].tolist())
    texts = [text for text in dict.fromkeys(texts) if text.strip()]
    random = np.random.default_rng(0)
    known = [token for token in tokenizer.text_ids() if token not in unknown]
    drawn = [random.choice(known, TOKENS).tolist() for _ in range(TEXTS)] if known else []
    samples = [*texts, *filter(str.strip, tokenizer.decode(drawn))]
    rows = tokenizer.encode(samples)

    def first_unknown(text: str, row: Sequence[int]) -> str:
        """Return the first piece of a text that the model's vocabulary lacks."""
        token = next(token for token in row if token in unknown)
        if token != UNKNOWN_ID:
            return repr(tokenizer.pieces_of([token])[0])
        lacking = (each for each in text if UNKNOWN_ID in tokenizer.encode([each])[0])
        return repr(next(lacking, text.split()[0]))

    if rows and all(row and row[0] in unknown for row in rows):
        raise ValueError(
            f"vocab: expected a tokenizer whose pieces the model's vocabulary has, got the unknown "
            f"token {first_unknown(samples[0], rows[0])} at the start of each of {len(rows)} "
            f"sample texts, such as {shorten(repr(samples[0]))}; pass the tokenizer of the "
            "training (vocab), or the rule of its tokens (tokens): 'characters', 'words', or a "
            "regular expression."
        )
    read = list(zip(texts, rows, strict=False))  # without the random texts
    counts = [sum(token in unknown for token in row) for _, row in read]
    if not any(counts):
        return None
    text, row = next(each for each, count in zip(read, counts, strict=True) if count)
    return (
        f"{sum(counts)} of {sum(len(row) for _, row in read)} tokens of {len(texts)} sample texts "
        f"are unknown to the model, first {first_unknown(text, row)} in {shorten(repr(text))}"
    )
