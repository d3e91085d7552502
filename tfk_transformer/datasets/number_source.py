"""The source behind `numbers:en-de`."""

from collections.abc import Iterator

from tfk_transformer.datasets.numbers import check_language, numbers_by_split, spell
from tfk_transformer.datasets.pairs import USUAL_SPLITS, Pair, Source
from tfk_transformer.datasets.spelling import language_pair


class NumberSource(Source):
    """Number words in two languages.

    They are spelled when they are read, at about 6,000 pairs per second, and stay in RAM.
    """

    splits = USUAL_SPLITS

    def _read(self, split: str) -> Iterator[Pair]:
        for index, number in enumerate(numbers_by_split()[split], start=1):
            yield Pair(
                spell(number, self.source_language),
                spell(number, self.target_language),
                f"{self.name} {split} {index}",
            )


def number_source(spec: str, rest: str) -> NumberSource:
    """Return the source for `numbers:` and a language pair.

    Raises:
        ValueError: for a malformed language pair, or a language that num2words does not know.
    """
    source, target = language_pair(spec, rest)
    check_language(source)
    check_language(target)
    return NumberSource(spec, source, target)
