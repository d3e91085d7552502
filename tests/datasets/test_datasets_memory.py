"""Text pairs in memory as a source."""

import numpy as np
import pytest

from tfk_transformer import datasets
from tfk_transformer.data.batches import TokenBatches
from tfk_transformer.datasets import Pair
from tfk_transformer.datasets.pairs import spec_languages
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
    assert source.splits == ("train", "all")  # too few pairs for other splits
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
        (["ein Hund"], "pairs of two texts, got 'ein Hund' as pair 1; "),
        (
            Frame(de=SOURCES, en=TARGETS, id=[1, 2, 3]),
            "two columns, got de, en, id in memory; name the columns of sources and targets, such "
            "as source=de,target=en",
        ),
        ({"de": SOURCES, "en": TARGETS[:2]}, "columns of the same length, got 3, 2."),
        (3, "a spec such as numbers:en-de, pairs of texts, or a table with two columns, got 3.$"),
    ],
)
def test_other_values_are_refused(data, message):
    with pytest.raises(ValueError, match="^data: expected " + message):
        datasets.load(data)


def test_more_broken_rows_than_pairs_are_refused():
    data = datasets.load([(1, "a dog"), ("zwei Katzen", "two cats"), (3, "three dogs")])
    reason = r"1 and 2: dropped 2 pairs with a value of type int \(pair 1, pair 3\)\.$"
    with pytest.raises(
        ValueError, match=rf"more pairs than broken rows in pairs:\w+, got {reason}"
    ):
        data.pairs("train")


def test_missing_value_is_an_empty_side():
    report = datasets.Report()
    data = [*PAIRS, ("vier", float("nan")), (None, "five")]
    assert len(list(datasets.load(data).pairs("train", report))) == 3
    assert report.lines() == ["dropped 2 pairs with an empty side (pair 4, pair 5)"]


def numbered(count):
    return [(f"Satz {number}", f"sentence {number}") for number in range(count)]


def sources(data, split):
    return {pair.source for pair in data.pairs(split)}


def test_missing_splits_are_left_out_of_train():
    data = datasets.load(numbered(500))
    assert data.splits == ("train", "validation", "test", "all")
    parts = [sources(data, split) for split in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [400, 50, 50]
    assert set().union(*parts) == sources(data, "all")


def test_equal_sources_are_in_one_split():
    pairs = numbered(300)
    data = datasets.load([*pairs, *((f" {source} ", "other") for source, _ in pairs)])
    parts = [
        {source.strip() for source in sources(data, split)}
        for split in ("train", "validation", "test")
    ]
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_split_is_one_percent_of_many_pairs():
    data = datasets.load(numbered(30_000))
    assert len(sources(data, "validation")) == 300


def test_split_does_not_depend_on_the_order():
    pairs = numbered(300)
    first, second = datasets.load(pairs), datasets.load(pairs[::-1])
    assert sources(first, "test") == sources(second, "test")


def test_note_counts_the_sources_that_are_left_out():
    data = datasets.load(numbered(500))
    assert data.note == (
        f"{data.name}: 100 sources, chosen by their hashes, are left out of train for validation "
        "and test; the split 'all' has all pairs"
    )


def test_undivided_data_has_all_pairs_in_each_split():
    data = datasets.load(numbered(500)).undivided()
    assert data.note == ""
    assert sources(data, "train") == sources(data, "validation") == sources(data, "test")


def test_undivided_data_of_few_pairs_have_each_split():
    assert datasets.load(PAIRS).undivided().splits == ("train", "validation", "test")


def test_splits_of_a_mapping_stay():
    data = datasets.load({"train": numbered(500), "validation": PAIRS})
    assert data.splits == ("train", "validation")
    assert len(sources(data, "train")) == 500


TEXTS = {"de": [f"Satz {n}" for n in range(5)], "en": [f"sentence {n}" for n in range(5)]}
ROWS = [dict(zip(TEXTS, row, strict=True)) for row in zip(*TEXTS.values(), strict=True)]


def polars_frame():
    return pytest.importorskip("polars").DataFrame(TEXTS)


def pandas_frame():
    return pytest.importorskip("pandas").DataFrame(TEXTS)


def arrow_table():
    return pytest.importorskip("pyarrow").table(TEXTS)


def hugging_face():
    return pytest.importorskip("datasets").Dataset.from_dict(TEXTS)


def nested():
    rows = [{"id": str(number), "translation": row} for number, row in enumerate(ROWS)]
    return pytest.importorskip("datasets").Dataset.from_list(rows)


def stream():
    return hugging_face().to_iterable_dataset()


def examples():
    """As `tfds.as_numpy` yields them."""
    return ({name: text.encode() for name, text in row.items()} for row in ROWS)


@pytest.mark.parametrize(
    "make",
    [polars_frame, pandas_frame, arrow_table, hugging_face, nested, stream, examples, lambda: ROWS],
)
def test_tables_are_read_by_column(make):
    data = datasets.load(make())
    assert [pair[:2] for pair in data.pairs("train")] == list(zip(*TEXTS.values(), strict=True))
    assert (data.source_language, data.target_language) == ("de", "en")


@pytest.mark.parametrize("dtype", ["U", "S", object])
def test_arrays_have_a_pair_in_each_row(dtype):
    data = datasets.load(np.array(PAIRS).astype(dtype))
    assert [pair[:2] for pair in data.pairs("train")] == PAIRS


def test_keywords_name_the_columns():
    data = datasets.load(Frame(id=[1, 2, 3], de=SOURCES, en=TARGETS), source="en", target="de")
    assert next(data.pairs("train"))[:2] == ("a dog", "ein Hund")


def test_dictionary_of_datasets_keeps_its_splits():
    hub = pytest.importorskip("datasets")
    data = datasets.load(hub.DatasetDict(train=hugging_face(), dev=hugging_face()))
    assert data.splits == ("train", "all", "dev")


def test_batches_take_pairs_in_memory():
    tokenizer = SubwordTokenizer.train(SOURCES + TARGETS, 40, "char")
    expected, batches = (
        TokenBatches(data, "train", tokenizer, tokenizer, 64, 32)
        for data in (datasets.load(PAIRS), PAIRS)
    )
    assert list(batches.pairs()) == list(expected.pairs())
    assert batches.survey().pairs == 3


def test_known_names_of_columns_have_any_order():
    data = datasets.load({"target": TARGETS, "source": SOURCES})
    assert [pair[:2] for pair in data.pairs("train")] == PAIRS


def test_name_has_the_languages():
    name = datasets.load({"de": SOURCES, "en": TARGETS}).name
    assert spec_languages(name) == ("de", "en")


def test_splits_have_the_same_columns():
    parts = {"train": {"de": SOURCES, "en": TARGETS}, "validation": {"en": TARGETS, "de": SOURCES}}
    assert [pair[:2] for pair in datasets.load(parts).pairs("validation")] == PAIRS
