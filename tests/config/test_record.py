import pytest
from pydantic import Field, model_validator

from tfk_transformer.config.record import Record
from tfk_transformer.config.words import nearest


class Shelf(Record):
    width: int = Field(gt=0)
    height: int = Field(default=7, gt=0)
    load: float = Field(default=0.5, ge=0)
    wood: str | None = None

    @model_validator(mode="after")
    def _check_together(self):
        if self.height > 100 * self.width:
            raise ValueError(
                f"height must not exceed 100 widths, got {self.height} and {self.width}"
            )
        return self


def test_nearest_suggests_close_words():
    assert nearest("widht", ["height", "width", "wood"]) == " Did you mean 'width'?"
    assert nearest("colour", ["height", "width", "wood"]) == ""
    assert nearest("width" * 100, ["width" * 100]) == ""  # comparing would take minutes


def test_json_is_sorted_and_complete():
    text = Shelf(wood="oak", width=3).to_json()
    assert text == '{\n  "height": 7,\n  "load": 0.5,\n  "width": 3,\n  "wood": "oak"\n}\n'


@pytest.mark.parametrize(
    "shelf", [Shelf(width=3), Shelf(width=3, height=11, load=0.1, wood="Bäume")]
)
def test_record_survives_json(shelf):
    assert Shelf.from_json(shelf.to_json()) == shelf


class Plan(Record):
    rooms: tuple[int, ...] = ()


@pytest.mark.parametrize(
    ("values", "key"),
    [({"rooms": [""] * 10_001}, "rooms"), ({f"room{i}": 1 for i in range(10_001)}, "keys")],
    ids=["list", "keys"],
)
def test_long_values_are_refused(values, key):
    with pytest.raises(
        ValueError, match=f"^Plan: {key}: expected at most 10,000 entries, got 10,001$"
    ):
        Plan(**values)


@pytest.mark.parametrize("text", ["", '{"width": 3', "{'width': 3}", "width=3"])
def test_malformed_json_is_refused(text):
    with pytest.raises(
        ValueError, match="^Shelf: expected JSON, got text that breaks off or is malformed "
    ):
        Shelf.from_json(text)


@pytest.mark.parametrize(
    ("text", "kind"), [("[3]", "list"), ("3", "int"), ("null", "NoneType"), ('"width"', "str")]
)
def test_json_must_be_an_object(text, kind):
    with pytest.raises(ValueError, match=f"^Shelf: expected a JSON object, got {kind}.$"):
        Shelf.from_json(text)


def test_json_is_validated():
    with pytest.raises(ValueError, match=r"^Shelf: width: .* greater than 0, got -3$"):
        Shelf.from_json('{"width": -3}')


def test_a_record_is_frozen():
    shelf = Shelf(width=3)
    with pytest.raises(ValueError, match="frozen"):
        shelf.width = 5
    assert shelf.width == 3


def test_replace_changes_only_a_copy():
    shelf = Shelf(width=3, wood="oak")
    assert shelf.replace(width=5) == Shelf(width=5, wood="oak")
    assert shelf == Shelf(width=3, wood="oak")
    assert shelf.replace(load=0.5).model_fields_set == {"width", "wood", "load"}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"width": 0}, r"width: .* greater than 0, got 0"),
        ({"height": 301}, r"height must not exceed 100 widths, got 301 and 3"),
        ({"heigth": 5}, r"unknown key 'heigth'\. Did you mean 'height'\?"),
    ],
)
def test_replace_validates_again(changes, problem):
    shelf = Shelf(width=3)
    with pytest.raises(ValueError, match=f"^Shelf: {problem}$"):
        shelf.replace(**changes)


@pytest.mark.parametrize("load", [float("nan"), float("inf"), float("-inf")])
def test_numbers_must_be_finite(load):
    with pytest.raises(ValueError, match=rf"^Shelf: load: .*finite.*, got {load}$"):
        Shelf(width=3, load=load)


def test_a_missing_key_is_named():
    with pytest.raises(ValueError, match="^Shelf: width: Field required$"):
        Shelf(height=3)


def test_all_problems_in_one_message():
    problems = (
        r"width: .* greater than 0, got -3; height: .* valid integer.*, got 'tall'; "
        r"unknown key 'lod'\. Did you mean 'load'\?; unknown key 'xyzzy'\."
    )
    with pytest.raises(ValueError, match=f"^Shelf: {problems}$"):
        Shelf(lod=1, width=-3, xyzzy=1, height="tall")
