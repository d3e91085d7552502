"""Sample texts that an import encodes, to find tokens that the vocabulary of the model lacks."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tfk_transformer.config.words import shorten
from tfk_transformer.constants import UNKNOWN_ID
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer, load_sentencepiece
from tfk_transformer.tokenizers.token_vocabulary import (
    LONGEST,
    WORD_MARK,
    check_split,
    split_function,
)

TEXTS = 20  # of random pieces
TOKENS = 6  # of each of them


def check_samples(
    tokenizer: SubwordTokenizer, table: np.ndarray, texts: Iterable[str], rule: str | None
) -> Iterator[str]:
    """Yield notes about the unknown tokens of texts: probes, and examples of the model's card.

    In `table`, the embeddings of the source (V, D), tokens that the model's own vocabulary lacks
    have the row of the unknown token. A `rule` splits texts into tokens; see `from_tokens`.

    Raises:
        ValueError: if each of the texts, or of texts of random pieces, begins with such a token.
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
    read = list(zip(texts, rows, strict=False))  # without the random texts

    def first_unknown(text: str, row: Sequence[int]) -> str:
        """Return the first piece of a text that the model's vocabulary lacks."""
        token = next(token for token in row if token in unknown)
        if token != UNKNOWN_ID:
            return repr(tokenizer.pieces_of([token])[0])
        lacking = (each for each in text if UNKNOWN_ID in tokenizer.encode([each])[0])
        return repr(next(lacking, text.split()[0]))

    judged = [row for _, row in read] or rows
    if judged and all(row and row[0] in unknown for row in judged):
        raise ValueError(
            f"vocab: expected a tokenizer whose pieces the model's vocabulary has, got the unknown "
            f"token {first_unknown(samples[0], rows[0])} at the start of each of {len(judged)} "
            f"sample texts, such as {shorten(repr(samples[0]))}; pass the tokenizer of the "
            "training (vocab), or the rule of its tokens (tokens): 'characters', 'words', or a "
            "regular expression whose matches are the tokens."
        )
    if rule is not None:
        yield from _rule_notes(tokenizer, rule, texts)
    counts = [sum(token in unknown for token in row) for _, row in read]
    for text, row in [each for each, count in zip(read, counts, strict=True) if count][:1]:
        yield (
            f"{sum(counts)} of {sum(len(row) for _, row in read)} tokens of {len(texts)} sample "
            f"texts are unknown to the model, first {first_unknown(text, row)} in "
            f"{shorten(repr(text))}"
        )


def _rule_notes(tokenizer: SubwordTokenizer, rule: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield notes about tokens that the rule never gives, and texts that it splits otherwise."""
    if rule == LONGEST:
        return
    split = split_function(rule)
    pieces = tokenizer.pieces_of(range(UNKNOWN_ID + 1, tokenizer.vocab_size))
    tokens = [piece.replace(WORD_MARK, " ").strip() for piece in pieces if piece[0] != "<"]
    if others := [token for token in tokens if split(token) != list(filter(None, [token]))]:
        yield (
            f"{len(others)} of {len(tokens)} tokens of the vocabulary are never matched by the "
            f"rule {rule!r}, such as {', '.join(map(shorten, others[:3]))}"
        )
    try:
        check_split(load_sentencepiece(tokenizer.model), rule, texts)
    except ValueError as error:
        yield f"such texts are translated otherwise than by the model's own program: {error}"
