"""Open a bundle, a SavedModel or an ONNX file. Only bundles and SavedModels load TensorFlow."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tfk_transformer.config.json_text import parse_json_object
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
    folder of versions, as TensorFlow Serving reads it, the SavedModel of the newest version is
    opened.

    Args:
        path: the file or folder.
        threads: the number of threads of an ONNX file, see `OnnxTranslator`. Default: the number of
            processors.

    Returns:
        A translator or a classifier. All have the methods of `LoadedModel` with the same arguments.
        A method that the model does not support raises ValueError with the reason.

    Raises:
        ValueError: if `path` does not exist or was not written by this project, or if `threads` is
            not None and the model is not an ONNX file.
        ImportError: if a bundle or a SavedModel is opened and TensorFlow is not installed.
    """
    format, path = _find_model(path)
    if format == "ONNX":
        return _open_onnx(path, threads)
    if threads is not None:
        raise ValueError(
            f"threads: expected None for {path}, which TensorFlow runs, got {threads}; call "
            "tf.config.threading.set_intra_op_parallelism_threads before TensorFlow runs anything."
        )
    return _open_saved_model(path) if format == "SavedModel" else open_bundle(path)


def _find_model(path: str | PathLike[str]) -> tuple[Literal["ONNX", "SavedModel", "bundle"], Path]:
    """Return the format of a model by its files, and its path.

    In a folder of versions, the path is the path of the newest version.

    Raises:
        ValueError: if `path` is not the path of a model.
    """
    path = Path(path)
    if path.suffix == ".onnx" or path.is_file():
        return "ONNX", path
    path = newest_version(path) or path
    if (path / "saved_model.pb").is_file():
        return "SavedModel", path
    if description := describe_foreign_folder(path):
        raise ValueError(f"MODEL: expected {MODEL_PATHS}, got {path}, {description}.")
    if (path / "config.json").is_file():
        return "bundle", path
    raise ValueError(f"MODEL: expected {MODEL_PATHS}, got {_describe_other(path)}.")


def describe_foreign_folder(path: Path) -> str | None:
    """Describe a folder that other programs open, for errors; return None for other folders.

    Args:
        path: the path of the folder, which need not exist.
    """
    if (path / file_names.PAGE_DESCRIPTION).is_file():
        return "a page, which browsers open and which translates in Node (docs/browser.md)"
    if not (path / "config.json").is_file():
        return None
    if (path / "model.bin").is_file():
        return "a folder of CTranslate2, which ctranslate2.Translator opens"
    try:
        config = parse_json_object((path / "config.json").read_bytes(), "config.json")
        family = config.get("model_type")
    except ValueError:
        return None
    if not family:
        return None
    return f"a folder of transformers ({family}), of which `tfk-transformer import` makes a bundle"


def _open_onnx(path: Path, threads: int | None) -> LoadedModel:
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


def _open_saved_model(path: Path) -> LoadedModel:
    from tfk_transformer.export.runtime.saved_model_classifier import SavedModelClassifier
    from tfk_transformer.export.runtime.saved_model_files import read_saved_model
    from tfk_transformer.export.runtime.saved_model_translator import SavedModelTranslator

    model = read_saved_model(path)
    if "classify" in model.signatures:
        return SavedModelClassifier(path, model)
    return SavedModelTranslator(path, model)


def _describe_other(path: Path) -> str:
    """Describe a path that is not the path of a model, for errors."""
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


def open_translator(path: str | PathLike[str]) -> TranslatorProtocol:
    """Open a model as `load` does, and refuse a classifier.

    Raises:
        ValueError: if `path` is not the path of a translator.
    """
    format, path = _find_model(path)
    if format == "ONNX":
        from tfk_transformer.export.runtime.onnx_translator import OnnxTranslator

        return OnnxTranslator(path)
    if format == "SavedModel":
        from tfk_transformer.export.runtime.saved_model_translator import SavedModelTranslator

        return SavedModelTranslator(path)
    from tfk_transformer.pipelines.translator import Translator

    return Translator.load(path)
