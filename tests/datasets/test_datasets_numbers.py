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
def test_spelling(number, english, german):
    assert (spell(number, "en"), spell(number, "de")) == (english, german)


def test_only_english_loses_its_and():
    assert spell(321, "en_IN") == "three hundred twenty-one"
    assert spell(71, "fr") == "soixante et onze"
    assert spell(321, "pt") == "trezentos e vinte e um"


def test_no_space_is_left_at_the_end():
    assert spell(50, "te") == "\u0c2f\u0c3e\u0c2d\u0c46\u0c56"


def test_a_number_that_cannot_be_spelt_is_named():
    with pytest.raises(ValueError, match=r"^language 'am': num2words cannot spell 1100 \(TypeError: .*\); choose another language"):
        spell(1100, "am")


def test_sizes_of_the_splits():
    assert {split: len(numbers) for split, numbers in numbers_by_split().items()} == {"train": 60_000, "validation": 1_000, "test": 1_000}


def test_no_number_is_in_two_splits_or_twice_in_one():
    together = [number for numbers in numbers_by_split().values() for number in numbers]
    assert len(set(together)) == 62_000
    assert (min(together) >= 0, max(together) < 1_000_000) == (True, True)


def test_every_number_below_10000_that_is_not_held_out_is_trained():
    splits = numbers_by_split()
    short = [number for numbers in splits.values() for number in numbers if number < 10_000]
    assert sorted(short) == list(range(10_000))
    assert len([number for number in splits["train"] if number < 10_000]) == 9_976


def test_short_and_long_numbers_are_mixed_in_the_train_split():
    short_by_quarter = [
        sum(number < 10_000 for number in numbers_by_split()["train"][start : start + 15_000]) for start in range(0, 60_000, 15_000)
    ]
    assert short_by_quarter == [2481, 2544, 2511, 2440]


@pytest.mark.parametrize(
    ("split", "first_ten"),
    [
        ("train", (926963, 345109, 4402, 54334, 5580, 2641, 94260, 998365, 833521, 744619)),
        ("validation", (96043, 596926, 47525, 270073, 27381, 647825, 900174, 345957, 285927, 236606)),
        ("test", (863065, 247375, 207234, 881730, 908580, 644343, 460994, 471953, 400540, 965021)),
    ],
)
def test_the_order_is_the_same_everywhere(split, first_ten):
    assert numbers_by_split()[split][:10] == first_ten


def test_pairs_of_the_built_in_source():
    pairs = load("numbers:en-de").pairs("train")
    assert next(pairs) == (
        "nine hundred twenty-six thousand nine hundred sixty-three",
        "neunhundertsechsundzwanzigtausendneunhundertdreiundsechzig",
        "numbers:en-de train 1",
    )
    assert next(pairs).where == "numbers:en-de train 2"


def test_another_pair_of_languages():
    source = load("numbers:fr-en")
    assert source.splits == ("train", "validation", "test")
    assert next(source.pairs("validation")) == (
        "quatre-vingt-seize mille quarante-trois",
        "ninety-six thousand forty-three",
        "numbers:fr-en validation 1",
    )


def test_every_test_pair_comes():
    assert sum(1 for _ in load("numbers:en-de").pairs("test")) == 1_000


def test_an_unknown_language_gets_the_nearest_and_where_the_list_is():
    with pytest.raises(ValueError, match=r"expected a code of num2words, got 'pt_PR'. Did you mean 'pt_BR'\? \(the list: python -c "):
        load("numbers:en-pt_PR")
