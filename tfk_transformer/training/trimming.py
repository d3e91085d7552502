"""Trimming: vocabularies are cut to the pieces that texts use, and those that any text may need."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from tfk_transformer.config.model_options import LanguageModelConfig, TransformerConfig
from tfk_transformer.constants import UNKNOWN_ID
from tfk_transformer.models.reproduction import plain_weights
from tfk_transformer.pipelines.model_record import check_remake, remake
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

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
CHUNK_SIZE = 4096  # texts that are encoded together
HELD_OUT = 10  # every tenth text is held out for the check
MAX_HELD_OUT = 10_000
Piece = ModelProto.SentencePiece
# Special tokens, bytes, and a family's language tokens, which exports to its library need.
ALWAYS = (Piece.CONTROL, Piece.UNKNOWN, Piece.USER_DEFINED, Piece.BYTE)
MERGED = (Piece.NORMAL, Piece.USER_DEFINED, Piece.UNUSED)  # SentencePiece merges to unused pieces
UNNAMED = re.compile(r"<row \d+>")  # a row of a family's tables that has no piece

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
        source, target = self.source_tokenizer, self.target_tokenizer
        return [source] if source.model == target.model else [source, target]

    def vocabularies(self) -> list["SharedIds"]:
        """Return the ids of each side, or of both sides if they have the same ids."""
        tokenizers = self.tokenizers
        ids = [set().union(*id_options(self.config, side).values()) for side in SIDES]
        if len(tokenizers) == 1 or self.config.has_one_table:
            return [SharedIds(SIDES, tokenizers, ids[0] | ids[1])]
        pairs = zip(SIDES, tokenizers, ids, strict=True)
        return [SharedIds([side], [tokenizer], kept) for side, tokenizer, kept in pairs]


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
    check_remake(translator.model)
    parts = ModelParts(
        config,
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
    tokenizers = parts.tokenizers
    if target_texts is not None and len(tokenizers) == 2:
        usages = {
            "source": count_usage(texts, tokenizers[:1])[0],
            "target": count_usage(target_texts, tokenizers[1:], "target_texts")[0],
        }
    else:  # without the target, if both sides have the same tokenizer
        all_texts = itertools.chain(texts, target_texts or ())
        usages = dict(zip(SIDES, count_usage(all_texts, tokenizers), strict=False))
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


def _select(
    vocabularies: Iterable["SharedIds"], counts: Mapping[str, np.ndarray], limit: int | None
) -> dict[str, np.ndarray]:
    """Return the ids to keep by side; see `SharedIds.select`."""
    ids: dict[str, np.ndarray] = {}
    for vocabulary in vocabularies:
        of_tokenizers = [counts[side] for side in vocabulary.sides if side in counts]
        ids |= dict.fromkeys(vocabulary.sides, vocabulary.select(of_tokenizers, limit))
    return ids


def _keep_rows(parts: ModelParts, ids: Mapping[str, np.ndarray]) -> ModelParts:
    """Return a model with the rows `ids`, ascending, of each side; other arrays are not copied."""
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
    """Return a tokenizer with some of its pieces; `ids` are ascending, with special tokens."""
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
    names = [f"{side}_vocab_size" for side in SIDES]
    sizes = {name: [getattr(parts.config, name) for parts in (before, after)] for name in names}
    sizes["parameters"] = [
        sum(int(np.prod(array.shape)) for array in parts.arrays.values())
        for parts in (before, after)
    ]
    sizes["megabytes"] = [round(count * BYTES / 1e6, 1) for count in sizes["parameters"]]
    return {name: _before_and_after(*values) for name, values in sizes.items()}


def compare_segmentation(
    tokenizer: SubwordTokenizer, ids: np.ndarray, texts: Iterable[str]
) -> dict[str, Any]:
    """Compare the segmentation of at least one text before and after trimming to some ids."""
    trimmed = keep_pieces(tokenizer, ids)
    rows = []  # of a text: whether it is the same, and tokens and unknown pieces before and after
    for chunk in chunks(texts):
        for before, after in zip(tokenizer.encode(chunk), trimmed.encode(chunk), strict=True):
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


class Usage:
    """How often all texts, and held-out ones among them, use the pieces of a tokenizer."""

    def __init__(self, tokenizer: SubwordTokenizer) -> None:
        self.tokenizer = tokenizer
        self.counts = np.zeros(tokenizer.vocab_size, "int64")  # (V,), by id
        self.held_out_counts = np.zeros(tokenizer.vocab_size, "int64")
        self.held_out: list[str] = []

    def count(self, texts: Sequence[str]) -> np.ndarray:
        """Return the number of occurrences of each id in texts, int64 (V,)."""
        ids = np.fromiter(itertools.chain.from_iterable(self.tokenizer.encode(texts)), "int64")
        return np.bincount(ids, minlength=self.tokenizer.vocab_size)


def count_usage(
    texts: Iterable[str], tokenizers: Sequence[SubwordTokenizer], argument: str = "texts"
) -> list[Usage]:
    """Return the usage of each tokenizer; `argument` names the texts in an error."""
    usages = list(map(Usage, tokenizers))
    for number, chunk in enumerate(chunks(texts)):
        # A chunk continues the numbers of the texts of the earlier chunks.
        first = (HELD_OUT - 1 - number * CHUNK_SIZE) % HELD_OUT
        held_out = chunk[first::HELD_OUT][: MAX_HELD_OUT - len(usages[0].held_out)]
        for usage in usages:
            usage.counts += usage.count(chunk)
            usage.held_out_counts += usage.count(held_out)
            usage.held_out += held_out
    if not all(usage.counts.any() for usage in usages):
        raise ValueError(
            f"{argument}: expected sentences such as those to translate, got none; pass texts of "
            "all languages to keep."
        )
    return usages


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the texts that are not blank, in lists of `CHUNK_SIZE`."""
    iterator = filter(str.strip, texts)
    while chunk := list(itertools.islice(iterator, CHUNK_SIZE)):
        yield chunk


