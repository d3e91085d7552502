"""The tokens of texts: conversion of texts to padded ids, and of ids to tokens."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfk_transformer.constants import END_ID, START_ID

try:
    from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
except ModuleNotFoundError as error:
    if error.name != "sentencepiece":
        raise
    raise ImportError("scores of texts need sentencepiece: pip install sentencepiece") from None


class Details(NamedTuple):
    """The tokens of a target with their log-probabilities and attention."""

    tokens: list[str]  # T pieces
    token_log_probs: list[float] | None
    attention: np.ndarray | None  # float32 (L, H, T, S)
    source_tokens: list[str]  # S pieces


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
    ) -> Details:
        """Convert ids to tokens, and remove the padding from the arrays.

        Args:
            source_ids: ids (S,) of the source, tokens and end token, padded.
            ids: ids (T,) of the target, padded.
            log_probs: float32 (T,), or None.
            attention: float32 (L, H, T, S), or None.
        """
        tokens = self.target_tokenizer.pieces_of(ids)
        source_tokens = self.source_tokenizer.pieces_of(source_ids)
        if not self.has_encoder:  # attention is to all tokens except the last
            start = self.source_tokenizer.pieces_of([START_ID])
            source_tokens = [*start, *source_tokens[:-1], *tokens[:-1]]
        return Details(
            tokens=tokens,
            token_log_probs=None
            if log_probs is None
            else [float(value) for value in log_probs[: len(tokens)]],
            attention=None
            if attention is None
            else np.array(attention[:, :, : len(tokens), : len(source_tokens)]),
            source_tokens=source_tokens,
        )


def padded_ids(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Return rows of tokens as padded int32 ids (N, S), with an end token after each row."""
    ids = np.zeros((len(rows), 1 + max(map(len, rows), default=0)), "int32")
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens) + 1] = [*tokens, END_ID]
    return ids
