"""SavedModels of this project loaded with TensorFlow, and what both kinds of them have in common."""

import functools
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfk_transformer.array_types import Tensor

if TYPE_CHECKING:
    from tfk_transformer.export.signatures import Signature
    from tfk_transformer.pipelines.text_classifier import TextClassifier
    from tfk_transformer.pipelines.translator import Translator


def write_saved_model(
    fitted: "Translator | TextClassifier",
    folder: str | PathLike[str],
    signatures: "dict[str, Signature] | None" = None,
    more: Callable[..., dict[str, Any]] | None = None,
    **constants: Sequence[str] | Sequence[bytes] | bytes | str | int,
) -> None:
    """Write a SavedModel.

    Args:
        fitted: the translator or the classifier to export.
        folder: the folder to write; it must not exist.
        signatures: the signatures by name. Default: a translator's, `signatures.SAVED_MODEL`.
        more: a function that returns further `tf.function`s of `fitted` by name.
        **constants: what functions without arguments return, by name, beside `max_length` and `config`.
    """
    import tensorflow as tf

    from tfk_transformer.export.functions import traced
    from tfk_transformer.export.signatures import SAVED_MODEL

    module = tf.Module()
    # Plain variables, not the Keras model, so that nothing of Keras or of this package is needed to load it.
    module.weights = [variable.value for variable in fitted.model.variables]
    config = fitted.model.config
    for name, value in {"max_length": config.max_length, "config": config.to_json(), **constants}.items():
        setattr(module, name, tf.function(functools.partial(tf.constant, value), input_signature=[]))
    functions = {name: traced(fitted.functions, signature) for name, signature in (signatures or SAVED_MODEL).items()}
    tf.saved_model.save(module, str(folder), signatures=functions | (more(fitted) if more else {}))


def read_saved_model(path: str | PathLike[str]) -> Tensor:
    """Load a SavedModel.

    Raises:
        ValueError: if there is no SavedModel, or it does not load.
        ImportError: if TensorFlow or TensorFlow Text is not installed.
    """
    try:
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (registers the operators)
    except ImportError:
        raise ImportError('a SavedModel needs TensorFlow: pip install "tfk-transformer[tensorflow]"') from None
    if not (Path(path) / "saved_model.pb").is_file():
        raise ValueError(f"SavedModel: expected a folder with saved_model.pb, got {path}.")
    try:
        return tf.saved_model.load(str(path))
    except (OSError, IndexError, tf.errors.OpError) as error:  # IndexError: cut weights
        raise ValueError(f"SavedModel: {path} does not load: {str(error).splitlines()[0]}") from None


def check_signature(signatures: Iterable[str], wanted: str, path: str | PathLike[str]) -> None:
    """Refuse a SavedModel without a signature.

    Raises:
        ValueError: with the class that reads it, or the cure.
    """
    if wanted in signatures:
        return
    readers = {"translate": "SavedModelTranslator", "classify": "SavedModelClassifier"}
    kinds = {"translate": "a translator's", "classify": "a classifier's"}
    other = next((name for name in readers if name in signatures), None)
    cure = f"it is {kinds[other]}; open it with {readers[other]}" if other else "export it again"
    raise ValueError(f"SavedModel: expected the signature '{wanted}', got {sorted(signatures)} in {path}; {cure}.")