class SharedIds:
    """The ids that the tokenizers of one or both sides have; some `ids`, as prefixes, are kept."""

    def __init__(
        self, sides: Sequence[str], tokenizers: Sequence[SubwordTokenizer], ids: Iterable[int]
    ) -> None:
        self.sides = sides
        self.size = tokenizers[0].vocab_size
        self._models = [ModelProto.FromString(tokenizer.model) for tokenizer in tokenizers]
        # Special tokens, bytes, tokens of languages, and all single characters, so that no
        # character becomes unknown.
        self.required = set(ids).union(*map(_required_ids, self._models))

    def check_limit(self, limit: int | None) -> None:
        """Refuse a number of ids that is too small or too large."""
        sides = " and ".join(self.sides)
        if limit is not None and limit > self.size:
            raise ValueError(
                f"vocab_size: expected at most {self.size:,}, the pieces of the {sides}, got "
                f"{limit:,}."
            )
        if limit is not None and limit < len(self.required):
            raise ValueError(
                f"vocab_size: expected at least {len(self.required):,}, the special tokens, tokens "
                f"of languages, bytes and single characters of the {sides}, which must be kept, "
                f"got {limit:,}; pass a larger number."
            )

    def select(self, counts: Sequence[np.ndarray], limit: int | None) -> np.ndarray:
        """Return at most `limit` ids to keep, the most frequent ones, int64, ascending."""
        selected = set(self.required)
        frequency = np.sum(counts, axis=0)
        used = np.flatnonzero(frequency)
        merges = list(map(Merges, self._models))
        for token in used[np.argsort(-frequency[used], kind="stable")].tolist():
            before = (
                of_model.ids_before(token)
                for of_model, of_tokenizer in zip(merges, counts, strict=True)
                if of_tokenizer[token]
            )
            additions = {token}.union(*before) - selected
            if len(selected) + len(additions) <= (limit or self.size):
                selected |= additions
        return np.array(sorted(selected))


def _required_ids(model: ModelProto) -> Iterator[int]:
    """Yield the ids of a model that every selection has."""
    tags: set[str] = set()
    if model.trainer_spec.control_symbols:  # where an import puts tokens of languages in texts
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
        tags.update(map(processor.normalize, model.trainer_spec.control_symbols))
    normal = []
    for token, piece in enumerate(model.pieces):
        is_normal = piece.type == Piece.NORMAL
        is_special = piece.type in ALWAYS and not UNNAMED.fullmatch(piece.piece)
        if is_special or piece.piece in tags or (is_normal and len(piece.piece) == 1):
            yield token
        if is_normal:
            normal.append(token)
    if normal and model.trainer_spec.model_type == TrainerSpec.UNIGRAM:
        # The scores of unknown characters and user-defined pieces follow from these two.
        yield min(normal, key=lambda token: model.pieces[token].score)
        yield max(normal, key=lambda token: model.pieces[token].score)


class Merges:
    """The merges of byte pair encoding (arXiv:1508.07909); other models have none."""

    def __init__(self, model: ModelProto) -> None:
        is_bpe = model.trainer_spec.model_type == TrainerSpec.BPE
        pieces = model.pieces if is_bpe else ()
        self._texts = {
            token: piece.piece for token, piece in enumerate(pieces) if piece.type in MERGED
        }
        self._ids = {text: token for token, text in self._texts.items()}
        self._scores = {text: pieces[token].score for text, token in self._ids.items()}

    def ids_before(self, token: int) -> set[int]:
        """Return the ids of the pieces that are merged on the way to a piece.

        A text is segmented by the same merges as long as it has the pieces of all of them. No merge
        crosses the ends of a piece of the result, so the merges inside it are the merges of the
        piece as a text of its own.
        """
        symbols = list(self._texts.get(token, ""))
        merged = set()
        while len(symbols) > 1:
            pairs = ["".join(pair) for pair in itertools.pairwise(symbols)]
            scores = [self._scores.get(pair, float("-inf")) for pair in pairs]
            position = max(range(len(pairs)), key=scores.__getitem__)  # the first of the best
            if pairs[position] not in self._ids:
                break
            merged.add(self._ids[pairs[position]])
            symbols[position : position + 2] = [pairs[position]]
        return merged - {token}
