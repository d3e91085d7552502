"""Stream translations from exported ONNX files. Needs numpy, onnxruntime and
onnxruntime-extensions, and never TensorFlow or Keras.
"""

from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from tfk_transformer.config.search_settings import Rules, resolve_settings, setting_arrays
from tfk_transformer.export.file_names import DECODER_STEP_FILE, ENCODER_FILE, TOKENIZER_FILE
from tfk_transformer.export.runtime.sessions import open_session, read_metadata, required
from tfk_transformer.inference.streaming import StepModel, Tensors, empty_cache, stream_text


class OnnxStreamer:
    """Stream translations with `tokenizer.onnx`, `encoder.onnx` and `decoder_step.onnx`.

    Args:
        folder: the folder of the files.
        threads: threads inside operators. Default: the number of processors.

    Raises:
        ValueError: if a file is missing or was not exported by this project.
    """

    def __init__(self, folder: str | PathLike[str], threads: int | None = None) -> None:
        self._folder = Path(folder)
        self._threads = threads
        path = _required_file(folder, DECODER_STEP_FILE)
        step = open_session(path, threads)
        self.metadata = read_metadata(step, path)
        self._rules: Rules = required(self.metadata, "search", path)
        tokenize = _tokenizer(_required_file(folder, TOKENIZER_FILE))
        encode = None
        if self.metadata["config"].get("architecture") != "decoder":
            encode = _encoder(_required_file(folder, ENCODER_FILE), threads)
        cache_shapes = {value.name: value.shape for value in step.get_inputs()}
        self.steps = StepModel(
            tokenize=tokenize,
            encode=encode,
            first_cache=lambda rows: empty_cache(cache_shapes, rows),
            step=_by_name(step),
            pieces=required(self.metadata, "pieces", path),
            max_length=self.metadata["config"]["max_length"],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder and the threads: the files are opened again when unpickled."""
        return type(self), (self._folder.absolute(), self._threads)

    def stream(self, text: str, **settings: float) -> Iterator[str]:
        """Translate one text and yield parts of its translation as they are decoded; see
        `TranslatorProtocol.stream`.
        """
        resolved = resolve_settings({"beam_size": 1, **settings}, self._rules)
        return stream_text(self.steps, text, setting_arrays(resolved, self._rules))


def _required_file(folder: str | PathLike[str], name: str) -> Path:
    path = Path(folder) / name
    if not path.is_file():
        raise ValueError(
            f"stream: expected {name} in {folder}, which is not there; export the bundle with the "
            "format onnx_steps."
        )
    return path


def _tokenizer(path: Path) -> Callable[[str], np.ndarray]:
    session = open_session(path, text_operators=True)

    def tokenize(text: str) -> np.ndarray:
        return session.run(["source_ids"], {"text": np.array([text], object)})[0]

    return tokenize


def _encoder(path: Path, threads: int | None) -> Callable[[np.ndarray], Tensors]:
    encode = _by_name(open_session(path, threads))
    return lambda source_ids: encode({"source_ids": source_ids})


def _by_name(session: onnxruntime.InferenceSession) -> Callable[[Tensors], Tensors]:
    """Return a session as a function from arrays by name to arrays by name.

    The logits are left out, since streaming does not read them.
    """
    names = [value.name for value in session.get_outputs() if value.name != "logits"]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))
