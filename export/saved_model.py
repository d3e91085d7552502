"""SavedModel: strings in, strings out, with stock TensorFlow and TensorFlow Text operators."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfk_transformer.config import SETTING_DTYPES, SearchSettings
from tfk_transformer.export.signatures import SAVED_MODEL
from tfk_transformer.texts import Translation, check_texts, in_batches, to_translations


def write_saved_model(fitted, folder, signatures: dict = SAVED_MODEL, **constants) -> None:
    """Write a SavedModel.

    Args:
        fitted: the translator, or the classifier, to export.
        folder: where to; it must not exist.
        signatures: what it has, of `signatures`.
        **constants: what its functions without arguments return, by name, beside `max_length`.
    """
    import tensorflow as tf

    from tfk_transformer.export.functions import traced

    module = tf.Module()
    # Plain variables, not the Keras model: nothing of Keras or of this package is needed to load it.
    module.weights = [variable.value for variable in fitted.model.variables]
    for name, value in {"max_length": fitted.model.config.max_length, **constants}.items():
        setattr(module, name, tf.function(functools.partial(tf.constant, value), input_signature=[]))
    functions = {name: traced(fitted.graph, signature).get_concrete_function() for name, signature in signatures.items()}
    tf.saved_model.save(module, str(folder), signatures=functions)


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

    def translate(self, texts: Sequence[str], batch_size: int = 64, **settings) -> list[Translation]:
        """Translate texts; see `Translator.translate`."""
        import tensorflow as tf

        scalars = _scalars(settings)
        check_texts(texts)

        def run(batch):
            found = self._model.signatures["translate"](text=tf.constant(batch), **scalars)
            return found["translations"].numpy(), found["scores"].numpy()

        return to_translations(texts, in_batches(texts, batch_size, run), self.max_length)

    def generate(self, source_ids: np.ndarray, **settings) -> tuple[np.ndarray, np.ndarray]:
        """Translate int32 ids (N, S) to ids (N, n_best, T) and scores (N, n_best).

        Raises:
            ValueError: if the ids are no whole numbers (N, S), or a setting is invalid.
        """
        import tensorflow as tf

        source_ids = np.asarray(source_ids)
        if source_ids.ndim != 2 or source_ids.dtype.kind not in "iu":
            raise ValueError(f"source_ids: expected whole numbers (N, S), got {source_ids.dtype} {source_ids.shape}.")
        found = self._model.signatures["generate"](source_ids=tf.constant(source_ids, tf.int32), **_scalars(settings))
        return found["ids"].numpy(), found["scores"].numpy()


def _scalars(settings: dict) -> dict:
    """Check search settings and turn them, with the defaults of the others, into the signatures' inputs."""
    import tensorflow as tf

    return {name: tf.constant(value, SETTING_DTYPES[name]) for name, value in SearchSettings(**settings).model_dump().items()}
