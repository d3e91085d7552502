"""Find and open the model at a path. Only opening a bundle or a SavedModel loads TensorFlow."""

import contextlib
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from tfk_transformer.atomic_write import read_unchanged
from tfk_transformer.config.small_files import read_json_object
from tfk_transformer.export import file_names
from tfk_transformer.export.to_saved_model.serving import newest_version
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.base_translator import BaseTranslator
from tfk_transformer.runtime_environment import install_line

if TYPE_CHECKING:
    from tfk_transformer.pipelines.text_classifier import TextClassifier
    from tfk_transformer.pipelines.translator import Translator

MODEL_PATHS = (
    "a bundle (with config.json), a SavedModel folder (with saved_model.pb) or an .onnx file"
)
LOADABLE = (
    file_names.SAVED_MODEL_FOLDER,
    file_names.TRANSLATE_FILE,
    file_names.TRANSLATE_INT8_FILE,
    file_names.CLASSIFY_FILE,
    file_names.SCORE_FILE,
)


def load(
    path: str | PathLike[str], *, threads: int | None = None
) -> BaseTranslator | BaseClassifier:
    """Open a bundle, a SavedModel folder or an exported ONNX file.

    An ONNX file is `translate.onnx`, `translate.int8.onnx`, `classify.onnx`, `score.onnx`, which
    only scores, or `decoder_step.onnx`, which streams with the other files of its folder. In a
    folder of versions, as TensorFlow Serving reads it, the SavedModel of the newest version is
    opened. If the model is replaced meanwhile, the new one is opened.

    Args:
        path: the file or folder.
        threads: the number of threads of an ONNX file, shared by the operators of one text or by
            concurrent batches. Default: the number of processors.

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
        from tfk_transformer.export.runtime import onnx_runtime

        if path.name == file_names.DECODER_STEP_FILE:
            return onnx_runtime.OnnxStreamer(path.parent, threads)
        if path.name != file_names.SCORE_FILE:
            runtime = onnx_runtime.OnnxRuntime(path, threads)
            if runtime.reader == "OnnxClassifier":
                return onnx_runtime.OnnxClassifier(runtime)
            if runtime.reader == "OnnxTranslator":
                return onnx_runtime.OnnxTranslator(runtime)
        return onnx_runtime.OnnxScorer(path, threads)
    if kind not in ("SavedModel", "bundle"):
        raise unexpected_path("MODEL", path)
    if threads is not None:
        raise ValueError(
            f"threads: expected None for {path}, which TensorFlow runs, got {threads}; call "
            "tf.config.threading.set_intra_op_parallelism_threads before TensorFlow runs anything."
        )
    if kind == "bundle":
        return open_bundle(path)
    from tfk_transformer.export.runtime import saved_model_runtime

    saved_model = saved_model_runtime.SavedModelRuntime(path)
    if "classify" in saved_model.model.signatures:
        return saved_model_runtime.SavedModelClassifier(saved_model)
    return saved_model_runtime.SavedModelTranslator(saved_model)


def open_bundle(path: str | PathLike[str]) -> "Translator | TextClassifier":
    """Open a bundle: a `Translator` or a `TextClassifier`, depending on its configuration."""
    try:
        from tfk_transformer.pipelines.bundle import CLASSIFIER, reader_of
        from tfk_transformer.pipelines.text_classifier import TextClassifier
        from tfk_transformer.pipelines.translator import Translator
    except ModuleNotFoundError as error:
        if error.name not in ("keras", "tensorflow"):
            raise
        raise ImportError(f"a bundle needs TensorFlow: {install_line('tensorflow')}") from None
    return (TextClassifier if reader_of(path) == CLASSIFIER else Translator).load(path)


def model_kind(path: Path) -> str:
    """Return the kind of the file or folder at a path, such as "ONNX"; "" for other paths."""
    if path.suffix == ".onnx" or path.is_file():
        return "ONNX"
    kinds = {
        "saved_model.pb": "SavedModel",
        file_names.EXPORTED: "library",  # a folder for another library, which this project wrote
        file_names.PAGE_DESCRIPTION: "web",
    }
    for name, kind in kinds.items():
        if (path / name).is_file():
            return kind
    if not (path / "config.json").is_file():
        return ""
    if (path / "model.bin").is_file():
        return "CTranslate2"
    return "Hugging Face" if _transformers_family(path) else "bundle"


def newest_model(path: str | PathLike[str]) -> Path:
    """Return the path of the newest version in a folder of versions, or `path` itself."""
    return newest_version(path) or Path(path)


def unexpected_path(argument: str, path: Path) -> ValueError:
    """Return the error for a path that is not the path of a model; `argument` begins it."""
    if model_kind(path) == "web":
        got = f"{path}, a page for browsers and Node (docs/browser.md)"
    elif (path / "model.bin").is_file():
        got = f"{path}, a folder of CTranslate2, which ctranslate2.Translator opens"
    elif family := _transformers_family(path):
        got = (
            f"{path}, a folder of transformers ({family}), which `tfk-transformer import` converts "
            "to a bundle"
        )
    elif not path.is_dir():
        got = f"{path}, which does not exist"
    elif files := [str(path / name) for name in LOADABLE if (path / name).exists()]:
        got = f"{path}, the folder of an export; name one of its files: {', '.join(files)}"
    else:
        got = f"a folder without any of these files ({path})"
    return ValueError(f"{argument}: expected {MODEL_PATHS}, got {got}.")


def _transformers_family(path: Path) -> str:
    """Return the `model_type` in the configuration of a folder, or "" without one."""
    with contextlib.suppress(OSError, ValueError):
        return str(read_json_object(path / "config.json").get("model_type") or "")
    return ""
