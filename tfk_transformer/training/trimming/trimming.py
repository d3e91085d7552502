"""Cut the vocabulary of a model to the pieces that texts use."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import LanguageModelConfig, TransformerConfig
from tfk_transformer.constants import UNKNOWN_ID
from tfk_transformer.models.reproduction.plain_weights import plain_weights
from tfk_transformer.pipelines.model_record import check_remake, remake
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.trimming.piece_selection import SharedIds, Usage, chunks, count_usage

TRIMMING = "trimming"  # a key of the origin
BYTES = 4  # of a float32
SIDES = ("source", "target")
# The side and the axis of the rows of each array with a row for each token.
ROWS = {
    "source_embedding/embeddings": ("source", 0),
    "target_embedding/embeddings": ("target", 0),
    "output/kernel": ("target", 1),
    "output/bias": ("target", 0),
}
TrimmedConfig: TypeAlias = TransformerConfig | LanguageModelConfig


def id_options(config: TrimmedConfig, side: str) -> dict[str, tuple[int, ...]]:
    """Return the options of a model that contain ids of a side, by name."""
    names = (f"{side}_prefix", f"{side}_suffix")
    return {name: ids for name in names if (ids := getattr(config, name, ()))}


class ModelParts(NamedTuple):
    """The configuration and the weights of a model, and its tokenizers."""

    config: TrimmedConfig
    arrays: Mapping[str, Any]  # arrays or Keras's variables, by the names of `named_weights`
    source_tokenizer: SubwordTokenizer
    target_tokenizer: SubwordTokenizer

    @property
    def tokenizers(self) -> list[SubwordTokenizer]:
        """The different tokenizers, the source's first."""
        source = self.source_tokenizer
        target = self.target_tokenizer
        return [source] if source.model == target.model else [source, target]

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(int(np.prod(array.shape)) for array in self.arrays.values())

    def vocabularies(self) -> list[SharedIds]:
        """Return the ids of each side, or of both sides if they have the same ids."""
        tokenizers = self.tokenizers
        ids = [set().union(*id_options(self.config, side).values()) for side in SIDES]
        if len(tokenizers) == 1 or self.config.has_one_table:
            return [SharedIds(SIDES, tokenizers, ids[0] | ids[1])]
        return [
            SharedIds(SIDES[:1], tokenizers[:1], ids[0]),
            SharedIds(SIDES[1:], tokenizers[1:], ids[1]),
        ]


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
    kept, figures = trim_parts(parts, texts, target_texts, vocab_size, check_texts)
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
    """Refuse everything but a translator with a single model and without a shortlist."""
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


def trim_parts(
    parts: ModelParts,
    texts: Iterable[str],
    target_texts: Iterable[str] | None = None,
    vocab_size: int | None = None,
    check_texts: Iterable[str] | None = None,
) -> tuple[ModelParts, dict[str, Any]]:
    """Return a model with the pieces that texts use, and the figures of `trim`."""
    arguments = {"texts": texts, "target_texts": target_texts, "check_texts": check_texts}
    for name, value in arguments.items():
        if isinstance(value, str):
            raise ValueError(
                f"{name}: expected a list of texts, got a text of {len(value):,} "
                "characters; put it into a list."
            )
    vocabularies = parts.vocabularies()
    for vocabulary in vocabularies:
        vocabulary.check_limit(vocab_size)
    usages = _count_by_side(parts, texts, target_texts)
    counts = {side: usage.counts for side, usage in usages.items()}
    ids = _select(vocabularies, counts, vocab_size)
    kept = _keep_rows(parts, ids)
    compared: dict[str, Sequence[str]] = {}
    if check_texts is None:
        compared = {side: usage.held_out for side, usage in usages.items()}
        counts = {side: usage.counts - usage.held_out_counts for side, usage in usages.items()}
        ids = _select(vocabularies, counts, vocab_size)
    else:
        sides = usages if target_texts is None else SIDES[:1]
        compared = dict.fromkeys(sides, list(filter(str.strip, check_texts)))
        if not all(compared.values()):
            raise ValueError("check_texts: expected texts that are not blank, got none; pass some.")
    check = {
        side: compare_segmentation(usages[side].tokenizer, ids[side], of_side)
        for side, of_side in compared.items()
        if of_side  # fewer than ten texts have none that is held out
    }
    return kept, {**_sizes(parts, kept), "check": check}


def _count_by_side(
    parts: ModelParts, texts: Iterable[str], target_texts: Iterable[str] | None
) -> dict[str, Usage]:
    """Return the usage by side; only the source's if both sides have the same tokenizer."""
    tokenizers = parts.tokenizers
    if target_texts is not None and len(tokenizers) == 2:
        return {
            "source": count_usage(texts, tokenizers[:1])[0],
            "target": count_usage(target_texts, tokenizers[1:], "target_texts")[0],
        }
    texts = itertools.chain(texts, target_texts or ())
    return dict(zip(SIDES, count_usage(texts, tokenizers), strict=False))


def _select(
    vocabularies: Iterable[SharedIds], counts: Mapping[str, np.ndarray], limit: int | None
) -> dict[str, np.ndarray]:
    """Return the ids to keep by side; see `SharedIds.select`."""
    ids: dict[str, np.ndarray] = {}
    for vocabulary in vocabularies:
        of_tokenizers = [counts[side] for side in vocabulary.sides if side in counts]
        ids |= dict.fromkeys(vocabulary.sides, vocabulary.select(of_tokenizers, limit))
    return ids


def _keep_rows(parts: ModelParts, ids: Mapping[str, np.ndarray]) -> ModelParts:
    """Return a model with some of the rows of its vocabularies. Other arrays are not copied.

    `ids` has by side, "source" and "target", the id of each new row, ascending.
    """
    sizes = {f"{side}_vocab_size": len(ids[side]) for side in SIDES}
    if isinstance(parts.config, LanguageModelConfig):
        sizes = {"vocab_size": len(ids["target"])}
    options = {
        name: tuple(np.searchsorted(ids[side], tokens).tolist())
        for side in SIDES
        for name, tokens in id_options(parts.config, side).items()
    }
    arrays = dict(parts.arrays)
    for name in ROWS.keys() & arrays.keys():
        side, axis = ROWS[name]
        arrays[name] = np.take(np.asarray(arrays[name]), ids[side], axis=axis)
    tokenizers = [
        keep_pieces(tokenizer, ids[side])
        for side, tokenizer in zip(SIDES, parts.tokenizers, strict=False)
    ]
    config = parts.config.replace(**sizes, **options)
    return ModelParts(config, arrays, tokenizers[0], tokenizers[-1])


def keep_pieces(tokenizer: SubwordTokenizer, ids: np.ndarray) -> SubwordTokenizer:
    """Return a tokenizer with some of its pieces, in the same order.

    Scores, types and normalization stay. The ids are ascending, and have the special tokens.
    """
    model = ModelProto.FromString(tokenizer.model)
    pieces = [model.pieces[token] for token in ids.tolist()]
    kept = ModelProto(
        trainer_spec=model.trainer_spec,
        normalizer_spec=model.normalizer_spec,
        denormalizer_spec=model.denormalizer_spec,
        pieces=pieces,
    )  # without the self tests, whose texts may use other pieces
    kept.trainer_spec.vocab_size = len(pieces)
    return SubwordTokenizer(kept.SerializeToString())


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
    """Compare the segmentation of at least one text before and after trimming to some ids.

    Return the number of `texts`, the share with the `same_segmentation`, and before and after, the
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
