"""SavedModel: strings in, strings out, with stock TensorFlow and TensorFlow Text operators."""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tfk_transformer.config import SETTING_DTYPES, SearchSettings
from tfk_transformer.export.signatures import SAVED_MODEL
from tfk_transformer.streaming import StepModel, empty_cache, stream_text
from tfk_transformer.texts import Translation, check_texts, in_batches, to_translations


def write_saved_model(fitted, folder, signatures: dict = SAVED_MODEL, more: Callable | None = None, **constants) -> None:
    """Write a SavedModel.

    Args:
        fitted: the translator, or the classifier, to export.
        folder: where to; it must not exist.
        signatures: what it has, of `signatures`.
        more: gives, of `fitted`, further `tf.function`s by name.
        **constants: what its functions without arguments return, by name, beside `max_length`.
    """
    import tensorflow as tf

    from tfk_transformer.export.functions import traced

    module = tf.Module()
    # Plain variables, not the Keras model: nothing of Keras or of this package is needed to load it.
    module.weights = [variable.value for variable in fitted.model.variables]
    for name, value in {"max_length": fitted.model.config.max_length, **constants}.items():
        setattr(module, name, tf.function(functools.partial(tf.constant, value), input_signature=[]))
    functions = {name: traced(fitted.graph, signature) for name, signature in signatures.items()} | (more(fitted) if more else {})
    concrete = {name: function.get_concrete_function() for name, function in functions.items()}
    tf.saved_model.save(module, str(folder), signatures=concrete)


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
        except (OSError, tf.errors.OpError) as error:
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

    def stream(self, text: str, **settings) -> Iterator[str]:
        """Translate a text and yield its translation as its tokens come; see `Translator.stream`."""
        return stream_text(self.steps, text, SearchSettings(**{"beam_size": 1, **settings}).as_arrays())

    @functools.cached_property
    def steps(self) -> StepModel:
        """Its encoder and decoder step, for a loop over them."""
        return _steps_of(self._model)

    def generate(self, source_ids: np.ndarray, **settings) -> tuple[np.ndarray, np.ndarray]:
        """Translate int32 ids (N, S) to ids (N, n_best, T) and scores (N, n_best)."""
        import tensorflow as tf

        found = self._model.signatures["generate"](source_ids=tf.constant(source_ids, tf.int32), **_scalars(settings))
        return found["ids"].numpy(), found["scores"].numpy()


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
