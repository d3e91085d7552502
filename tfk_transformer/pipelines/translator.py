"""Model and tokenizers together: text to text, saved and loaded as a bundle."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.datasets import Pair
from tfk_transformer.inference.base_translator import BaseTranslator
from tfk_transformer.inference.token_scoring import Tokenizers
from tfk_transformer.pipelines import bundle
from tfk_transformer.pipelines.bundle import Json, SavedAsBundle
from tfk_transformer.pipelines.keras_runtime import KerasTranslatorRuntime
from tfk_transformer.text.calibration import CONFIDENCE, DEFAULT_CHRF, Calibration
from tfk_transformer.text.languages import language_or_english
from tfk_transformer.text.outcome import Refused
from tfk_transformer.text.splitting import split_text
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer, check_protocol

if TYPE_CHECKING:
    from tfk_transformer.data.shortlist import Shortlist
    from tfk_transformer.models.token_model import TokenModel
    from tfk_transformer.search.model_functions import TranslationFunctions

MAX_PAIRS = 2000  # of a calibration: more would hardly change its four numbers


class Translator(BaseTranslator, SavedAsBundle):
    """A fitted model with its tokenizers: text to text.

    Args:
        model: a `Transformer`, an `Ensemble`, or a `LanguageModel`, which "translates" a prompt
            into its continuation. It is built if needed.
        source_tokenizer: the tokenizer of the source texts. None: the model's users have their own,
            and texts are ids with blanks between them, such as "17 4 9".
        target_tokenizer: the tokenizer of the translations. Default: `source_tokenizer`.
        probes: source texts on which exports are compared with the model.
        origin: the origin of an imported model, as JSON values by name; see `import_model`.
        shortlist: the tokens that translations may contain, as `data.shortlist` learns them. None:
            all tokens. It is not part of the bundle, and `stream` and `score` use the whole
            vocabulary.
        search: the model's own defaults of search settings by name, see `SearchSettings`. The
            bundle and every exported file have them. Default: the library's defaults.

    Raises:
        ValueError: if the model does not predict tokens, a tokenizer and the model differ in
            vocabulary size, or a setting is unknown or impossible for the model.
    """

    def __init__(
        self,
        model: "TokenModel",
        source_tokenizer: SubwordTokenizer | None = None,
        target_tokenizer: SubwordTokenizer | None = None,
        probes: Sequence[str] = (),
        origin: Json | None = None,
        shortlist: "Shortlist | None" = None,
        search: Json | None = None,
    ) -> None:
        if model.config.architecture not in ("encoder_decoder", "decoder", "ensemble"):
            raise ValueError(
                "model: expected a Transformer, an Ensemble or a LanguageModel, got "
                f"{type(model).__name__}."
            )
        if source_tokenizer is None:
            source_tokenizer = SubwordTokenizer.of_ids(model.config.source_vocab_size)
            target_tokenizer = target_tokenizer or SubwordTokenizer.of_ids(
                model.config.target_vocab_size
            )
        check_protocol(source_tokenizer, "source_tokenizer")
        if target_tokenizer is not None:
            check_protocol(target_tokenizer, "target_tokenizer")
        if target_tokenizer is None or target_tokenizer.model == source_tokenizer.model:
            target_tokenizer = source_tokenizer  # one object, so that exports contain it once
        tokenizers = Tokenizers(source_tokenizer, target_tokenizer, model.config.has_encoder)
        model.build()
        self.runtime: KerasTranslatorRuntime = KerasTranslatorRuntime(
            model, tokenizers, shortlist, search=search
        )
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.probes = list(probes)
        self.origin = origin or {}
        self.shortlist = shortlist
        self.search = self.runtime.search
        for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
            expected = getattr(model.config, f"{side}_vocab_size")
            if expected != tokenizer.vocab_size:
                raise ValueError(
                    f"{side}_tokenizer: expected {expected} pieces, the model's {side}_vocab_size, "
                    f"got {tokenizer.vocab_size}."
                )

    @property
    def functions(self) -> "TranslationFunctions":
        """Search and scoring as TensorFlow functions."""
        return self.runtime.functions

    @property
    def search_settings(self) -> SearchSettings:
        """The search settings of `translate` without options."""
        return SearchSettings(
            **{name: rule["default"] for name, rule in self.runtime.rules.items()}
        )

    @property
    def sentences_per_text(self) -> float | None:
        """The mean number of sentences in a probe, or None without probes.

        Probes are texts of the training run's validation data.
        """
        if not self.probes:
            return None
        language = language_or_english(self.languages.source)
        counts = [len(split_text(text, language).sentences) for text in self.probes]
        return round(sum(counts) / len(counts), 2)

    def calibrate(
        self, pairs: Iterable[Pair | tuple[str, str]], chrf: float = DEFAULT_CHRF
    ) -> Calibration:
        """Fit the confidence of translations to text pairs, and return the fit.

        From then on, translations have a `confidence`, and so have those of the bundle that `save`
        writes and of every exported file. It is the estimated probability that the chrF of a
        translation with a translation by a person is at least `chrf`. See docs/running.md.

        Args:
            pairs: text pairs that the model has not seen in training, such as
                `datasets.load(spec).pairs("validation")`. The first 2,000 are translated, each
                source as one sentence; those that the model cannot process are skipped.
            chrf: the chrF of a right translation, from 0 to 100.

        Raises:
            ValueError: if the model can process fewer than 100 of the sources, or `chrf` is out of
                range.
        """
        # It imports sacreBLEU.
        from tfk_transformer.text.calibration_fitting import fit_calibration

        if not 0 < chrf <= 100:
            raise ValueError(f"chrf: expected a number above 0 and up to 100, got {chrf}.")
        sources, references = [], []
        for source, reference, *_ in itertools.islice(pairs, MAX_PAIRS):
            sources.append(source)
            references.append(reference)
        outcomes = self.try_translate(sources, split_sentences=False)
        translated = {i: o for i, o in enumerate(outcomes) if not isinstance(o, Refused)}
        self.runtime.calibration = fit_calibration(
            list(translated.values()), [references[index] for index in translated], chrf
        )
        return self.runtime.calibration

    def _write_files(self, folder: Path) -> None:
        self.source_tokenizer.save(folder / bundle.SOURCE_TOKENIZER)
        self.target_tokenizer.save(folder / bundle.TARGET_TOKENIZER)

    def in_float32(self) -> "Translator":
        """Return this translator, or a copy with a float32 model without LoRA and quantization.

        Every exported file computes in float32.
        """
        plain = bundle.is_plain(self.model)
        return self if plain else self._copy(bundle.plain_copy(self.model), self.shortlist)

    def with_shortlist(self, shortlist: "Shortlist") -> "Translator":
        """Return a translator with the same model that searches only the tokens of a shortlist."""
        return self._copy(self.model, shortlist)

    def _copy(self, model: "TokenModel", shortlist: "Shortlist | None") -> "Translator":
        """Return a translator with another model or shortlist, and everything else as here."""
        copy = Translator(
            model,
            self.source_tokenizer,
            self.target_tokenizer,
            self.probes,
            self.origin,
            shortlist,
            self.search,
        )
        copy.metrics = self.metrics
        copy.runtime.calibration = self.calibration
        return copy

    @classmethod
    def ensemble(cls, members: Sequence["Translator"]) -> "Translator":
        """Return a translator whose model is an `Ensemble` of copies of the members' models.

        Args:
            members: at least one translator with a `Transformer`. All have the same tokenizers. The
                result has the probes and the search settings of the first member.

        Raises:
            ValueError: if the tokenizers of the members differ, or a model cannot be part of an
                ensemble.
        """
        from tfk_transformer.models.ensemble import Ensemble

        for number, member in enumerate(members):
            for side in ("source_tokenizer", "target_tokenizer"):
                if getattr(member, side).model != getattr(members[0], side).model:
                    raise ValueError(
                        f"members: expected the same {side} in all members, got a different "
                        f"{side} in members[{number}]; use models that were trained with the same "
                        "tokenizers."
                    )
        model = Ensemble([member.model for member in members])
        first = members[0]
        tokenizers = first.source_tokenizer, first.target_tokenizer
        return cls(model, *tokenizers, first.probes, search=first.search)

    @classmethod
    def _read_files(cls, folder: Path) -> Self:
        translator = cls(
            bundle.read_model(folder, bundle.TRANSLATOR),
            SubwordTokenizer.load(folder / bundle.SOURCE_TOKENIZER),
            SubwordTokenizer.load(folder / bundle.TARGET_TOKENIZER),
            bundle.read_probes(folder / bundle.PROBES),
            bundle.read_record(folder, bundle.ORIGIN),
            search=bundle.read_record(folder, bundle.SEARCH),
        )
        metrics = bundle.read_metrics(folder)
        if CONFIDENCE in metrics:
            translator.runtime.calibration = Calibration.from_json(metrics[CONFIDENCE])
        records = (bundle.ORIGIN, bundle.SEARCH, CONFIDENCE)
        translator.metrics = {name: metrics[name] for name in metrics if name not in records}
        return translator
