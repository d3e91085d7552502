"""Open ONNX files in onnxruntime, and read their metadata."""

import ctypes
import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime

from tfk_transformer.atomic_write import Identity, path_identity
from tfk_transformer.config.search_settings import are_rules
from tfk_transformer.config.small_files import one_line_error, parse_json_object
from tfk_transformer.export.file_names import external_weights
from tfk_transformer.export.runtime.protobuf import graph_with_external_weights
from tfk_transformer.text.calibration import CONFIDENCE, is_calibration

if TYPE_CHECKING:
    from tfk_transformer.export.runtime.text_session import TextSession

# The option of onnxruntime for the folder that contains the external weights of a model in memory.
WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
SPINNING = "session.intra_op.allow_spinning"
PROVIDERS = ["CPUExecutionProvider"]
INT8_VERSION = (1, 25)  # earlier ones multiply 8-bit integers wrongly on processors with AMX
METADATA = "tfk_transformer"  # the key of the metadata that the export writes into a file
MODEL_CARD = "model_card"  # the key of the model card, which is for readers
LIGHT_FILE = 10_000_000  # bytes of a file whose operators are too short for several threads
HEAVY_FILE = 50_000_000  # bytes of a file that is worth a single session for all batches


class OnnxFile:
    """An ONNX file, with sessions for numbers of threads and for small or large batches.

    One must be open for the other methods. `export` is the file of the same export that was opened
    first. Default: this file.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        text_operators: bool = False,
        export: "OnnxFile | None" = None,
    ) -> None:
        self.path = Path(path)
        # Not a reference to itself: a file that is not used any more is closed at once, which
        # Windows requires before its folder is renamed.
        self._export: tuple[Path, Identity] = (
            export._export if export else (self.path, path_identity(self.path))
        )
        weights = self.path.with_name(external_weights(self.path.name))
        self._bytes = sum(path.stat().st_size for path in (self.path, weights) if path.is_file())
        self._text_operators = text_operators
        self._spins = export is None
        self._sessions: dict[tuple[int, bool], Any] = {}
        self._opening = threading.Lock()

    def session(self, threads: int, small: bool) -> "onnxruntime.InferenceSession | TextSession":
        """Return the session with this number of threads for small or for large batches.

        Sessions for small batches do not use onnxruntime's memory arena: it has a single lock, and
        the short operators of small batches allocate often. Without the arena, concurrent small
        batches take 0.7 to 0.9 of the time. Large tensors need the arena, since otherwise the
        system maps their pages again for each tensor. At 128 hypotheses, the time is the same.

        Each session has its own packed copy of the weights. In heavy files, small batches take the
        same time with the arena, so all batches share a session. In light files, a second thread
        does not make a small batch faster.

        The file that was opened first runs all steps of a search in one call, and its threads spin
        while they wait, which takes a fifth off the time of a single text. The other files run for
        each step of a stream, or rarely. Without spinning, a stream takes 0.9 of the time and 0.7
        of the processor time, and leaves the processors to others between its steps.
        """
        arena = not small or self._bytes >= HEAVY_FILE
        if small and self._bytes < LIGHT_FILE:
            threads = 1
        key = (threads, arena)
        with self._opening:
            if key not in self._sessions:
                session = open_session(self.path, threads, self._text_operators, arena, self._spins)
                path, identity = self._export
                if path_identity(path) != identity:
                    raise ValueError(
                        f"ONNX: expected the export that was opened in {self.path.parent}, got "
                        "another one, which has replaced it; open it again."
                    )
                self._sessions[key] = session
            return self._sessions[key]

    @property
    def _opened(self) -> "onnxruntime.InferenceSession | TextSession":
        return next(iter(self._sessions.values()))

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """The values that the export wrote; 8-bit weights may need a newer onnxruntime."""
        text = self.metadata_text(METADATA)
        if text is None:
            raise ValueError(
                f"ONNX: expected a file that tfk-transformer exported, got {self.path}, which has "
                "no metadata of tfk-transformer."
            )
        metadata = parse_metadata(text, self.path)
        if metadata.get("profile") == "int8":
            check_int8_version(self.path)
        return metadata

    def metadata_text(self, name: str) -> str | None:
        """Return a text in the metadata, or None."""
        return self._opened.get_modelmeta().custom_metadata_map.get(name)

    @functools.cached_property
    def inputs(self) -> dict[str, Sequence[Any]]:
        """The shapes of the inputs by name."""
        return {value.name: value.shape for value in self._opened.get_inputs()}

    @functools.cached_property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return [value.name for value in self._opened.get_outputs()]


def open_session(
    path: str | PathLike[str],
    threads: int | None = None,
    text_operators: bool = False,
    arena: bool = True,
    spins: bool = True,
) -> "onnxruntime.InferenceSession | TextSession":
    """Open an ONNX file on the CPU.

    Its weights are mapped into memory, so its bytes must not change. A new file can replace it.
    `text_operators` are those of onnxruntime-extensions. Where this package is not installed,
    SentencePiece computes them. The arena of onnxruntime keeps freed memory. Threads that spin stay
    busy while they wait.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"ONNX: expected a file, got {path}, which does not exist.")
    options = onnxruntime.SessionOptions()
    library = text_operators_library() if text_operators else None
    if library:
        options.register_custom_ops_library(library)
    options.log_severity_level = 4  # errors are raised as exceptions
    options.enable_cpu_mem_arena = arena
    options.add_session_config_entry(SPINNING, str(int(spins)))
    if threads:
        options.intra_op_num_threads = threads
    file = path.resolve()  # onnxruntime reads no weights through a symbolic link
    options.add_session_config_entry(WEIGHTS_FOLDER, str(file.parent))
    with one_line_error(f"ONNX: {path} does not load: "):
        graph = graph_with_external_weights(file)
        if text_operators and not library:
            from tfk_transformer.export.runtime.text_session import (
                TextSession,
                without_text_operators,
            )

            over_ids, text_inputs = without_text_operators(graph)
            session = onnxruntime.InferenceSession(over_ids, options, providers=PROVIDERS)
            return TextSession(session, text_inputs)
        return onnxruntime.InferenceSession(graph, options, providers=PROVIDERS)


