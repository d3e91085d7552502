"""Cut the vocabulary of a model to the pieces that texts use."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.config.model_options import LanguageModelConfig, TransformerConfig
from tfk_transformer.constants import UNKNOWN_ID
from tfk_transformer.models.reproduction.plain_weights import plain_weights
from tfk_transformer.pipelines.model_record import check_remake, remake
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.trimming.piece_selection import SharedIds, Usage, chunks, count_usage
from tfk_transformer.training.trimming.smaller_model import (
    SIDES,
    ModelParts,
    keep_pieces,
    keep_rows,
)

TRIMMING = "trimming"  # a key of the origin
BYTES = 4  # of a float32


class KeepTexts(NamedTuple):
    """The texts whose pieces are kept; see `trim`."""

    texts: Iterable[str]
    target_texts: Iterable[str] | None = None
    vocab_size: int | None = None
    check_texts: Iterable[str] | None = None


def trim(
    translator: Translator,
    texts: Iterable[str],
    target_texts: Iterable[str] | None = None,
    *,
    vocab_size: int | None = None,
    check_texts: Iterable[str] | None = None,
) -> Translator:
    """Return a translator with only those pieces of the vocabulary that texts use.

    A multilingual model has pieces for all of its languages. With fewer rows, it needs less memory,
    and its search is faster. Special tokens, tokens of languages, bytes and all single characters
    are kept, so that no character becomes unknown. A text whose pieces are all kept is segmented as
    before, and the model computes the same logits for it, but only of the tokens that are kept.

    Args:
        translator: a translator with a `Transformer` or a `LanguageModel`. It is not changed.
        texts: texts of all languages to keep, such as the sentences of training data.
        target_texts: texts of the target language. `texts` are then of the source language, which
            is useful if the sides have separate vocabularies. Default: `texts`.
        vocab_size: the maximum number of pieces of each vocabulary. The most frequent ones are
            kept. Default: all pieces that the texts use.
        check_texts: other texts, to compare the segmentation before and after: of the source if
            there are `target_texts`, otherwise of any side. Default: every tenth text, of at most
            100,000, compared with a vocabulary of the other texts. The result has the pieces of all
            texts.

    Returns:
        A new translator with the search settings, the probes and the origin of `translator`.
        `origin["trimming"]` has the numbers of pieces and parameters and the megabytes of float32
        weights, before and after, and the results of the check.

    Raises:
        ValueError: if there are no texts, `vocab_size` is smaller than what must be kept or larger
            than the vocabulary, the model is an ensemble or a classifier, or the translator has a
            shortlist.
    """
    _check_translator(translator)
    check_remake(translator.model)
    parts = ModelParts(
        translator.model.config,
        plain_weights(translator.model),
        translator.source_tokenizer,
        translator.target_tokenizer,
    )
    kept, figures = trim_parts(parts, KeepTexts(texts, target_texts, vocab_size, check_texts))
    model = remake(translator.model, kept.config, translator.model.dtype_policy)
    for name, weight in model.named_weights.items():
        weight.assign(kept.arrays[name])
    return Translator(
        model,
        kept.source_tokenizer,
        kept.target_tokenizer,
        translator.probes,
        {**translator.origin, TRIMMING: figures},
        search=translator.search,
    )


def _check_translator(translator: Translator) -> None:
    """Refuse everything but a translator with a single model and without a shortlist.

    Raises:
        ValueError: with the type of the model.
    """
    config = getattr(getattr(translator, "model", None), "config", None)
    if not isinstance(config, TransformerConfig | LanguageModelConfig):
        model = type(getattr(translator, "model", translator)).__name__
        raise ValueError(
            "translator: expected a Translator of a Transformer or a LanguageModel, got one of "
            f"{model}; trim the members of an ensemble with the same texts, then combine them. A "
            "classifier cannot be trimmed."
        )
    if translator.shortlist is not None:
        raise ValueError(
            "translator: expected one without a shortlist, which has ids of the whole vocabulary, "
            f"got a shortlist of {translator.shortlist.sentences:,} text pairs; learn it from them "
            "after trimming."
        )


def trim_parts(parts: ModelParts, keep: KeepTexts) -> tuple[ModelParts, dict[str, Any]]:
    """Return a model with the pieces that texts use, and the figures of `trim`.

    Args:
        parts: the model and its tokenizers.
        keep: the texts.

    Raises:
        ValueError: see `trim`.
    """
    for name in ("texts", "target_texts", "check_texts"):
        if isinstance(text := getattr(keep, name), str):
            raise ValueError(
                f"{name}: expected a list of texts, got a text of {len(text):,} "
                "characters; put it into a list."
            )
    vocabularies = parts.vocabularies()
    for vocabulary in vocabularies:
        vocabulary.check_limit(keep.vocab_size)
    usages = _count_by_side(parts, keep)
    ids = _select(vocabularies, usages, keep.vocab_size)
    kept = keep_rows(parts, ids)
    texts: dict[str, Sequence[str]] = {}
    if keep.check_texts is None:
        texts = {side: usage.held_out for side, usage in usages.items()}
        others = {side: usage.without_held_out() for side, usage in usages.items()}
        ids = _select(vocabularies, others, keep.vocab_size)
    else:
        sides = usages if keep.target_texts is None else SIDES[:1]
        texts = dict.fromkeys(sides, _without_blank(keep.check_texts))
    check = {
        side: compare_segmentation(usages[side].tokenizer, ids[side], of_side)
        for side, of_side in texts.items()
        if of_side  # fewer than ten texts have none that is held out
    }
    return kept, {**_sizes(parts, kept), "check": check}


def _without_blank(check_texts: Iterable[str]) -> list[str]:
    """Return the texts that are not blank.

    Raises:
        ValueError: if there are none.
    """
    texts = list(filter(str.strip, check_texts))
    if not texts:
        raise ValueError("check_texts: expected texts that are not blank, got none; pass some.")
    return texts


def _select(
    vocabularies: Iterable[SharedIds], usages: Mapping[str, Usage], limit: int | None
) -> dict[str, np.ndarray]:
    """Return the ids to keep by side; see `SharedIds.select`."""
    ids: dict[str, np.ndarray] = {}
    for vocabulary in vocabularies:
        of_tokenizers = [usages[side] for side in vocabulary.sides if side in usages]
        ids |= dict.fromkeys(vocabulary.sides, vocabulary.select(of_tokenizers, limit))
    return ids


def _count_by_side(parts: ModelParts, keep: KeepTexts) -> dict[str, Usage]:
    """Return the usage by side; only the source's if both sides have the same tokenizer."""
    tokenizers = parts.tokenizers
    if keep.target_texts is not None and len(tokenizers) == 2:
        return {
            "source": count_usage(keep.texts, tokenizers[:1])[0],
            "target": count_usage(keep.target_texts, tokenizers[1:], "target_texts")[0],
        }
    texts = itertools.chain(keep.texts, keep.target_texts or ())
    return dict(zip(SIDES, count_usage(texts, tokenizers), strict=False))


