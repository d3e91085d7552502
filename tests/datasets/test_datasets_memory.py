"""Text pairs in memory as a source."""

import pytest

from tfk_transformer import datasets
from tfk_transformer.data.batches import TokenBatches
from tfk_transformer.datasets import Pair
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

PAIRS = [("ein Hund", "a dog"), ("zwei Katzen", "two cats"), ("drei Hunde", "three dogs")]


class Frame:
    """The part of a data frame of pandas or Polars that is read."""

    def __init__(self, **columns):
        self.columns = list(columns)
        self._columns = columns

    def __getitem__(self, name):
        return self._columns[name]


SOURCES, TARGETS = zip(*PAIRS, strict=True)


@pytest.mark.parametrize(
    "data",
    [
        PAIRS,
        [list(pair) for pair in PAIRS],
        [Pair(*pair, "here") for pair in PAIRS],
        (pair for pair in PAIRS),
        zip(SOURCES, TARGETS, strict=True),
        {"de": SOURCES, "en": TARGETS},
        Frame(de=SOURCES, en=TARGETS),
    ],
)
def test_pairs_in_memory_are_loaded(data):
    source = datasets.load(data)
    assert source.splits == ("train", "validation", "test")
    for split in source.splits * 2:  # a generator is read once
        assert [pair[:2] for pair in source.pairs(split)] == PAIRS


def test_columns_name_the_languages():
    source = datasets.load(Frame(de=SOURCES, zh_CN=TARGETS))
    assert (source.source_language, source.target_language) == ("de", "zh_CN")
    other = datasets.load({"German text": SOURCES, "English text": TARGETS})
    assert (other.source_language, other.target_language) == ("", "")


def test_name_depends_on_the_texts():
    names = [datasets.load(data).name for data in (PAIRS, PAIRS[:2], list(PAIRS))]
    assert names[0] == names[2] != names[1]


def test_empty_sides_are_dropped_and_counted():
    report = datasets.Report()
    pairs = datasets.load([*PAIRS, (" ", "nothing")]).pairs("train", report)
    assert len(list(pairs)) == 3
    assert report.lines() == ["dropped 1 pair with an empty side (pair 4)"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            [SOURCES, TARGETS],
            r"pairs of two texts, got \('ein Hund', 'zwei Katzen', 'drei Hunde'\) as pair 1; for "
            r"two lists, pass zip\(sources, targets\).$",
        ),
        ([*PAIRS, ("vier", float("nan"))], r"pairs of two texts, got \('vier', nan\) as pair 4; "),
        (["ein Hund"], "pairs of two texts, got 'ein Hund' as pair 1; "),
        (Frame(de=SOURCES, en=TARGETS, id=[1, 2, 3]), "two columns, .*, got de, en, id; select "),
        ({"de": SOURCES, "en": TARGETS[:2]}, "columns of the same length, got 3 sources and 2 "),
        (3, "a spec such as numbers:en-de, or pairs of texts, got 3.$"),
    ],
)
def test_other_values_are_refused(data, message):
    with pytest.raises(ValueError, match="^data: expected " + message):
        datasets.load(data)


def test_batches_take_pairs_in_memory():
    tokenizer = SubwordTokenizer.train(SOURCES + TARGETS, 40, "char")
    expected, batches = (
        TokenBatches(data, "train", tokenizer, tokenizer, 64, 32)
        for data in (datasets.load(PAIRS), PAIRS)
    )
    assert list(batches.pairs()) == list(expected.pairs())
    assert batches.survey().pairs == 3
