"""SavedModel: strings in, strings out, with stock TensorFlow and TensorFlow Text operators."""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tfk_transformer.config.search_settings import SETTING_DTYPES, SearchSettings
from tfk_transformer.inference.streaming import StepModel, empty_cache, stream_text
from tfk_transformer.inference.text_batches import Hypothesis, Translation, check_prefixes, check_texts, in_batches, to_translations
from tfk_transformer.inference.token_scoring import score_in_batches


class SavedModelTranslator:
    """Translate with an exported SavedModel.

    Args:
        path: its folder.

    Raises:
        ValueError: if it is no SavedModel of this project.
    """

    def __init__(self, path):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (registers the operators)

        if not (Path(path) / "saved_model.pb").is_file():
            raise ValueError(f"SavedModel: expected a folder with saved_model.pb, got {path}.")
        try:
            self._model = tf.saved_model.load(str(path))
        except (OSError, IndexError, tf.errors.OpError) as error:  # IndexError: cut weights
            raise ValueError(f"SavedModel: {path} does not load: {str(error).splitlines()[0]}") from None
        if "translate" not in self._model.signatures:
            cure = "it is a classifier's" if "classify" in self._model.signatures else "export it again"
            raise ValueError(f"SavedModel: expected the signature 'translate', got {sorted(self._model.signatures)} in {path}; {cure}.")
        self.max_length = int(self._model.max_length())

    def translate(
        self, texts: Sequence[str], batch_size: int = 64, prefixes: Sequence[str | None] | None = None, **settings
    ) -> list[Translation]:
        """Translate texts; see `Translator.translate`."""
        import tensorflow as tf

        scalars = _scalars(settings)
        check_texts(texts)
        forced = check_prefixes(prefixes, texts)

        def run(batch, forced):
            found = self._model.signatures["translate"](text=tf.constant(batch), prefix=tf.constant(forced), **scalars)
            return found["translations"].numpy(), found["scores"].numpy()

        return to_translations(texts, in_batches(texts, batch_size, run, forced), self.max_length, forced)

    def stream(self, text: str, **settings) -> Iterator[str]:
        """Translate a text and yield its translation as its tokens come; see `Translator.stream`."""
        return stream_text(self.steps, text, SearchSettings(**{"beam_size": 1, **settings}).as_arrays())

    @functools.cached_property
    def steps(self) -> StepModel:
        """Its encoder and decoder step, for a loop over them."""
        return _steps_of(self._model)

    def generate(self, source_ids: np.ndarray, prefix_ids: np.ndarray | None = None, **settings) -> tuple[np.ndarray, np.ndarray]:
        """Translate int32 ids (N, S) to ids (N, n_best, T), with a prefix (N, P) or (1, P) if given, and scores (N, n_best).

        Raises:
            ValueError: if the ids are no whole numbers (N, S), or a setting is invalid.
        """
        import tensorflow as tf

        source_ids = np.asarray(source_ids)
        if source_ids.ndim != 2 or source_ids.dtype.kind not in "iu":
            raise ValueError(f"source_ids: expected whole numbers (N, S), got {source_ids.dtype} {source_ids.shape}.")
        prefix_ids = np.zeros((1, 0)) if prefix_ids is None else prefix_ids
        ids = {"source_ids": tf.constant(source_ids, tf.int32), "prefix_ids": tf.constant(prefix_ids, tf.int32)}
        found = self._model.signatures["generate"](**ids, **_scalars(settings))
        return found["ids"].numpy(), found["scores"].numpy()

    def score(self, sources: Sequence[str], targets: Sequence[str], batch_size: int = 64) -> np.ndarray:
        """Score pairs of texts; see `Translator.score`."""
        return np.array([row[0] for row in self._scored(sources, targets, batch_size)], "float32")

    def score_tokens(self, sources: Sequence[str], targets: Sequence[str], batch_size: int = 64) -> list[Hypothesis]:
        """Score pairs of texts token by token; see `Translator.score_tokens`. What tokens attend to is told over ids alone."""
        found = []
        for target, (log_probability, pieces, log_probs) in zip(targets, self._scored(sources, targets, batch_size), strict=True):
            tokens = [piece.decode("utf-8") for piece in pieces if piece]
            found.append(Hypothesis(target, float(log_probability), tokens, [float(value) for value in log_probs[: len(tokens)]]))
        return found

    def score_ids(self, source_ids: np.ndarray, target_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Score pairs of ids; see `OnnxScorer.score_ids`."""
        found = self._over_pairs("score_ids", source_ids, target_ids)
        return found["token_log_probs"].numpy(), found["log_probability"].numpy()

    def attention(self, source_ids: np.ndarray, target_ids: np.ndarray) -> np.ndarray:
        """Return what each target token attended to; see `OnnxScorer.attention`."""
        return self._over_pairs("attention", source_ids, target_ids)["attention"].numpy()

    def _over_pairs(self, name: str, source_ids, target_ids) -> dict:
        import tensorflow as tf

        ids = {"source_ids": tf.constant(source_ids, tf.int32), "target_ids": tf.constant(target_ids, tf.int32)}
        return self._model.signatures[name](**ids)

    def _scored(self, sources, targets, batch_size: int) -> list[tuple]:
        """Return for each pair its log-probability, its pieces, "" for padding, and what each scores."""
        import tensorflow as tf

        def run(sources, targets):
            found = self._model.signatures["score"](source=tf.constant(sources), target=tf.constant(targets))
            return [found[name].numpy() for name in ("log_probability", "tokens", "token_log_probs")]

        return score_in_batches(sources, targets, batch_size, self.max_length, run)


def _steps_of(model) -> StepModel:
    """Return what a stream needs of a loaded SavedModel."""
    import tensorflow as tf

    signatures = model.signatures
    if "decoder_step" not in signatures:
        raise ValueError(f"stream: expected the signature 'decoder_step', got {sorted(signatures)}; export the bundle again.")
    tokenize, encode, step = (signatures.get(name) for name in ("tokenize", "encode", "decoder_step"))
    shapes = {name: spec.shape for name, spec in step.structured_input_signature[1].items()}
    return StepModel(
        tokenize=lambda text: tokenize(text=tf.constant([text]))["source_ids"].numpy(),
        encode=encode and (lambda source_ids: encode(source_ids=tf.constant(source_ids))),
        first_cache=lambda rows: empty_cache(shapes, rows),
        step=lambda tensors: step(**{name: tf.convert_to_tensor(tensor) for name, tensor in tensors.items()}),
        pieces=[piece.decode("utf-8", "surrogateescape") for piece in model.pieces().numpy()],
        max_length=int(model.max_length()),
    )


def _scalars(settings: dict) -> dict:
    """Check search settings and turn them, with the defaults of the others, into the signatures' inputs."""
    import tensorflow as tf

    return {name: tf.constant(value, SETTING_DTYPES[name]) for name, value in SearchSettings(**settings).model_dump().items()}
