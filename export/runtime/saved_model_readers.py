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
        runtime = path if isinstance(path, SavedModelRuntime) else SavedModelRuntime(path)
        runtime.check_signature("translate")
        super().__init__(runtime)


class SavedModelClassifier(BaseClassifier):
    """Classify with an exported SavedModel; see `BaseClassifier` for methods.

    Args:
        path: its folder, or an open `SavedModelRuntime`.

    Raises:
        ValueError: if the folder is not the SavedModel of a classifier that this project exported.
        ImportError: if TensorFlow is not installed.
    """

    def __init__(self, path: str | PathLike[str] | SavedModelRuntime) -> None:
        runtime = path if isinstance(path, SavedModelRuntime) else SavedModelRuntime(path)
        runtime.check_signature("classify")
        super().__init__(runtime)
