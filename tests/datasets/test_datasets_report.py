from tfk_transformer.datasets import Pair, Report


def test_pair_is_a_plain_tuple():
    assert Pair("ein Hund", "a dog", "de.train.txt:17") == ("ein Hund", "a dog", "de.train.txt:17")


def test_no_drops_give_no_lines():
    report = Report()
    assert (report.dropped, report.lines()) == (0, [])


def test_one_pair_is_singular():
    report = Report()
    report.drop("with an empty side", "de.train.txt:17")
    assert report.lines() == ["dropped 1 pair with an empty side (de.train.txt:17)"]


def test_drop_reasons_keep_order():
    report = Report()
    report.drop("with an empty side", "de.train.txt:17")
    report.drop("over 256 tokens", "de.train.txt:20")
    report.drop("with an empty side", "en.train.txt:40")
    assert report.dropped == 3
    assert report.lines() == [
        "dropped 2 pairs with an empty side (de.train.txt:17, en.train.txt:40)",
        "dropped 1 pair over 256 tokens (de.train.txt:20)",
    ]


def test_three_places_are_all_named():
    report = Report()
    for line in (2, 3, 5):
        report.drop("over 256 tokens", f"a.txt:{line}")
    assert report.lines() == ["dropped 3 pairs over 256 tokens (a.txt:2, a.txt:3, a.txt:5)"]


def test_more_places_are_counted():
    report = Report()
    for line in (2, 3, 5, 7, 11):
        report.drop("over 256 tokens", f"a.txt:{line}")
    assert report.lines() == [
        "dropped 5 pairs over 256 tokens (a.txt:2, a.txt:3, a.txt:5, … and 2 more)"
    ]
