"""Load SavedModels of this project with TensorFlow, and check them; for translators and
classifiers.
"""

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from tfk_transformer.array_types import Tensor
from tfk_transformer.runtime_environment import check_process


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
        raise ImportError(
            'a SavedModel needs TensorFlow: pip install "tfk-transformer[tensorflow]"'
        ) from None
    if not (Path(path) / "saved_model.pb").is_file():
        raise ValueError(f"SavedModel: expected a folder with saved_model.pb, got {path}.")
    check_process()
    try:
        return tf.saved_model.load(str(path))
    except (OSError, IndexError, tf.errors.OpError) as error:  # IndexError: cut weights
        raise ValueError(
            f"SavedModel: {path} does not load: {str(error).splitlines()[0]}"
        ) from None


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
    raise ValueError(
        f"SavedModel: expected the signature '{wanted}', got {sorted(signatures)} in {path}; "
        f"{cure}."
    )
