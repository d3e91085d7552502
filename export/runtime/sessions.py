"""Open ONNX files in onnxruntime, with threads and a memory arena that suit the batches."""

import ctypes
import importlib.util
import os
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import onnxruntime

from tfk_transformer.config.json_text import parse_json_object
from tfk_transformer.config.search_settings import are_rules
from tfk_transformer.export.file_names import CLASSIFY_FILE, SCORE_FILE, TRANSLATE_FILE
from tfk_transformer.runtime_environment import usable_processors

METADATA = "tfk_transformer"  # the key of the metadata that the export writes into a file
MAX_SMALL_BATCH = 64  # the most hypotheses of a small batch; see `Sessions.open`


class OnnxFile:
    """An ONNX file of this project that takes text.

    Args:
        path: the file.
        threads: the number of threads, which one text or several batches at the same time share.
            Default: the number of processors.

    Raises:
        ValueError: if the file is missing, does not load or was not exported by this project, or
            `threads` is less than 1.
    """

    def __init__(self, path: str | PathLike[str], threads: int | None = None) -> None:
        _check_threads(threads)
        self.path = Path(path)
        self.threads = threads or usable_processors()
        self._threads_argument = threads
        self._sessions = Sessions(path, text_operators=True)
        session, _ = self.session(texts=1, small=True)
        self.metadata = read_metadata(session, path)
        self._inputs = [value.name for value in session.get_inputs()]
        self.max_length: int = self.metadata["config"]["max_length"]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the threads: the file is opened again where it is unpickled."""
        return OnnxFile, (self.path.absolute(), self._threads_argument)

    @property
    def reader(self) -> str:
        """The name of the class that reads the file."""
        if {"source_ids", "target_ids"} <= set(self._inputs):
            return "OnnxScorer"
        if self.metadata["config"].get("architecture") == "encoder":
            return "OnnxClassifier"
        return "OnnxTranslator"

    def check(self, reader: str) -> None:
        """Refuse a file for another class than `reader`, and a file that takes ids.

        Raises:
            ValueError: with the class or the file to use instead.
        """
        if reader != self.reader:
            raise ValueError(
                f"ONNX: expected a file that {reader} reads, got {self.path}, which is for "
                f"{self.reader}; open it with {self.reader}."
            )
        if "text" not in self._inputs:
            file = f"{TRANSLATE_FILE}, or {SCORE_FILE} to score pairs,"
            if reader == "OnnxClassifier":
                file = CLASSIFY_FILE
            raise ValueError(
                f"ONNX: expected a file that takes text, got {self.path}, which takes ids; use "
                f"{file} of the same export."
            )

    def session(self, texts: int, small: bool = False) -> tuple[onnxruntime.InferenceSession, int]:
        """Return the session for this number of texts, and the number of batches that run at the
        same time.

        The short operators of a decoding step spend much of their time waiting for each other's
        threads: batches that run at the same time, each on one thread, take half to four fifths of
        the time. With one text, its operators share the threads.
        """
        concurrency = 1 if texts < 2 else self.threads
        return self._sessions.open(self.threads // concurrency, small or texts < 2), concurrency


def open_onnx_file(
    file: "str | PathLike[str] | OnnxFile", threads: int | None, reader: str
) -> OnnxFile:
    """Return an ONNX file for a class, after opening it if necessary; see `OnnxFile`.

    Raises:
        ValueError: if the file does not open, or is not for the class `reader`.
    """
    open_file = file if isinstance(file, OnnxFile) else OnnxFile(file, threads)
    open_file.check(reader)
    return open_file


def are_small(texts: int, batch_size: int, beam_size: int) -> bool:
    """Return whether the batches of a search over texts are small; see `Sessions.open`."""
    return min(texts, batch_size) * beam_size <= MAX_SMALL_BATCH


class Sessions:
    """The sessions of an ONNX file, one for each number of threads and each batch size class.

    Args:
        path: the file.
        text_operators: whether the file needs the operators of onnxruntime-extensions.
    """

    def __init__(self, path: str | PathLike[str], text_operators: bool = False) -> None:
        self._path = path
        self._text_operators = text_operators
        self._sessions: dict[tuple[int, bool], onnxruntime.InferenceSession] = {}

    def open(self, threads: int, small: bool) -> onnxruntime.InferenceSession:
        """Return the session with this number of threads.

        It is for batches of at most `MAX_SMALL_BATCH` hypotheses if `small`, otherwise for larger
        batches. onnxruntime's memory arena has one lock, and the short operators of small batches
        allocate all the time: without the arena, batches at the same time take 0.7 to 0.9 of the
        time. Large tensors need the arena, since otherwise the system maps their pages again for
        each tensor. At 128 hypotheses both take the same time.
        """
        key = (threads, small)
        if key not in self._sessions:
            self._sessions[key] = open_session(
                self._path, threads, self._text_operators, arena=not small
            )
        return self._sessions[key]


def _check_threads(threads: int | None) -> None:
    if threads is not None and threads < 1:
        raise ValueError(
            "threads: expected at least 1, or None for as many as there are processors, got "
            f"{threads}."
        )


def open_session(
    path: str | PathLike[str],
    threads: int | None = None,
    text_operators: bool = False,
    arena: bool = True,
) -> onnxruntime.InferenceSession:
    """Open an ONNX file on the CPU.

    Args:
        path: the file.
        threads: threads inside operators. Default: the number of processors.
        text_operators: whether the file needs the operators of onnxruntime-extensions.
        arena: whether memory comes from onnxruntime's arena, which does not return it, or from the
            system.

    Raises:
        ValueError: if the file is missing, onnxruntime does not load it, or `threads` is less than
            1.
        ImportError: if the file needs onnxruntime-extensions, which is not installed.
    """
    _check_threads(threads)
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"ONNX: expected a file, got {path}, which is not there.")
    options = onnxruntime.SessionOptions()
    if text_operators:
        options.register_custom_ops_library(text_operators_library())
    options.log_severity_level = 4  # errors are raised as exceptions
    options.enable_cpu_mem_arena = arena
    if threads:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no other common base class
        raise ValueError(f"ONNX: {path} does not load: {str(error).splitlines()[0]}") from None


def text_operators_library() -> str:
    """Return the path of onnxruntime-extensions' library, and load the library so that it works
    with TensorFlow in one process.

    TensorFlow makes its symbols global, including the symbols of protobuf. A library with protobuf
    that is loaded later calls TensorFlow's copy and crashes, unless the library is first bound to
    its own symbols.

    The package is located without importing it, since it imports onnx, torch and transformers if
    they are installed. That takes seconds, and the operators do not need them.
    """
    spec = importlib.util.find_spec("onnxruntime_extensions")
    if spec is None or spec.origin is None:
        raise ImportError(
            "a file that takes text needs onnxruntime-extensions: pip install "
            "onnxruntime-extensions"
        )
    folder = Path(spec.origin).parent
    libraries = [*folder.glob("_extensions_pydll*.so"), *folder.glob("_extensions_pydll*.pyd")]
    library = next(iter(libraries), None)
    if library is None:  # a version with other files
        import onnxruntime_extensions

        library = Path(onnxruntime_extensions.get_library_path())
    elif hasattr(os, "RTLD_DEEPBIND"):
        ctypes.CDLL(str(library), os.RTLD_NOW | os.RTLD_DEEPBIND)
    return str(library)


def read_metadata(
    session: onnxruntime.InferenceSession, path: str | PathLike[str]
) -> dict[str, Any]:
    """Return the metadata that the export wrote into a file.

    Raises:
        ValueError: if the file has no metadata of this project.
    """
    text = session.get_modelmeta().custom_metadata_map.get(METADATA)
    if text is None:
        raise ValueError(
            f"ONNX: expected a file that tfk-transformer exported, got {path}, which has no "
            "metadata of it."
        )
    return parse_metadata(text, path)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


# The checks of the values in the metadata, by name.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "config": lambda value: (
        isinstance(value, dict) and type(value.get("max_length")) is int and value["max_length"] > 0
    ),
    "search": are_rules,
    "labels": _are_texts,
    "pieces": _are_texts,
}


def parse_metadata(text: str, path: str | PathLike[str]) -> dict[str, Any]:
    """Return the values of a file's metadata. The text is not trusted.

    Raises:
        ValueError: if the text is not a JSON object, or a value has another form than in an export.
    """
    metadata = parse_json_object(text, f"ONNX: the metadata of {path}")
    broken = [
        name
        for name, is_valid in _CHECKS.items()
        if name in metadata and not is_valid(metadata[name])
    ]
    if broken or "config" not in metadata:
        raise ValueError(
            f"ONNX: expected the metadata of an export in {path}, got another form of "
            f"{', '.join(broken) or 'config'}."
        )
    return metadata


def required(metadata: Mapping[str, Any], name: str, path: str | PathLike[str]) -> Any:
    """Return a required value of the metadata.

    Raises:
        ValueError: if the value is missing.
    """
    if name not in metadata:
        raise ValueError(
            f"ONNX: expected '{name}' in the metadata of {path}, got none; export the bundle again."
        )
    return metadata[name]
