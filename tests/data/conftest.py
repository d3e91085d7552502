"""The tokenizers of the sentence pairs in memory."""

import pytest
from pairs_in_memory import SOURCES, TARGETS

from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer


@pytest.fixture(scope="session")
def tokenizers():
    return SubwordTokenizer.train(SOURCES, 59), SubwordTokenizer.train(TARGETS, 61, "bpe")
