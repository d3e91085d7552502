"""Texts on which exported files are compared with the model."""

import numpy as np
import pytest

from tfk_transformer.export.parity import PROBES, probe_settings, probe_texts
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

TEXTS = ["Ein Mann läuft im Schnee.", "Eine Frau schläft auf dem Sofa.", "Zwei Hunde spielen."] * 9


def test_probes_of_bytes_are_text():
    tokenizer = SubwordTokenizer.train(TEXTS, 300, byte_fallback=True)
    texts = probe_texts(["Ein Hund."], tokenizer)
    assert len(texts) == PROBES
    assert not {"\0", "\ufffd"} & set("".join(texts))


@pytest.mark.parametrize("model_type", ["unigram", "bpe", "char"])
def test_probes_are_random_pieces(model_type):
    """All pieces are drawn where all are text, so these probes never change."""
    tokenizer = SubwordTokenizer.train(TEXTS, 40, model_type)
    random = np.random.default_rng(0)
    rows = [
        random.integers(4, tokenizer.vocab_size, size=random.integers(1, 9)).tolist()
        for _ in range(PROBES - 1)
    ]
    expected = [text or "?" for text in tokenizer.decode(rows)]
    assert probe_texts(TEXTS[:1], tokenizer) == [TEXTS[0], *expected]


def test_probes_have_bounded_lengths():
    """An imported model's targets may have any length, which random sources often reach."""
    for factor, expected in ((1000.0, 2.0), (1.5, 1.5)):
        searches = probe_settings({"beam_size": 6, "max_length_factor": factor})
        assert [search["max_length_factor"] for search in searches] == [expected, expected]
        assert [search["beam_size"] for search in searches] == [1, 6]


def test_missing_probes_are_generated(translator):
    texts = probe_texts(["seven"], translator.source_tokenizer)
    assert len(texts) == PROBES == 100
    assert texts[0] == "seven"
    assert all(texts)
