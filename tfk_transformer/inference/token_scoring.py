"""Scores of tokens in Python: pairs of texts checked and batched, and a graph's padded arrays turned into hypotheses."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tfk_transformer.constants import START_ID
from tfk_transformer.inference.text_batches import Hypothesis, check_texts, in_batches
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer


def score_in_batches(sources: Sequence[str], targets: Sequence[str], batch_size: int, max_length: int, run: Callable) -> list[tuple]:
    """Score pairs of texts, those of like length together; return each pair's row of what `run` gives, in their order.

    Args:
        sources: the texts.
        targets: a translation of each.
        batch_size: pairs scored at once.
        max_length: of a side in tokens.
        run: (sources, targets) -> arrays with a row a pair; the first are log-probabilities, NaN where a side is too long.

    Raises:
        ValueError: if the sides differ in number, or a text is too long for the model.
    """
    check_texts(sources, "sources")
    check_texts(targets, "targets")
    if len(sources) != len(targets):
        raise ValueError(f"targets: expected one for each of {len(sources)} sources, got {len(targets)}.")
    rows = in_batches(sources, batch_size, run, targets)
    too_long = [number for number, row in enumerate(rows, 1) if np.isnan(row[0])]
    if too_long:
        raise ValueError(f"texts: expected at most {max_length} tokens a side, got more in pair number {too_long[0]}.")
    return rows


class Pieces(NamedTuple):
    """What it takes to name tokens."""

    source_tokenizer: SubwordTokenizer
    target_tokenizer: SubwordTokenizer
    architecture: str  # of the model's configuration

    def name(self, hypothesis: Hypothesis, source_ids, ids, log_probs=None, attention=None) -> Hypothesis:
        """Return a hypothesis that tells its tokens, what each scores, and what each attends to.

        Args:
            hypothesis: its text and score.
            source_ids: ids (S,) of the source, tokens and end token, padded.
            ids: ids (T,) of the hypothesis, padded.
            log_probs: float32 (T,), or None.
            attention: float32 (L, H, T, S), or None.
        """
        tokens = self.target_tokenizer.pieces_of(ids)
        columns = self._attended(source_ids, tokens)
        return hypothesis._replace(
            tokens=tokens,
            token_scores=None if log_probs is None else [float(value) for value in log_probs[: len(tokens)]],
            attention=None if attention is None else np.array(attention[:, :, : len(tokens), : len(columns)]),
            source_tokens=columns,
        )

    def _attended(self, source_ids, tokens: list[str]) -> list[str]:
        """Return the pieces that attention goes to: the source; or in a decoder alone all tokens before the last."""
        source = self.source_tokenizer.pieces_of(source_ids)
        return [*self.source_tokenizer.pieces_of([START_ID]), *source[:-1], *tokens[:-1]] if self.architecture == "decoder" else source
