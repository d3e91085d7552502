"""Open a bundle, a SavedModel or an ONNX file. Only bundles and SavedModels load TensorFlow."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from tfk_transformer.atomic_write import read_unchanged
from tfk_transformer.export.file_names import SCORE_FILE
from tfk_transformer.export.model_paths import model_kind, newest_model, unexpected_path
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.base_translator import BaseTranslator

if TYPE_CHECKING:
    from tfk_transformer.pipelines.text_classifier import TextClassifier
    from tfk_transformer.pipelines.translator import Translator


def load(
    path: str | PathLike[str], *, threads: int | None = None
) -> BaseTranslator | BaseClassifier:
    """Open a bundle, a SavedModel folder or an exported ONNX file.

    An ONNX file is `translate.onnx`, `translate.int8.onnx`, `classify.onnx` or `score.onnx`. In a
    folder of versions, as TensorFlow Serving reads it, the SavedModel of the newest version is
    opened. If the model is replaced meanwhile, the new one is opened.

    Args:
        path: the file or folder.
        threads: the number of threads of an ONNX file, see `OnnxTranslator`. Default: the number of
            processors.

    Returns:
        A translator or a classifier. All translators have the same methods and arguments, and so
        do all classifiers.

    Raises:
        ValueError: if `path` does not exist or was not written by this project, or if `threads` is
            not None and the model is not an ONNX file.
        ImportError: if a bundle or a SavedModel is opened and TensorFlow is not installed.
    """
    return read_unchanged(path, lambda: _load(newest_model(path), threads))


def _load(path: Path, threads: int | None) -> BaseTranslator | BaseClassifier:
    kind = model_kind(path)
    if kind == "ONNX":
        return _open_onnx(path, threads)
    if kind not in ("SavedModel", "bundle"):
        raise unexpected_path("MODEL", path)
    if threads is not None:
        raise ValueError(
            f"threads: expected None for {path}, which TensorFlow runs, got {threads}; call "
            "tf.config.threading.set_intra_op_parallelism_threads before TensorFlow runs anything."
        )
    return _open_saved_model(path) if kind == "SavedModel" else open_bundle(path)


def _open_onnx(path: Path, threads: int | None) -> BaseTranslator | BaseClassifier:
    from tfk_transformer.export.runtime.onnx_readers import (
        OnnxClassifier,
        OnnxScorer,
        OnnxTranslator,
    )
    from tfk_transformer.export.runtime.onnx_runtime import OnnxRuntime

    if path.name == SCORE_FILE:
        return OnnxScorer(path, threads)
    runtime = OnnxRuntime(path, threads)
    if runtime.reader == "OnnxScorer":
        return OnnxScorer(path, threads)
    return (
        OnnxClassifier(runtime) if runtime.reader == "OnnxClassifier" else OnnxTranslator(runtime)
    )


def _open_saved_model(path: Path) -> BaseTranslator | BaseClassifier:
    from tfk_transformer.export.runtime.saved_model_readers import (
        SavedModelClassifier,
        SavedModelTranslator,
    )
    from tfk_transformer.export.runtime.saved_model_runtime import SavedModelRuntime

    runtime = SavedModelRuntime(path)
    return SavedModelClassifier(runtime) if runtime.classifies else SavedModelTranslator(runtime)


def open_bundle(path: str | PathLike[str]) -> "Translator | TextClassifier":
    """Open a bundle: a `Translator` or a `TextClassifier`, depending on its configuration.

    Raises:
        ValueError: if the folder is not a bundle, or files are missing or broken.
        ImportError: if TensorFlow is not installed.
    """
    try:
        from tfk_transformer.pipelines.bundle import CLASSIFIER, bundle_type_of
        from tfk_transformer.pipelines.text_classifier import TextClassifier
        from tfk_transformer.pipelines.translator import Translator
    except ModuleNotFoundError as error:
        if error.name not in ("keras", "tensorflow"):
            raise
        raise ImportError(
            'a bundle needs TensorFlow: pip install "tfk-transformer[tensorflow]"'
        ) from None
    return (TextClassifier if bundle_type_of(path) == CLASSIFIER else Translator).load(path)
