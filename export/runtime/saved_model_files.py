"""Load SavedModels of translators and classifiers with TensorFlow, and check them."""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from tfk_transformer.array_types import Tensor
from tfk_transformer.runtime_environment import check_process


def read_saved_model(path: str | PathLike[str]) -> Tensor:
    """Load a SavedModel.

    Raises:
        ValueError: if `path` is not a SavedModel, or the SavedModel does not load.
        ImportError: if TensorFlow or TensorFlow Text is not installed.
    """
    try:
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (registers the operators)
    except ImportError:
        raise ImportError(
            'a SavedModel needs TensorFlow: pip install "tfk-transformer[tensorflow]"'
        ) from None
    if not (Path(path) / "saved_model.pb").is_file():
        raise ValueError(f"SavedModel: expected a folder with saved_model.pb, got {path}.")
    check_process()
    try:
        return tf.saved_model.load(str(path))
    except (OSError, IndexError, tf.errors.OpError) as error:  # IndexError: truncated weights
        raise ValueError(
            f"SavedModel: {path} does not load: {str(error).splitlines()[0]}"
        ) from None


def check_signature(signatures: Iterable[str], required: str, path: str | PathLike[str]) -> None:
    """Refuse a SavedModel without a required signature.

    Raises:
        ValueError: with the class that reads the SavedModel, or the advice to export it again.
    """
    if required in signatures:
        return
    advice = "export it again"
    if "translate" in signatures:
        advice = "it is a translator's; open it with SavedModelTranslator"
    elif "classify" in signatures:
        advice = "it is a classifier's; open it with SavedModelClassifier"
    raise ValueError(
        f"SavedModel: expected the signature '{required}', got {sorted(signatures)} in {path}; "
        f"{advice}."
    )
