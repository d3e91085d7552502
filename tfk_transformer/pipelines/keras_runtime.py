"""Run the functions of Keras models with TensorFlow."""

import functools
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tfk_transformer.config.search_settings import Rules, check_defaults, setting_rules
from tfk_transformer.inference.runtime import ONE_BATCH, Outputs, Workload
from tfk_transformer.inference.signatures import FUNCTIONS, Shapes, cache_shapes
from tfk_transformer.inference.token_scoring import Tokenizers
from tfk_transformer.runtime_environment import check_process
from tfk_transformer.text.calibration import Calibration
from tfk_transformer.text.languages import Languages

if TYPE_CHECKING:
    from tfk_transformer.data.shortlist import Shortlist
    from tfk_transformer.models.classifier import EncoderClassifier
    from tfk_transformer.models.token_model import TokenModel
    from tfk_transformer.search.model_functions import ClassificationFunctions, TranslationFunctions
    from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

Functions = TypeVar("Functions", "TranslationFunctions", "ClassificationFunctions")


def check_backend() -> None:
    """Refuse to run a search, or another function of a model, under JAX and torch."""
    import keras

    if (backend := keras.backend.backend()) != "tensorflow":
        raise ValueError(
            f"backend: expected tensorflow, got {backend}; search and export require the "
            "TensorFlow backend: save the bundle, and load it with the environment variable "
            "KERAS_BACKEND=tensorflow."
        )


class KerasRuntime(Generic[Functions]):
    """The functions of a Keras model, made and traced at their first run.

    Until then, their modules, which load TensorFlow, are not imported.
    """

    model: Any

    def __init__(self, max_length: int, make_functions: Callable[[], Functions]) -> None:
        check_process()
        self.max_length = max_length
        self._make_functions: Callable[[], Functions] = make_functions
        self._traced: dict[str, Any] = {}

    @functools.cached_property
    def functions(self) -> Functions:
        """Search and scoring, or classification, as TensorFlow functions."""
        check_backend()
        return self._make_functions()

    def run(self, name: str, inputs: Mapping[str, Any], workload: Workload = ONE_BATCH) -> Outputs:
        """Run a function; see `Runtime.run`."""
        check_process()
        check_backend()
        if name not in self._traced and name in FUNCTIONS:
            from tfk_transformer.search.signature_functions import signature_function

            self._traced[name] = signature_function(self.functions, FUNCTIONS[name])
        elif name not in self._traced:
            from tfk_transformer.search.decoder_step import step_functions

            self._traced |= step_functions(self.model)
        outputs: Outputs = self._traced[name](**inputs)
        return outputs

    def require(self, argument: str, *names: str) -> None:
        """Do nothing: a Keras model has all functions."""

    def preload(self) -> None:
        """Do nothing: a Keras model is in memory."""

    def concurrency(self, texts: int) -> int:
        """Return 1: TensorFlow divides a batch among the processors."""
        return 1


class KerasClassifierRuntime(KerasRuntime["ClassificationFunctions"]):
    """The functions of a built Keras classifier; `labels` are in the model's order."""

    def __init__(
        self, model: "EncoderClassifier", tokenizer: "SubwordTokenizer", labels: list[str]
    ) -> None:
        super().__init__(model.config.max_length, self._new_functions)
        self.model = model
        self.tokenizer = tokenizer
        self.labels = labels

    def _new_functions(self) -> "ClassificationFunctions":
        from tfk_transformer.search.model_functions import ClassificationFunctions

        return ClassificationFunctions(self.model, self.tokenizer, self.labels)


class KerasTranslatorRuntime(KerasRuntime["TranslationFunctions"]):
    """The functions of a built Keras model that predicts tokens; see `Translator`.

    `use_cache` says whether a decoding step of the search computes only the last position.
    """

    def __init__(
        self,
        model: "TokenModel",
        tokenizers: Tokenizers,
        shortlist: "Shortlist | None" = None,
        use_cache: bool = True,
        search: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model.config.max_length, self._new_functions)
        self.model = model
        self.tokenizers = tokenizers
        self.shortlist = shortlist
        self.use_cache = use_cache
        self.calibration: Calibration | None = None
        vocab_size = tokenizers.target_tokenizer.vocab_size
        self.search = check_defaults(search or {}, self.max_length, vocab_size)
        self.has_encoder: bool = model.config.has_encoder

    def _new_functions(self) -> "TranslationFunctions":
        from tfk_transformer.search import model_functions

        functions = (
            model_functions.TranslationFunctions
            if self.has_encoder
            else model_functions.ContinuationFunctions
        )
        source_tokenizer, target_tokenizer, _ = self.tokenizers
        return functions(
            self.model,
            source_tokenizer,
            target_tokenizer,
            self.shortlist,
            use_cache=self.use_cache,
            search=self.search,
        )

    @property
    def languages(self) -> Languages:
        """The languages of the model's configuration."""
        config = self.model.config
        return Languages(config.source_language, config.target_language)

    @property
    def split_sentences(self) -> bool:
        """The option `split_sentences` of the model's configuration."""
        return bool(self.model.config.split_sentences)

    @functools.cached_property
    def rules(self) -> Rules:
        """The rules of the search settings."""
        vocab_size = self.tokenizers.target_tokenizer.vocab_size
        return setting_rules(self.max_length, vocab_size, self.search)

    @functools.cached_property
    def characters(self) -> Container[str] | None:
        """The characters that the source vocabulary represents."""
        return self.tokenizers.source_tokenizer.characters()

    @functools.cached_property
    def pieces(self) -> Sequence[str]:
        """The text of each target token."""
        return self.tokenizers.target_tokenizer.pieces()

    @property
    def cache_shapes(self) -> Shapes:
        """The shapes of the KV cache that a decoding step reads, by name."""
        return cache_shapes(self.model.config)

    @functools.cached_property
    def _uncached(self) -> "KerasTranslatorRuntime":
        return KerasTranslatorRuntime(
            self.model, self.tokenizers, self.shortlist, use_cache=False, search=self.search
        )

    def without_cache(self) -> "KerasTranslatorRuntime":
        """Return a runtime whose search recomputes the whole prefix in each step."""
        return self._uncached
