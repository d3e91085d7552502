"""The interface that bundles, SavedModels and ONNX files share in all runtimes.

If a class inherits a method from a protocol instead of defining it, a call of the method raises an
error with the class attribute `_refusal`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

import numpy as np

from tfk_transformer.results import Classification, ScoredTarget, Translation

if TYPE_CHECKING:
    from tfk_transformer.documents.results import DocumentTranslation
    from tfk_transformer.glossary.terms import Glossary


class TranslatorProtocol(Protocol):
    """A model that translates: `Translator`, `SavedModelTranslator` or `OnnxTranslator`.

    A decoder-only model "translates" a prompt to its continuation.
    """

    def translate(
        self,
        texts: Sequence[str],
        *,
        batch_size: int = 64,
        prefixes: Sequence[str | None] | None = None,
        token_scores: bool = False,
        attention: bool = False,
        use_cache: bool = True,
        glossary: "Glossary | Mapping[str, str] | None" = None,
        **settings: float,
    ) -> list[Translation]:
        """Translate texts.

        Args:
            texts: the source texts. A blank text has a blank translation with score 0.
            batch_size: texts translated at once; it does not change the results.
            prefixes: the forced beginning of each text's translations; None or "" forces nothing.
                Prefixes count neither in scores nor in length limits.
            token_scores: whether hypotheses have `tokens` and `token_log_probs`.
            attention: whether hypotheses have `tokens` and `attention`: for each token, the
                attention of every layer and head of the decoder to the source, or in a decoder-only
                model to all tokens before.
            use_cache: whether each decoding step computes only the last position and reads the keys
                and values of earlier positions from a cache. False recomputes the whole prefix,
                which is slower and equal except for rounding. Exported files contain only the
                cached step and refuse False.
            glossary: source terms with their translations. The translation of a text that has a
                term contains the term's translation. If the search result lacks the term's
                translation, it is tried at every position, and the most probable result is
                returned. With ONNX this needs `score.onnx` next to the file. See docs/documents.md.
            **settings: search settings, see `SearchSettings`.

        Returns:
            One translation for each text, in the order of `texts`.

        Raises:
            ValueError: if a text or a prefix is too long for the model, a setting is invalid, or
                the files do not contain the requested outputs.
        """
        _refuse(self, "translate")

    def translate_document(
        self,
        text: str,
        format: str = "text",
        *,
        language: str = "en",
        lines: bool = False,
        attention_layer: int | None = None,
        batch_size: int = 64,
        **settings: float,
    ) -> "DocumentTranslation":
        """Translate a document sentence by sentence; text between sentences stays unchanged.

        The attention of the decoder to the source determines the position of markup inside a
        sentence. Only sentences with markup, and sentences whose numbers are missing in their
        translation, need the attention. With ONNX they also need the files that `translate` needs
        for attention. The package needs the extra `documents`.

        Args:
            text: the document.
            format: "text", "markdown" or "html".
            language: the ISO 639 code of the document's language, for splitting into sentences.
            lines: whether each line of a plain text is a paragraph. If False, paragraphs end at
                blank lines.
            attention_layer: the layer of the decoder whose attention places markup; negative
                numbers count from the last layer. None: the mean of all layers.
            batch_size: sentences translated at once; it does not change the results.
            **settings: search settings, see `SearchSettings`.

        Raises:
            ValueError: if an argument or a setting is invalid, or the files lack outputs that the
                document needs.
            ImportError: if a package of the extra `documents` is not installed, with the line that
                installs it.
        """
        _refuse(self, "translate_document")

    def stream(self, text: str, **settings: float) -> Iterator[str]:
        """Translate one text and yield parts of its translation while they are decoded.

        The joined parts are the text that `translate` returns with `beam_size=1`, greedy or
        sampled with a `temperature`.

        Args:
            text: the source text. A blank text has a blank translation.
            **settings: search settings, see `SearchSettings`. `beam_size` must be 1.

        Raises:
            ValueError: before the first part, if the text is too long for the model, a setting is
                invalid, or `beam_size` is not 1.
        """
        _refuse(self, "stream")

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 64
    ) -> np.ndarray:
        """Return the log-probability of each target given its source, float32 (N,).

        The log-probabilities come from one full masked pass.

        Args:
            sources: the source texts.
            targets: one translation of each source.
            batch_size: pairs scored at once; it does not change the results.

        Raises:
            ValueError: if the numbers of sources and targets differ, or a text is too long for the
                model.
        """
        _refuse(self, "score")

    def score_tokens(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        batch_size: int = 64,
        attention: bool = False,
    ) -> list[ScoredTarget]:
        """Score pairs as `score` does, and also return the log-probability of each token.

        Args:
            sources: the source texts.
            targets: one translation of each source.
            batch_size: pairs scored at once; it does not change the results.
            attention: whether the results have `attention`.

        Raises:
            ValueError: if the numbers of sources and targets differ, a text is too long for the
                model, or the files do not contain the requested outputs.
        """
        _refuse(self, "score_tokens")


class ClassifierProtocol(Protocol):
    """A model that classifies: `TextClassifier`, `SavedModelClassifier` or `OnnxClassifier`."""

    def classify(self, texts: Sequence[str], *, batch_size: int = 64) -> list[Classification]:
        """Classify texts.

        Args:
            texts: the texts. A blank text has the label "" with probability 0.
            batch_size: texts classified at once; it does not change the results.

        Returns:
            One classification for each text, in the order of `texts`.

        Raises:
            ValueError: if a text is too long for the model.
        """
        _refuse(self, "classify")


class LoadedModel(TranslatorProtocol, ClassifierProtocol, Protocol):
    """The result of `tfk_transformer.load`: a translator or a classifier.

    The methods of the other protocol raise ValueError.
    """


def _refuse(model: object, method: str) -> NoReturn:
    """Refuse a method that the class of `model` inherits from a protocol instead of defining it."""
    reason = getattr(model, "_refusal", f"{type(model).__name__} does not support it.")
    raise ValueError(f"{method}: {reason}")
