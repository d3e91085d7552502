"""The tokens of texts: conversion of texts to padded ids, and of ids to tokens."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.constants import END_ID, START_ID

try:
    from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
except ModuleNotFoundError as error:
    if error.name != "sentencepiece":
        raise
    raise ImportError("scores of texts need sentencepiece: pip install sentencepiece") from None


class Tokenizers(NamedTuple):
    """The tokenizers of both sides, which convert texts to ids and ids to tokens."""

    source_tokenizer: SubwordTokenizer
    target_tokenizer: SubwordTokenizer
    has_encoder: bool

    def details(
        self,
        source_ids: np.ndarray,
        ids: np.ndarray,
        log_probs: np.ndarray | None = None,
        attention: np.ndarray | None = None,
    ) -> dict[str, Any]:
        """Return the fields of `Hypothesis` and `ScoredTarget` for padded ids (S,) and (T,).

        Log-probabilities are float32 (T,), and attention is (L, H, T, S).
        """
        tokens = self.target_tokenizer.pieces_of(ids)
        source_tokens = self.source_tokenizer.pieces_of(source_ids)
        if not self.has_encoder:  # attention is to all tokens except the last
            start = self.source_tokenizer.pieces_of([START_ID])
            source_tokens = [*start, *source_tokens[:-1], *tokens[:-1]]
        if log_probs is not None:
            log_probs = log_probs[: len(tokens)]
        if attention is not None:
            attention = np.array(attention[:, :, : len(tokens), : len(source_tokens)])
        return {
            "tokens": tokens,
            "token_log_probs": None if log_probs is None else list(map(float, log_probs)),
            "attention": attention,
            "source_tokens": source_tokens,
        }


def padded_ids(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Return rows of tokens as padded int32 ids (N, S), with an end token after each row."""
    ids = np.zeros((len(rows), 1 + max(map(len, rows), default=0)), "int32")
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens) + 1] = [*tokens, END_ID]
    return ids
