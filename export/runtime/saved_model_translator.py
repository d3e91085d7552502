"""Translate with an exported SavedModel. Needs TensorFlow and TensorFlow Text, and no Keras."""

import functools
import json
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import (
    Rules,
    resolve_settings,
    setting_arrays,
    setting_rules,
)
from tfk_transformer.export.runtime.saved_model_files import check_signature, read_saved_model
from tfk_transformer.inference.base_translator import (
    BaseTranslator,
    BatchSearch,
    Request,
    refuse_uncached,
)
from tfk_transformer.inference.streaming import StepModel, empty_cache, stream_text
from tfk_transformer.inference.token_scoring import (
    Tokenizers,
    score_in_batches,
    scoring_of_texts,
    search_with_details,
)
from tfk_transformer.runtime_environment import check_process
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# Functions of a SavedModel that return SentencePiece models.
SOURCE_TOKENIZER = "source_tokenizer"
TARGET_TOKENIZER = "target_tokenizer"


class SavedModelTranslator(BaseTranslator):
    """Translate with an exported SavedModel.

    Args:
        path: its folder.
        model: the SavedModel, if it is already loaded.

    Raises:
        ValueError: if the folder is not the SavedModel of a translator that this project exported.
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
            generate = functools.partial(self._generate, scalars)
            score = functools.partial(self._score_arrays, request.attention)
            return BatchSearch(search_with_details(self._tokenizers, generate, score))

        def run(texts: Sequence[str], prefixes: Sequence[str]) -> list[np.ndarray]:
            outputs = self._model.signatures["translate"](
                text=tf.constant(texts), prefix=tf.constant(prefixes), **scalars
            )
            return [outputs["translations"].numpy(), outputs["scores"].numpy()]

        return BatchSearch(run)

    def stream(self, text: str, **settings: float) -> Iterator[str]:
        """Translate one text and yield parts of its translation as they are decoded; see
        `TranslatorProtocol.stream`.
        """
        check_process()
        resolved = resolve_settings({"beam_size": 1, **settings}, self._rules)
        return stream_text(self.steps, text, setting_arrays(resolved, self._rules))

    @functools.cached_property
    def steps(self) -> StepModel:
        """The encoder and the decoding step, for programs that run the loop themselves."""
        return _step_model(self._model)

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
        if prefix_ids is None:
            prefix_ids = np.zeros((1, 0))
        return self._generate(self._scalars(settings), source_ids, prefix_ids)

    def _generate(
        self, scalars: dict[str, Tensor], source_ids: ArrayLike, prefix_ids: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        import tensorflow as tf

        check_process()
        ids = {
            "source_ids": tf.constant(source_ids, tf.int32),
            "prefix_ids": tf.constant(prefix_ids, tf.int32),
        }
        outputs = self._model.signatures["generate"](**ids, **scalars)
        return outputs["ids"].numpy(), outputs["scores"].numpy()

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_size: int = 64
    ) -> np.ndarray:
        """Return the log-probability of each target given its source, float32 (N,); see
        `TranslatorProtocol.score`.
        """
        import tensorflow as tf

        check_process()

        def run(sources: Sequence[str], targets: Sequence[str]) -> list[np.ndarray]:
            outputs = self._model.signatures["score"](
                source=tf.constant(sources), target=tf.constant(targets)
            )
            return [outputs["log_probability"].numpy()]

        rows = score_in_batches(sources, targets, batch_size, self.max_length, run)
        return np.array([log_probability for (log_probability,) in rows], "float32")

    def _scalars(self, settings: dict[str, Any]) -> dict[str, Tensor]:
        """Check search settings, and return all settings as inputs of the signatures."""
        import tensorflow as tf

        arrays = setting_arrays(resolve_settings(settings, self._rules), self._rules)
        return {name: tf.constant(array) for name, array in arrays.items()}

    @functools.cached_property
    def _rules(self) -> Rules:
        vocab_size = self._config.get("target_vocab_size", self._config.get("vocab_size"))
        return setting_rules(self.max_length, vocab_size)

    @functools.cached_property
    def _config(self) -> dict[str, Any]:
        return json.loads(self._model.config().numpy())

    def score_ids(
        self, source_ids: ArrayLike, target_ids: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        """Score pairs of ids; see `OnnxScorer.score_ids`."""
        outputs = self._run_on_pairs("score_ids", source_ids, target_ids)
        return outputs["token_log_probs"].numpy(), outputs["log_probability"].numpy()

    def attention(self, source_ids: ArrayLike, target_ids: ArrayLike) -> np.ndarray:
        """Return the attention weights of each target token; see `OnnxScorer.attention`."""
        return self._run_on_pairs("attention", source_ids, target_ids)["attention"].numpy()

    def _score_arrays(
        self, attention: bool, source_ids: np.ndarray, target_ids: np.ndarray
    ) -> list[np.ndarray]:
        weights = [self.attention(source_ids, target_ids)] if attention else []
        return [*self.score_ids(source_ids, target_ids), *weights]

    def _run_on_pairs(
        self, name: str, source_ids: ArrayLike, target_ids: ArrayLike
    ) -> dict[str, Tensor]:
        import tensorflow as tf

        check_process()
        ids = {
            "source_ids": tf.constant(source_ids, tf.int32),
            "target_ids": tf.constant(target_ids, tf.int32),
        }
        return self._model.signatures[name](**ids)

    def _scored(
        self, sources: Sequence[str], targets: Sequence[str], batch_size: int, attention: bool
    ) -> list[tuple[Any, ...]]:
        run = scoring_of_texts(self._tokenizers, functools.partial(self._score_arrays, attention))
        return score_in_batches(sources, targets, batch_size, self.max_length, run)

    @functools.cached_property
    def _tokenizers(self) -> Tokenizers:
        """The tokenizers and the architecture."""
        source = SubwordTokenizer(getattr(self._model, SOURCE_TOKENIZER)().numpy())
        target = SubwordTokenizer(getattr(self._model, TARGET_TOKENIZER)().numpy())
        return Tokenizers(source, target, self._config["architecture"])


def _step_model(model: Tensor) -> StepModel:
    """Return the functions of a loaded SavedModel that streaming calls."""
    import tensorflow as tf

    signatures = model.signatures
    if "decoder_step" not in signatures:
        raise ValueError(
            f"stream: expected the signature 'decoder_step', got {sorted(signatures)}; export the "
            "bundle again."
        )
    tokenize = signatures.get("tokenize")
    encode = signatures.get("encode")
    step = signatures["decoder_step"]
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