def _sizes(before: ModelParts, after: ModelParts) -> dict[str, dict[str, float]]:
    """Return sizes before and after trimming, by name."""
    names = ("source_vocab_size", "target_vocab_size")
    sizes = {name: [getattr(parts.config, name) for parts in (before, after)] for name in names}
    sizes["parameters"] = [before.parameters, after.parameters]
    sizes["megabytes"] = [round(count * BYTES / 1e6, 1) for count in sizes["parameters"]]
    return {name: _before_and_after(*values) for name, values in sizes.items()}


def compare_segmentation(
    tokenizer: SubwordTokenizer, ids: np.ndarray, texts: Iterable[str]
) -> dict[str, Any]:
    """Compare the segmentation of texts before and after trimming.

    Args:
        tokenizer: the tokenizer before trimming.
        ids: the ids that are kept.
        texts: at least one text.

    Returns:
        The number of `texts`, the share with the `same_segmentation`, and before and after, the
        mean `tokens_per_text` and the number of `unknown_pieces`.
    """
    trimmed = keep_pieces(tokenizer, ids)
    rows = []  # of a text: whether it is the same, and tokens and unknown pieces before and after
    for chunk in chunks(texts):
        pairs = zip(tokenizer.encode(chunk), trimmed.encode(chunk), strict=True)
        for before, after in pairs:
            unknown = (before.count(UNKNOWN_ID), after.count(UNKNOWN_ID))
            is_same = before == ids[after].tolist()
            rows.append((is_same, len(before), len(after), *unknown))
    counts = np.array(rows)
    same, *lengths = counts[:, :3].mean(axis=0).tolist()
    return {
        "texts": len(rows),
        "same_segmentation": round(same, 4),
        "tokens_per_text": _before_and_after(*(round(length, 2) for length in lengths)),
        "unknown_pieces": _before_and_after(*counts[:, 3:].sum(axis=0).tolist()),
    }


def _before_and_after(before: float, after: float) -> dict[str, float]:
    return {"before": before, "after": after}
