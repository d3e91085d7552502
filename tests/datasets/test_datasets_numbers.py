from collections import Counter

import pytest

from tfk_transformer.datasets import load
from tfk_transformer.datasets.numbers import numbers_by_split, spell


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (0, "zero", "null"),
        (7, "seven", "sieben"),
        (21, "twenty-one", "einundzwanzig"),
        (101, "one hundred one", "einhunderteins"),
        (321, "three hundred twenty-one", "dreihunderteinundzwanzig"),
        (1000, "one thousand", "eintausend"),
        (1001, "one thousand one", "eintausendeins"),
        (100_000, "one hundred thousand", "einhunderttausend"),
        (
            123_456,
            "one hundred twenty-three thousand four hundred fifty-six",
            "einhundertdreiundzwanzigtausendvierhundertsechsundfünfzig",
        ),
    ],
)
def test_spelling_in_two_languages(number, english, german):
    assert (spell(number, "en"), spell(number, "de")) == (english, german)


def test_only_english_drops_and():
    assert spell(321, "en_IN") == "three hundred twenty-one"
    assert spell(71, "fr") == "soixante et onze"
    assert spell(321, "pt") == "trezentos e vinte e um"


def test_trailing_space_is_removed():
    assert spell(50, "te") == "\u0c2f\u0c3e\u0c2d\u0c46\u0c56"


def test_unspellable_number_is_named():
    with pytest.raises(
        ValueError,
        match=(
            r"^language 'am': num2words cannot spell 1100 \(TypeError: .*\); choose another "
            r"language"
        ),
    ):
        spell(1100, "am")


def test_splits_have_their_sizes():
    assert {split: len(numbers) for split, numbers in numbers_by_split().items()} == {
        "train": 60_000,
        "validation": 1_000,
        "test": 1_000,
    }


def test_held_out_numbers_are_unique():
    train, validation, test = (
        numbers_by_split()[split] for split in ("train", "validation", "test")
    )
    assert len({*validation, *test}) == 2_000
    assert not {*validation, *test} & set(train)
    assert min(train) == 0
    assert max(max(numbers) for numbers in (train, validation, test)) < 1_000_000


def by_digits(numbers):
    return Counter(len(str(number)) for number in numbers)


def test_digit_counts_are_balanced():
    assert by_digits(numbers_by_split()["train"]) == {digits: 10_000 for digits in range(1, 7)}


@pytest.mark.parametrize("split", ["validation", "test"])
def test_no_small_number_is_held_out(split):
    assert by_digits(numbers_by_split()[split]) == {3: 100, 4: 300, 5: 300, 6: 300}


def test_small_numbers_are_balanced():
    splits = numbers_by_split()
    times = Counter(number for number in splits["train"] if number < 1_000)
    assert times.keys() == {*range(1_000)} - {*splits["validation"], *splits["test"]}
    assert {times[number] for number in range(10)} == {1_000}
    assert {times[number] for number in range(10, 100)} == {111, 112}
    assert {times[number] for number in times if number >= 100} == {14, 15}


def test_train_split_mixes_lengths():
    quarters = [
        by_digits(numbers_by_split()["train"][start : start + 15_000])
        for start in range(0, 60_000, 15_000)
    ]
    assert all(2_400 < count < 2_600 for quarter in quarters for count in quarter.values())


@pytest.mark.parametrize(
    ("split", "first_ten"),
    [
        ("train", (0, 3201, 671513, 9, 8, 20, 127, 33, 7113, 116921)),
        ("validation", (278424, 2320, 7435, 488097, 470203, 72393, 6381, 111834, 6511, 85172)),
        ("test", (160831, 5502, 6360, 659362, 472399, 16422, 1511, 229177, 4761, 32712)),
    ],
)
def test_split_order_is_fixed(split, first_ten):
    assert numbers_by_split()[split][:10] == first_ten


def test_number_pairs_have_places():
    pairs = load("numbers:en-de").pairs("train")
    assert next(pairs) == (
        "zero",
        "null",
        "numbers:en-de train 1",
    )
    assert next(pairs).where == "numbers:en-de train 2"


def test_french_to_english_pairs():
    source = load("numbers:fr-en")
    assert source.splits == ("train", "validation", "test")
    assert next(source.pairs("validation")) == (
        "deux cent soixante-dix-huit mille quatre cent vingt-quatre",
        "two hundred seventy-eight thousand four hundred twenty-four",
        "numbers:fr-en validation 1",
    )


def test_test_split_is_complete():
    assert sum(1 for _ in load("numbers:en-de").pairs("test")) == 1_000


def test_unknown_language_gets_a_hint():
    with pytest.raises(
        ValueError,
        match=(
            r"expected a code of num2words, got 'pt_PR'. Did you mean 'pt_BR'\? \(the list: "
            r"python -c "
        ),
    ):
        load("numbers:en-pt_PR")
