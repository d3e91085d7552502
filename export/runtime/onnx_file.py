"""An ONNX file of an export: its sessions, its metadata, and the class that reads it."""

import functools
import threading
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime

from tfk_transformer.atomic_write import Identity, path_identity
from tfk_transformer.export.file_names import (
    CLASSIFY_FILE,
    SCORE_FILE,
    TRANSLATE_FILE,
    external_weights,
)
from tfk_transformer.export.runtime.sessions import open_session, read_metadata

if TYPE_CHECKING:
    from tfk_transformer.export.runtime.text_session import TextSession

# The functions of the file that each class reads.
READERS = {
    "OnnxTranslator": ("translate",),
    "OnnxClassifier": ("classify",),
    "OnnxScorer": ("score_ids", "attention", "score_and_attend"),
    "OnnxStreamer": ("decoder_step",),
}


LIGHT_FILE = 10_000_000  # bytes of a file whose operators are too short for several threads
HEAVY_FILE = 50_000_000  # bytes of a file that is worth a single session for all batches


class OnnxFile:
    """An ONNX file, with sessions for numbers of threads and for small or large batches.

    Args:
        path: the file.
        text_operators: whether the file has operators of onnxruntime-extensions.
        export: the file of the same export that was opened first. Default: this file.
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
        self._sessions: dict[tuple[int, bool], Any] = {}
        self._opening = threading.Lock()

    def session(self, threads: int, small: bool) -> "onnxruntime.InferenceSession | TextSession":
        """Return the session with this number of threads for small or for large batches.

        A small batch has at most `MAX_SMALL_BATCH` hypotheses. Sessions for small batches do not
        use onnxruntime's memory arena: it has a single lock, and the short operators of small
        batches allocate often. Without the arena, concurrent small batches take 0.7 to 0.9 of the
        time. Large tensors need the arena, since otherwise the system maps their pages again for
        each tensor. At 128 hypotheses, the time is the same with and without the arena.

        Each session has its own packed copy of the weights. In heavy files, small batches take the
        same time with the arena, so all batches share a session. In light files, a second thread
        does not make a small batch faster.

        Raises:
            ValueError: if the file does not load, or its folder has been replaced.
        """
        arena = not small or self._bytes >= HEAVY_FILE
        if small and self._bytes < LIGHT_FILE:
            threads = 1
        key = (threads, arena)
        with self._opening:
            if key not in self._sessions:
                session = open_session(self.path, threads, self._text_operators, arena)
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
        """A session that is already open."""
        return next(iter(self._sessions.values()))

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """The metadata that the export wrote. A session must be open.

        Raises:
            ValueError: if the file has no metadata of this project.
        """
        return read_metadata(self._opened, self.path)

    def metadata_text(self, name: str) -> str | None:
        """Return the metadata text of this name, or None. A session must be open."""
        text: str | None = self._opened.get_modelmeta().custom_metadata_map.get(name)
        return text

    @functools.cached_property
    def inputs(self) -> dict[str, Sequence[Any]]:
        """The shapes of the inputs by name. A session must be open."""
        return {value.name: value.shape for value in self._opened.get_inputs()}

    @functools.cached_property
    def outputs(self) -> list[str]:
        """The names of the outputs. A session must be open."""
        return [value.name for value in self._opened.get_outputs()]

    @property
    def reader(self) -> str:
        """The name of the class that reads the file. A session must be open."""
        if {"source_ids", "target_ids"} <= set(self.inputs):
            return "OnnxScorer"
        if self.metadata["config"].get("architecture") == "encoder":
            return "OnnxClassifier"
        return "OnnxTranslator"

    def check(self, reader: str) -> None:
        """Refuse a file that is not for the class `reader`. A session must be open.

        Raises:
            ValueError: names the class or the file to use instead.
        """
        if reader == "OnnxStreamer":
            return
        if reader == "OnnxScorer" and self.reader != "OnnxScorer":
            raise ValueError(
                f"ONNX: expected a file that scores, got {self.path}, which does not score; "
                f"use {SCORE_FILE} of the same export."
            )
        if reader != self.reader:
            raise ValueError(
                f"ONNX: expected a file that {reader} reads, got {self.path}, which is for "
                f"{self.reader}; open it with {self.reader}."
            )
        if reader != "OnnxScorer" and "text" not in self.inputs:
            file = f"{TRANSLATE_FILE}, or {SCORE_FILE} to score pairs,"
            if reader == "OnnxClassifier":
                file = CLASSIFY_FILE
            raise ValueError(
                f"ONNX: expected a file that takes text, got {self.path}, which takes ids; use "
                f"{file} of the same export."
            )
