"""The classes that read exported ONNX files.

They need numpy, onnxruntime and sentencepiece, but neither TensorFlow nor Keras.
"""

from os import PathLike
from pathlib import Path
from typing import Any

from tfk_transformer.export.file_names import DECODER_STEP_FILE
from tfk_transformer.export.runtime.onnx_runtime import OnnxRuntime, check_file
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.base_translator import BaseTranslator


class OnnxReader:
    """The metadata of an opened file, for all classes of this module."""

    runtime: Any  # an `OnnxRuntime`

    @property
    def metadata(self) -> dict[str, Any]:
        """The values that the export wrote into the file, by name."""
        metadata: dict[str, Any] = self.runtime.metadata
        return metadata


class OnnxTranslator(OnnxReader, BaseTranslator):
    """Translate with `translate.onnx` or `translate.int8.onnx`; see `BaseTranslator` for methods.

    Some methods need more files of the same export in the same folder. `stream` needs the files of
    the format onnx_steps. `score`, `score_tokens` and `score_ids` need `score.onnx`. `generate`
    needs `generate.onnx`. `translate` with `token_scores` or `attention` needs `score.onnx`,
    `generate.onnx` and the package sentencepiece.

    Args:
        path: the file, or an open `OnnxRuntime`.
        threads: the number of threads, shared by the operators of one text or by concurrent
            batches. Default: the number of processors.

    Raises:
        ValueError: if the file is not a translator over text that this project exported, or
            `threads` is less than 1.
    """

    def __init__(self, path: str | PathLike[str] | OnnxRuntime, threads: int | None = None) -> None:
        super().__init__(_runtime(path, threads, "OnnxTranslator"))
        _ = self.runtime.rules  # raises if the file has no rules


class OnnxScorer(OnnxReader, BaseTranslator):
    """Score with `score.onnx`, which does not translate; see `BaseTranslator` for methods.

    Args:
        path: the file.
        threads: the number of threads inside operators. Default: the number of processors.

    Raises:
        ValueError: if the file is not an ONNX file that this project exported for scoring.
    """

    def __init__(self, path: str | PathLike[str], threads: int | None = None) -> None:
        super().__init__(OnnxRuntime(path, threads, "OnnxScorer"))


class OnnxStreamer(OnnxReader, BaseTranslator):
    """Stream translations with `tokenizer.onnx`, `encoder.onnx` and `decoder_step.onnx`.

    The other methods of `BaseTranslator` need their files in the same folder.

    Args:
        folder: the folder of the files.
        threads: the number of threads inside operators. Default: the number of processors.

    Raises:
        ValueError: if a file is missing or was not exported by this project.
    """

    def __init__(self, folder: str | PathLike[str], threads: int | None = None) -> None:
        path = Path(folder) / DECODER_STEP_FILE
        check_file("stream", path, path)
        super().__init__(OnnxRuntime(path, threads, "OnnxStreamer"))


class OnnxClassifier(OnnxReader, BaseClassifier):
    """Classify with `classify.onnx`; see `BaseClassifier` for methods.

    Args:
        path: the file, or an open `OnnxRuntime`.
        threads: the number of threads, shared by the operators of one text or by concurrent
            batches. Default: the number of processors.

    Raises:
        ValueError: if the file is not a classifier over text that this project exported, or
            `threads` is less than 1.
    """

    def __init__(self, path: str | PathLike[str] | OnnxRuntime, threads: int | None = None) -> None:
        super().__init__(_runtime(path, threads, "OnnxClassifier"))
        _ = self.runtime.labels  # raises if the file has no labels


def _runtime(
    path: str | PathLike[str] | OnnxRuntime, threads: int | None, reader: str
) -> OnnxRuntime:
    """Return the runtime of a file for a class.

    Raises:
        ValueError: if the file does not open, or is not for the class.
    """
    if not isinstance(path, OnnxRuntime):
        return OnnxRuntime(path, threads, reader)
    path.check(reader)
    return path
