"""Translate with an exported SavedModel. Needs TensorFlow and TensorFlow Text, and no Keras."""

import functools
import json
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import setting_rules
from tfk_transformer.export.runtime.saved_model_files import check_signature, read_saved_model
from tfk_transformer.inference.base_translator import (
    BaseTranslator,
    BatchSearch,
    Request,
    refuse_uncached,
)
from tfk_transformer.inference.setting_checks import Rules, checked_settings, setting_arrays
from tfk_transformer.inference.streaming import StepModel, empty_cache, stream_text
from tfk_transformer.inference.token_scoring import (
    Tokenizers,
    score_in_batches,
    scoring_of_texts,
    search_with_details,
)
from tfk_transformer.runtime_environment import check_process
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# Functions that return SentencePiece models.
SOURCE_TOKENIZER, TARGET_TOKENIZER = "source_tokenizer", "target_tokenizer"


class SavedModelTranslator(BaseTranslator):
    """Translate with an exported SavedModel.

    Args:
        path: its folder.
        model: the loaded SavedModel, where it is loaded already.

    Raises:
        ValueError: if the folder is not a translator's SavedModel of this project.
        ImportError: if TensorFlow is not installed.
    """

    def __init__(self, path: str | PathLike[str], model: Tensor | None = None) -> None:
        self._model = read_saved_model(path) if model is None else model
        check_signature(self._model.signatures, "translate", path)
        self.max_length = int(self._model.max_length())

    def _search(self, request: Request, settings: dict[str, Any]) -> BatchSearch:
        import tensorflow as tf

        check_process()
        refuse_uncached(request.use_cache)
        scalars = self._scalars(settings)
        if request.details:
            generate, score = (
                functools.partial(self._generate, scalars),
                functools.partial(self._score_arrays, request.attention),
            )
            return BatchSearch(search_with_details(self._tokenizers, generate, score))

        def run(texts: Sequence[str], prefixes: Sequence[str]) -> list[np.ndarray]:
            found = self._model.signatures["translate"](
                text=tf.constant(texts), prefix=tf.constant(prefixes), **scalars
            )
            return [found["translations"].numpy(), found["scores"].numpy()]

        return BatchSearch(run)

    def stream(self, text: str, **settings: float) -> Iterator[str]:
        """Translate one text and yield parts of its translation as they are decoded; see
        `TranslatorProtocol.stream`.
        """
        check_process()
        chosen = checked_settings({"beam_size": 1, **settings}, self._rules)
        return stream_text(self.steps, text, setting_arrays(chosen, self._rules))

    @functools.cached_property
    def steps(self) -> StepModel:
        """Its encoder and decoding step, for programs that run the loop themselves."""
        return _steps_of(self._model)

    def generate(
        self, source_ids: ArrayLike, prefix_ids: ArrayLike | None = None, **settings: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Translate ids.

        Args:
            source_ids: integers (N, S), tokens and end token, padded with 0.
            prefix_ids: integers (N, P), or (1, P) for all sources: tokens that translations begin
                with, padded with 0.
            **settings: search settings, see `SearchSettings`.

        Returns:
            int32 ids (N, n_best, T) and float32 scores (N, n_best).

        Raises:
            ValueError: if the ids are not integers (N, S), or a setting is invalid.
        """
        source_ids = np.asarray(source_ids)
        if source_ids.ndim != 2 or source_ids.dtype.kind not in "iu":
            raise ValueError(
                f"source_ids: expected whole numbers (N, S), got {source_ids.dtype} "
                f"{source_ids.shape}."
            )
        return self._generate(
            self._scalars(settings),
            source_ids,
            np.zeros((1, 0)) if prefix_ids is None else prefix_ids,
        )

    def _generate(
        self, scalars: dict[str, Tensor], source_ids: ArrayLike, prefix_ids: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        import tensorflow as tf

        check_process()
        ids = {
            "source_ids": tf.constant(source_ids, tf.int32),
            "prefix_ids": tf.constant(prefix_ids, tf.int32),
        }
        found = self._model.signatures["generate"](**ids, **scalars)
        return found["ids"].numpy(), found["scores"].numpy()

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 64
    ) -> np.ndarray:
        """Return the log-probability of each target given its source, float32 (N,); see
        `TranslatorProtocol.score`.
        """
        import tensorflow as tf

        check_process()

        def run(sources: Sequence[str], targets: Sequence[str]) -> list[np.ndarray]:
            found = self._model.signatures["score"](
                source=tf.constant(sources), target=tf.constant(targets)
            )
            return [found["log_probability"].numpy()]

        rows = score_in_batches(sources, targets, batch_size, self.max_length, run)
        return np.array([log_probability for (log_probability,) in rows], "float32")

    def _scalars(self, settings: dict[str, Any]) -> dict[str, Tensor]:
        """Check search settings, and return them with the defaults of the others as inputs of the
        signatures.
        """
        import tensorflow as tf

        arrays = setting_arrays(checked_settings(settings, self._rules), self._rules)
        return {name: tf.constant(array) for name, array in arrays.items()}

    @functools.cached_property
    def _rules(self) -> Rules:
        vocab_size = self._config.get("target_vocab_size", self._config.get("vocab_size"))
        return setting_rules(self.max_length, vocab_size)

    @functools.cached_property
    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads(self._model.config().numpy())
        return config

    def score_ids(
        self, source_ids: ArrayLike, target_ids: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        """Score pairs of ids; see `OnnxScorer.score_ids`."""
        found = self._over_pairs("score_ids", source_ids, target_ids)
        return found["token_log_probs"].numpy(), found["log_probability"].numpy()

    def attention(self, source_ids: ArrayLike, target_ids: ArrayLike) -> np.ndarray:
        """Return the attention weights of each target token; see `OnnxScorer.attention`."""
        weights: np.ndarray = self._over_pairs("attention", source_ids, target_ids)[
            "attention"
        ].numpy()
        return weights

    def _score_arrays(
        self, attention: bool, source_ids: np.ndarray, target_ids: np.ndarray
    ) -> list[np.ndarray]:
        weights = [self.attention(source_ids, target_ids)] if attention else []
        return [*self.score_ids(source_ids, target_ids), *weights]

    def _over_pairs(
        self, name: str, source_ids: ArrayLike, target_ids: ArrayLike
    ) -> dict[str, Tensor]:
        import tensorflow as tf

        check_process()
        ids = {
            "source_ids": tf.constant(source_ids, tf.int32),
            "target_ids": tf.constant(target_ids, tf.int32),
        }
        found: dict[str, Tensor] = self._model.signatures[name](**ids)
        return found

    def _scored(
        self, sources: Sequence[str], targets: Sequence[str], batch_size: int, attention: bool
    ) -> list[tuple[Any, ...]]:
        run = scoring_of_texts(self._tokenizers, functools.partial(self._score_arrays, attention))
        return score_in_batches(sources, targets, batch_size, self.max_length, run)

    @functools.cached_property
    def _tokenizers(self) -> Tokenizers:
        """The tokenizers and the architecture."""
        models = (
            getattr(self._model, name)().numpy() for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER)
        )
        source, target = (SubwordTokenizer(model) for model in models)
        return Tokenizers(source, target, self._config["architecture"])


def _steps_of(model: Tensor) -> StepModel:
    """Return the functions of a loaded SavedModel that streaming calls."""
    import tensorflow as tf

    signatures = model.signatures
    if "decoder_step" not in signatures:
        raise ValueError(
            f"stream: expected the signature 'decoder_step', got {sorted(signatures)}; export the "
            "bundle again."
        )
    tokenize, encode, step = (
        signatures.get(name) for name in ("tokenize", "encode", "decoder_step")
    )
    shapes = {name: spec.shape for name, spec in step.structured_input_signature[1].items()}
    return StepModel(
        tokenize=lambda text: tokenize(text=tf.constant([text]))["source_ids"].numpy(),
        encode=encode and (lambda source_ids: encode(source_ids=tf.constant(source_ids))),
        first_cache=lambda rows: empty_cache(shapes, rows),
        step=lambda tensors: step(
            **{name: tf.convert_to_tensor(tensor) for name, tensor in tensors.items()}
        ),
        pieces=[piece.decode("utf-8", "surrogateescape") for piece in model.pieces().numpy()],
        max_length=int(model.max_length()),
    )
