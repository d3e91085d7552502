"""The number words as a TFDS dataset, for tools that speak TFDS; `numbers:en-de` needs none of this.

After importing this module, `tfds.load("number_words/en-de")` knows it. The command line prepares it with
`tfds build tfk_transformer/datasets/number_words.py` (TFDS' own command needs `pip install apache-beam mlcroissant`).
A pair that is not listed: `NumberWords(config=NumberWordsConfig("en-fi"))`.
"""

from tfk_transformer.datasets.numbers import check_language, numbers_by_split, spell
from tfk_transformer.datasets.optional import require_tfds
from tfk_transformer.datasets.spelling import language_pair

tfds = require_tfds()


class NumberWordsConfig(tfds.core.BuilderConfig):
    """Two languages, any that num2words knows."""

    def __init__(self, pair: str):
        """Name the languages.

        Args:
            pair: source and target, such as "en-de".

        Raises:
            ValueError: for a malformed pair, or a language num2words does not know.
        """
        self.languages = language_pair(f"numbers:{pair}", pair)
        for language in self.languages:
            check_language(language)
        super().__init__(name=pair, description=f"Numbers from 0 to 999,999 in words: {' and '.join(self.languages)}.")


class NumberWords(tfds.core.GeneratorBasedBuilder):
    """Numbers in words in two languages: 60,000 pairs to train on, 1,000 each to validate and test."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First release."}
    BUILDER_CONFIGS = [NumberWordsConfig(pair) for pair in ("en-de", "de-en", "en-fr", "en-es", "en-it", "en-nl", "en-pt", "en-ru")]

    def _info(self):
        languages = self.builder_config.languages
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"{self.builder_config.description} Test and validation hold 1,000 numbers each, drawn at random.",
            features=tfds.features.Translation(languages=languages),
            supervised_keys=languages,
        )

    def _split_generators(self, dl_manager):
        del dl_manager
        return {split: self._generate_examples(numbers) for split, numbers in numbers_by_split().items()}

    def _generate_examples(self, numbers):
        for number in numbers:
            yield number, {language: spell(number, language) for language in self.builder_config.languages}
