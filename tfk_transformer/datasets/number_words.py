"""The number words as a TFDS dataset, for tools that use TFDS; `numbers:en-de` does not need it.

After this module is imported, `tfds.load("number_words/en-de")` loads the dataset. To prepare it on
the command line, run `tfds build tfk_transformer/datasets/number_words.py`, which needs `pip
install apache-beam mlcroissant`. For a language pair that is not listed, use
`NumberWords(config=NumberWordsConfig("en-fi"))`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tfk_transformer.datasets.numbers import check_language, numbers_by_split, spell
from tfk_transformer.datasets.pairs import language_pair
from tfk_transformer.datasets.tfds_source import require_tfds

if TYPE_CHECKING:
    import tensorflow_datasets as tfds
else:
    tfds = require_tfds()


class NumberWordsConfig(tfds.core.BuilderConfig):
    """A pair of languages that num2words knows."""

    def __init__(self, pair: str):
        """Set the languages of a pair such as "en-de"."""
        self.languages = language_pair(f"numbers:{pair}", pair)
        for language in self.languages:
            check_language(language)
        super().__init__(
            name=pair,
            description=f"Numbers from 0 to 999,999 in words: {' and '.join(self.languages)}.",
        )


class NumberWords(tfds.core.GeneratorBasedBuilder):
    """Numbers in words in two languages: 60,000 training pairs, 1,000 each to validate and test."""

    VERSION = tfds.core.Version("2.0.0")
    RELEASE_NOTES = {"2.0.0": "As many short numbers as long ones.", "1.0.0": "First release."}
    BUILDER_CONFIGS = [
        NumberWordsConfig(pair)
        for pair in ("en-de", "de-en", "en-fr", "en-es", "en-it", "en-nl", "en-pt", "en-ru")
    ]

    def _info(self) -> tfds.core.DatasetInfo:
        languages = self.builder_config.languages
        return tfds.core.DatasetInfo(
            builder=self,
            description=(
                f"{self.builder_config.description} Each number of digits is equally "
                "frequent in training."
            ),
            features=tfds.features.Translation(languages=languages),
            supervised_keys=languages,
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> Mapping[str, Iterator[tuple[int, dict[str, str]]]]:
        del dl_manager
        return {
            split: self._generate_examples(numbers) for split, numbers in numbers_by_split().items()
        }

    def _generate_examples(self, numbers: Iterable[int]) -> Iterator[tuple[int, dict[str, str]]]:
        languages = self.builder_config.languages
        for key, number in enumerate(numbers):  # numbers may repeat, keys must not
            yield key, {language: spell(number, language) for language in languages}
