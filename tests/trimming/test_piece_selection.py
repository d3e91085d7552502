"""Which pieces a trimmed vocabulary keeps, and that texts are segmented by them as before."""

import itertools

import numpy as np
import pytest
from marian_folder import sentences
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.trimming import (
    Merges,
    SharedIds,
    compare_segmentation,
    count_usage,
    keep_pieces,
)

TEXTS = [text for side in ("source", "target") for text in sentences(side, 300)]
KEPT = sentences("source", 40, seed=7)
Piece = ModelProto.SentencePiece
SIZES = {"unigram": 97, "bpe": 131, "char": 97}


def trained(model_type, byte_fallback=False):
    size = SIZES[model_type] + 256 * byte_fallback
    return SubwordTokenizer.train(TEXTS, size, model_type, byte_fallback)


def of_pieces(model_type, pieces):
    """A tokenizer of pieces with scores; the special tokens precede them."""
    model = ModelProto.FromString(trained("unigram").model)
    special = list(model.pieces[:4])
    del model.pieces[:]
    model.pieces.extend(special)
    for text, score in pieces.items():
        model.pieces.add(piece=text, score=score)
    model.trainer_spec.model_type = {"unigram": 1, "bpe": 2}[model_type]
    return SubwordTokenizer(model.SerializeToString())


def selected(tokenizer, texts, limit=None, ids=()):
    shared = SharedIds(["source"], [tokenizer], ids)
    return shared.select([usage.counts for usage in count_usage(texts, [tokenizer])], limit)


@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_kept_texts_segment_as_before(model_type, byte_fallback):
    tokenizer = trained(model_type, byte_fallback)
    ids = selected(tokenizer, KEPT)
    assert len(ids) < tokenizer.vocab_size
    figures = compare_segmentation(tokenizer, ids, KEPT)
    assert figures["same_segmentation"] == 1.0
    # Also next to characters that the vocabulary lacks.
    figures = compare_segmentation(tokenizer, ids, [f"ж{text}ж 🎈" for text in KEPT])
    assert figures["same_segmentation"] == 1.0


@pytest.mark.parametrize("model_type", ["unigram", "bpe", "char"])
def test_no_character_becomes_unknown(model_type):
    tokenizer = trained(model_type)
    trimmed = keep_pieces(tokenizer, selected(tokenizer, ["ka lo."]))
    assert trimmed.characters().as_text() == tokenizer.characters().as_text()


def test_bpe_keeps_merges_of_pieces():
    pieces = {"▁": -9.0, "a": -9.0, "b": -9.0, "c": -9.0}
    tokenizer = of_pieces("bpe", {"abc": -3.0, "ab": -2.0, "bc": -1.0, "▁a": -4.0, **pieces})
    assert tokenizer.pieces_of(tokenizer.encode(["abc"])[0]) == ["▁", "abc"]
    # "bc" merges first, so "abc" comes from "a" and "bc".
    merges = Merges(ModelProto.FromString(tokenizer.model))
    assert [tokenizer.pieces_of([token])[0] for token in merges.ids_before(4)] == ["bc"]
    kept = keep_pieces(tokenizer, selected(tokenizer, ["babc"]))
    assert kept.pieces_of(range(4, kept.vocab_size)) == ["abc", "bc", *pieces]


def test_unknown_character_keeps_its_score():
    """Its score is 10 below the lowest score of a piece: -35 here, and -25 without "zz"."""
    scores = {"▁": -1.0, "a": -15.0, "b": -15.0, "xa": -15.0, "ab": -1.0, "zz": -25.0}
    tokenizer = of_pieces("unigram", scores)
    texts = ["xab", "ab"]
    pieces = [tokenizer.pieces_of(row) for row in tokenizer.encode(texts)]
    assert pieces == [["▁", "xa", "b"], ["▁", "ab"]]
    kept = keep_pieces(tokenizer, selected(tokenizer, texts))
    assert [kept.pieces_of(row) for row in kept.encode(texts)] == pieces


def test_most_frequent_pieces_are_kept():
    scores = {text: -1.0 for text in ("▁", "a", "b", "c", "▁a", "▁b", "▁c")}
    tokenizer = of_pieces("unigram", {**scores, "▁": -8.0, "a": -8.0, "b": -8.0, "c": -8.0})
    ids = selected(tokenizer, ["b c a c b c"], limit=4 + 4 + 2)
    assert tokenizer.pieces_of(ids)[3:] == ["▁", "a", "b", "c", "▁a", "▁c"]


def test_special_and_control_pieces_are_kept():
    model = ModelProto.FromString(trained("unigram", True).model)
    model.pieces.add(piece="__de__", type=Piece.CONTROL)
    model.pieces.add(piece="<row 3000>", type=Piece.CONTROL)
    model.pieces.add(piece="<extra>", type=Piece.USER_DEFINED)
    model.pieces.add(piece="▁>>fra<<", score=0.0)
    model.pieces.add(piece="kakaka", score=-1e3)
    model.trainer_spec.control_symbols.append(">>fra<<")
    tokenizer = SubwordTokenizer(model.SerializeToString())
    kept = keep_pieces(tokenizer, selected(tokenizer, ["ka"], ids=[tokenizer.vocab_size - 1]))
    pieces = kept.pieces_of(range(1, kept.vocab_size))
    assert pieces[:3] == ["<s>", "</s>", "<unk>"]
    assert pieces[-4:] == ["__de__", "<extra>", "▁>>fra<<", "kakaka"]
    assert kept.byte_fallback
    assert len([piece for piece in pieces if piece.startswith("<0x")]) == 256


def test_scores_and_normalization_are_kept():
    tokenizer = trained("unigram")
    before = ModelProto.FromString(tokenizer.model)
    ids = selected(tokenizer, KEPT)
    after = ModelProto.FromString(keep_pieces(tokenizer, ids).model)
    assert list(after.pieces) == [before.pieces[token] for token in ids]
    assert after.normalizer_spec == before.normalizer_spec
    assert after.trainer_spec.vocab_size == len(ids)


def test_texts_are_held_out_across_chunks(monkeypatch):
    monkeypatch.setattr("tfk_transformer.training.trimming.CHUNK_SIZE", 7)
    tokenizer = trained("unigram")
    texts = sentences("source", 33)
    usage = count_usage(itertools.chain(*([text, " "] for text in texts)), [tokenizer])[0]
    assert list(usage.held_out) == [texts[9], texts[19], texts[29]]
    others = [text for text in texts if text not in usage.held_out]
    assert np.array_equal(
        usage.counts - usage.held_out_counts, count_usage(others, [tokenizer])[0].counts
    )


def test_check_counts_tokens_and_unknowns():
    scores = {text: -1.0 for text in ("▁", "a", "b", "▁a", "▁b", "ab")}
    tokenizer = of_pieces("unigram", {**scores, "▁ab": -0.5})
    ids = np.array([token for token in range(tokenizer.vocab_size) if token != 10])
    figures = compare_segmentation(tokenizer, ids, ["ab", "a", "b ж", "ab a"])
    assert figures == {
        "texts": 4,
        "same_segmentation": 0.5,
        "tokens_per_text": {"before": 1.75, "after": 2.25},
        "unknown_pieces": {"before": 1, "after": 1},
    }
