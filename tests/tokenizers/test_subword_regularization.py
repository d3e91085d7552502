import collections
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece

from tfk_transformer.tokenizers import subword_regularization
from tfk_transformer.tokenizers.subword_regularization import SubwordSampler
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

TEXTS = [
    "zwei Bären laufen über die Straße",
    "ein Bär läuft",
    "Häuser und Straßen",
    "grüne Gärten",
    "laufende Bären",
] * 20


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(TEXTS, 60)


def test_seed_decides_sampling(tokenizer):
    drawn, again, other = (tokenizer.encode(TEXTS, 0.2, seed) for seed in (3, 3, 4))
    assert drawn == again
    best = tokenizer.encode(TEXTS)
    for one, another in ((drawn, other), (drawn, best), (other, best)):
        assert sum(a != b for a, b in zip(one, another, strict=True)) > 0.6 * len(TEXTS)
    # Each of the five texts occurs 20 times, and is sampled each time.
    assert len({tuple(ids) for ids in drawn}) > 0.4 * len(TEXTS)


def test_sampling_same_in_every_process(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "model")
    code = (
        "from tfk_transformer import SubwordTokenizer as T; "
        f"print(T.load({str(tmp_path / 'model')!r}).encode({TEXTS}, 0.2, 3))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == f"{tokenizer.encode(TEXTS, 0.2, 3)}\n", done.stderr


def test_sampled_pieces_keep_the_text(tokenizer):
    texts = ["  ein\u00a0Bär,  zwei Häuser ", "Straße 日本 ½", "", "ein"]
    assert tokenizer.decode(tokenizer.encode(texts, 0.1, 0)) == tokenizer.decode(
        tokenizer.encode(texts)
    )


def test_sampling_follows_probability(tokenizer):
    word, power, count = "Bären", 0.4, 20_000
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    ways = processor.nbest_encode_as_ids(word, 500)
    assert 3 < len(ways) <= 64
    weights = np.exp(power * np.array([sum(map(processor.get_score, way)) for way in ways]))
    actual = collections.Counter(
        map(tuple, SubwordSampler(processor, power).encode([word] * count, 0))
    )
    shares = np.array([actual[tuple(way)] / count for way in ways])
    np.testing.assert_allclose(shares, weights / weights.sum(), atol=0.015)


@pytest.mark.parametrize("cached_words", [3, 1000])
def test_draws_equal_the_definition(tokenizer, monkeypatch, cached_words):
    """One uniform number a word, in the order of the words, against the cumulative probability."""
    monkeypatch.setattr(subword_regularization, "CACHED_WORDS", cached_words)
    power, texts = 0.2, [*TEXTS, "", " ", "Straße 日本"]
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    sampler = SubwordSampler(processor, power)
    for seed in (1, 2):
        generator = np.random.default_rng(seed)
        expected = []
        for text in texts:
            ids = []
            for word in text.split():
                ways = processor.nbest_encode_as_ids(word, 64)
                log_probs = [sum(map(processor.get_score, way)) for way in ways]
                weights = np.exp(power * (np.array(log_probs) - max(log_probs)))
                cumulative = np.cumsum(weights / weights.sum())
                ids += ways[min(np.searchsorted(cumulative, generator.random()), len(ways) - 1)]
            expected.append(ids)
        assert sampler.encode(texts, seed) == expected


def test_large_power_gives_best_pieces(tokenizer):
    assert tokenizer.encode(TEXTS, 500.0, 1) == tokenizer.encode(TEXTS)


def test_sampling_needs_unigram():
    bpe = SubwordTokenizer.train(TEXTS, 60, "bpe")
    with pytest.raises(
        ValueError,
        match=(
            "sampling: expected a model of type 'unigram', got 'bpe' and sampling 0.1; set "
            "sampling to 0."
        ),
    ):
        bpe.encode(["ein"], 0.1)
