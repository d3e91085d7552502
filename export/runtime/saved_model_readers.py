"""The classes that read exported SavedModels. They need TensorFlow and TensorFlow Text, but
not Keras.
"""

from os import PathLike

from tfk_transformer.export.runtime.saved_model_runtime import SavedModelRuntime
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.base_translator import BaseTranslator


class SavedModelTranslator(BaseTranslator):
    """Translate with an exported SavedModel; see `BaseTranslator` for methods.

    Args:
        path: its folder, or an open `SavedModelRuntime`.

    Raises:
        ValueError: if the folder is not the SavedModel of a translator that this project exported.
        ImportError: if TensorFlow is not installed.
    """

    def __init__(self, path: str | PathLike[str] | SavedModelRuntime) -> None:
        super().__init__(_runtime(path, "translate"))


class SavedModelClassifier(BaseClassifier):
    """Classify with an exported SavedModel; see `BaseClassifier` for methods.

    Args:
        path: its folder, or an open `SavedModelRuntime`.

    Raises:
        ValueError: if the folder is not the SavedModel of a classifier that this project exported.
        ImportError: if TensorFlow is not installed.
    """

    def __init__(self, path: str | PathLike[str] | SavedModelRuntime) -> None:
        super().__init__(_runtime(path, "classify"))


def _runtime(path: str | PathLike[str] | SavedModelRuntime, required: str) -> SavedModelRuntime:
    """Return the runtime of a SavedModel, which must have a signature.

    Raises:
        ValueError: if the SavedModel does not load, or lacks the signature.
    """
    runtime = path if isinstance(path, SavedModelRuntime) else SavedModelRuntime(path)
    runtime.check_signature(required)
    return runtime
