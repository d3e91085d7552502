"""Open a model of any kind, told apart by its files. Only bundles and SavedModels load
TensorFlow.
"""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tfk_transformer.config.json_text import parsed_object
from tfk_transformer.export import file_names
from tfk_transformer.export.to_saved_model.serving import newest_version
from tfk_transformer.inference.interface import LoadedModel, TranslatorProtocol

if TYPE_CHECKING:
    from tfk_transformer.pipelines.text_classifier import TextClassifier
    from tfk_transformer.pipelines.translator import Translator

MODEL_PATHS = (
    "a bundle (with config.json), a SavedModel folder (with saved_model.pb) or an .onnx file"
)
LOADABLE = (
    file_names.SAVED_MODEL_FOLDER,
    file_names.TRANSLATE_FILE,
    file_names.with_profile(file_names.TRANSLATE_FILE, "int8"),
    file_names.CLASSIFY_FILE,
    file_names.SCORE_FILE,
)


def load(path: str | PathLike[str], *, threads: int | None = None) -> LoadedModel:
    """Open a bundle, a SavedModel folder or an exported ONNX file.

    An ONNX file is `translate.onnx`, `translate.int8.onnx`, `classify.onnx` or `score.onnx`. In a
    folder of
    versions, as TensorFlow Serving reads it, the SavedModel of the newest version is opened.

    Args:
        path: the file or folder.
        threads: the number of threads of an ONNX file, see `OnnxTranslator`. Default: the number of
            processors.

    Returns:
        A translator or a classifier. All have the methods of `LoadedModel` with the same arguments.
        A method that the model does not support raises ValueError with the reason.

    Raises:
        ValueError: if there is nothing at `path`, nothing of this project, or `threads` is given
            for another kind of model.
        ImportError: if a bundle or a SavedModel is opened and TensorFlow is not installed.
    """
    kind, path = _kind_of(path)
    if kind == "ONNX":
        return _onnx(path, threads)
    if threads is not None:
        raise ValueError(
            f"threads: expected None for {path}, which TensorFlow runs, got {threads}; call "
            "tf.config.threading.set_intra_op_parallelism_threads before TensorFlow runs anything."
        )
    return _saved_model(path) if kind == "SavedModel" else open_bundle(path)


def _kind_of(path: str | PathLike[str]) -> tuple[Literal["ONNX", "SavedModel", "bundle"], Path]:
    """Return the kind of a model by its files, and its path: of a folder of versions, that of the
    newest.

    Raises:
        ValueError: if there is no model at the path.
    """
    path = Path(path)
    if path.suffix == ".onnx" or path.is_file():
        return "ONNX", path
    path = newest_version(path) or path
    if (path / "saved_model.pb").is_file():
        return "SavedModel", path
    if program := opened_elsewhere(path):
        raise ValueError(f"MODEL: expected {MODEL_PATHS}, got {path}, {program}.")
    if (path / "config.json").is_file():
        return "bundle", path
    raise ValueError(f"MODEL: expected {MODEL_PATHS}, got {_what_is(path)}.")


def opened_elsewhere(path: Path) -> str | None:
    """Return what a folder is that other programs open, and which; None if it is none.

    Args:
        path: a folder, or a path without one.
    """
    if (path / file_names.PAGE_DESCRIPTION).is_file():
        return "a page, which browsers open and which translates in Node (docs/browser.md)"
    if not (path / "config.json").is_file():
        return None
    if (path / "model.bin").is_file():
        return "a folder of CTranslate2, which ctranslate2.Translator opens"
    try:
        family = parsed_object((path / "config.json").read_bytes(), "config.json").get("model_type")
    except ValueError:
        return None
    return (
        f"a folder of transformers ({family}), of which `tfk-transformer import` makes a bundle"
        if family
        else None
    )


def _onnx(path: Path, threads: int | None) -> LoadedModel:
    from tfk_transformer.export.runtime.onnx_classifier import OnnxClassifier
    from tfk_transformer.export.runtime.onnx_scorer import OnnxScorer
    from tfk_transformer.export.runtime.onnx_translator import OnnxTranslator
    from tfk_transformer.export.runtime.sessions import OnnxFile

    if path.name == file_names.SCORE_FILE:
        return OnnxScorer(path, threads)
    file = OnnxFile(path, threads)
    if file.reader == "OnnxScorer":
        return OnnxScorer(path, threads)
    return OnnxClassifier(file) if file.reader == "OnnxClassifier" else OnnxTranslator(file)


def _saved_model(path: Path) -> LoadedModel:
    from tfk_transformer.export.runtime.saved_model_classifier import SavedModelClassifier
    from tfk_transformer.export.runtime.saved_model_files import read_saved_model
    from tfk_transformer.export.runtime.saved_model_translator import SavedModelTranslator

    model = read_saved_model(path)
    return (SavedModelClassifier if "classify" in model.signatures else SavedModelTranslator)(
        path, model
    )


def _what_is(path: Path) -> str:
    """Describe a path that is no model."""
    if not path.is_dir():
        return f"{path}, which is not there"
    if files := [str(path / name) for name in LOADABLE if (path / name).exists()]:
        return f"{path}, the folder of an export; name one of its files: {', '.join(files)}"
    return f"a folder without any of these files ({path})"


def open_bundle(path: str | PathLike[str]) -> "Translator | TextClassifier":
    """Open a bundle: a `Translator` or a `TextClassifier`, depending on its configuration.

    Raises:
        ValueError: if the folder is not a bundle, or files are missing or broken.
        ImportError: if TensorFlow is not installed.
    """
    try:
        from tfk_transformer.pipelines.bundle import CLASSIFIER, kind_of
        from tfk_transformer.pipelines.text_classifier import TextClassifier
        from tfk_transformer.pipelines.translator import Translator
    except ModuleNotFoundError as error:
        if error.name not in ("keras", "tensorflow"):
            raise
        raise ImportError(
            'a bundle needs TensorFlow: pip install "tfk-transformer[tensorflow]"'
        ) from None
    return (TextClassifier if kind_of(path) == CLASSIFIER else Translator).load(path)


def open_translator(path: str | PathLike[str]) -> TranslatorProtocol:
    """Open a model as `load` does, and refuse a classifier.

    Raises:
        ValueError: if there is nothing at `path` that translates.
    """
    kind, path = _kind_of(path)
    if kind == "ONNX":
        from tfk_transformer.export.runtime.onnx_translator import OnnxTranslator

        return OnnxTranslator(path)
    if kind == "SavedModel":
        from tfk_transformer.export.runtime.saved_model_translator import SavedModelTranslator

        return SavedModelTranslator(path)
    from tfk_transformer.pipelines.translator import Translator

    return Translator.load(path)