def text_operators_library() -> str | None:
    """Load the library of onnxruntime-extensions, and return its path; None if it is not installed.

    TensorFlow makes its symbols global, including the symbols of protobuf. A library with protobuf
    that is loaded later calls TensorFlow's copy and crashes, unless the library is first bound to
    its own symbols, as here. The package is not imported, since it imports onnx, torch and
    transformers if they are installed, which takes seconds.
    """
    spec = importlib.util.find_spec("onnxruntime_extensions")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    libraries = [*folder.glob("_extensions_pydll*.so"), *folder.glob("_extensions_pydll*.pyd")]
    library = next(iter(libraries), None)
    if library is None:  # a version with different file names
        import onnxruntime_extensions

        library = Path(onnxruntime_extensions.get_library_path())
    elif hasattr(os, "RTLD_DEEPBIND"):
        ctypes.CDLL(str(library), os.RTLD_NOW | os.RTLD_DEEPBIND)
    return str(library)


def check_int8_version(name: str | PathLike[str]) -> None:
    """Refuse a version of onnxruntime that computes the 8-bit weights of `name` wrongly."""
    version = onnxruntime.__version__
    if tuple(map(int, version.split(".")[:2])) < INT8_VERSION:
        raise ValueError(
            f"ONNX: expected onnxruntime {'.'.join(map(str, INT8_VERSION))} or later for the 8-bit "
            f"weights of {name}, got {version}, which gives wrong results on some processors; "
            "run: pip install --upgrade onnxruntime"
        )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


# The checks of the values in the metadata, by name.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "config": lambda value: (
        isinstance(value, dict) and type(value.get("max_length")) is int and value["max_length"] > 0
    ),
    "search": are_rules,
    CONFIDENCE: is_calibration,
    "labels": _are_texts,
    "pieces": _are_texts,
}


def parse_metadata(text: str, path: str | PathLike[str]) -> dict[str, Any]:
    """Return the values of a file's metadata. The text is not trusted."""
    metadata = parse_json_object(text, f"ONNX: the metadata of {path}")
    checked = [(name, valid) for name, valid in _CHECKS.items() if name in metadata]
    broken = [name for name, is_valid in checked if not is_valid(metadata[name])]
    if broken or "config" not in metadata:
        raise ValueError(
            f"ONNX: expected the metadata of an export in {path}, got no valid "
            f"{', '.join(broken) or 'config'}; export the model again."
        )
    return metadata


def required(metadata: Mapping[str, Any], name: str, path: str | PathLike[str]) -> Any:
    """Return a value of the metadata, or raise a `ValueError` if it is missing."""
    if name not in metadata:
        raise ValueError(
            f"ONNX: expected '{name}' in the metadata of {path}, got none; export the bundle again."
        )
    return metadata[name]
