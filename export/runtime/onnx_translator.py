"""Translate or classify with an exported ONNX file; needs numpy, onnxruntime and onnxruntime-extensions, and never TensorFlow or Keras."""

import ctypes
import functools
import importlib.util
import json
import operator
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from tfk_transformer.inference.text_batches import (
    Classification,
    Translation,
    check_prefixes,
    check_texts,
    in_batches,
    to_classifications,
    to_translations,
)
from tfk_transformer.runtime_environment import usable_processors

METADATA = "tfk_transformer"
SMALL = 64  # hypotheses that a small batch has at most; see `Sessions.open`


class OnnxTranslator:
    """Translate with `translate.onnx`.

    Args:
        path: the file.
        threads: for one text, or for as many batches side by side; None: as many as there are processors.

    Raises:
        ValueError: if it is no translator's ONNX file of this project that takes text, or there are fewer threads than one.
    """

    def __init__(self, path, threads: int | None = None):
        self._file = _TextFile(path, threads, "OnnxTranslator")
        self.metadata = self._file.metadata
        self.max_length = self.metadata["config"]["max_length"]

    def translate(
        self, texts: Sequence[str], batch_size: int = 64, prefixes: Sequence[str | None] | None = None, **settings
    ) -> list[Translation]:
        """Translate texts; see `Translator.translate`."""
        check_texts(texts)
        forced = check_prefixes(prefixes, texts)
        scalars = scalar_inputs(settings, self.metadata["search"])
        beam_size = settings.get("beam_size", self.metadata["search"]["beam_size"]["default"])
        session, at_once = self._file.session(len(texts), are_small(len(texts), batch_size, beam_size))

        def run(batch, forced):
            inputs = {"text": np.array(batch, object), **scalars}
            if any(forced):
                inputs["prefix"] = np.array(forced, object)
            return session.run(["translations", "scores"], inputs)

        return to_translations(texts, in_batches(texts, batch_size, run, forced, at_once=at_once), self.max_length, forced)

    def stream(self, text: str, **settings) -> Iterator[str]:
        """Translate a text and yield its translation as its tokens come, with the files of `OnnxStreamer` beside this one.

        See `Translator.stream`.
        """
        return self._streamer.stream(text, **settings)

    @functools.cached_property
    def _streamer(self):
        from tfk_transformer.export.runtime.onnx_streamer import OnnxStreamer

        return OnnxStreamer(self._file.path.parent, self._file.threads)


class OnnxClassifier:
    """Classify with `classify.onnx`.

    Args:
        path: the file.
        threads: for one text, or for as many batches side by side; None: as many as there are processors.

    Raises:
        ValueError: if it is no classifier's ONNX file of this project that takes text, or there are fewer threads than one.
    """

    def __init__(self, path, threads: int | None = None):
        self._file = _TextFile(path, threads, "OnnxClassifier")
        self.metadata = self._file.metadata
        self.labels = self.metadata["labels"]
        self.max_length = self.metadata["config"]["max_length"]

    def classify(self, texts: Sequence[str], batch_size: int = 64) -> list[Classification]:
        """Classify texts; see `TextClassifier.classify`."""
        check_texts(texts)
        session, at_once = self._file.session(len(texts))

        def run(batch):
            return session.run(["label", "probability", "probabilities"], {"text": np.array(batch, object)})

        return to_classifications(texts, in_batches(texts, batch_size, run, at_once=at_once), self.labels, self.max_length)


class _TextFile:
    """An ONNX file that takes text, open for the class named `reader`."""

    def __init__(self, path, threads: int | None, reader: str):
        if threads is not None and threads < 1:
            raise ValueError(f"threads: expected at least 1, or None for as many as there are processors, got {threads}.")
        self.path, self.threads = Path(path), threads or usable_processors()
        self._sessions = Sessions(path, text_operators=True)
        alone, _ = self.session(texts=1, small=True)
        self.metadata = read_metadata(alone, path)
        classifies = self.metadata["config"].get("architecture") == "encoder"
        wanted, file = ("OnnxClassifier", "classify.onnx") if classifies else ("OnnxTranslator", "translate.onnx")
        if reader != wanted:
            raise ValueError(f"ONNX: expected a file that {reader} reads, got {path}, which is for {wanted}; open it with {wanted}.")
        if "text" not in [value.name for value in alone.get_inputs()]:
            raise ValueError(f"ONNX: expected a file that takes text, got {path}, which takes ids; use {file} of the same export.")

    def session(self, texts: int, small: bool = False) -> tuple[onnxruntime.InferenceSession, int]:
        """Return the session for so many texts, in small batches or not, and how many batches it is to run at once.

        Threads inside operators as short as a step's wait for each other much of the time: batches side by side, each on one
        thread, take half to four fifths of it. One text alone has nothing beside it; its operators share the threads.
        """
        at_once = 1 if texts < 2 else self.threads
        return self._sessions.open(self.threads // at_once, small or texts < 2), at_once


def are_small(texts: int, batch_size: int, beam_size: int) -> bool:
    """Tell whether the batches of a search over so many texts are small, see `Sessions.open`."""
    return min(texts, batch_size) * beam_size <= SMALL


class Sessions:
    """An ONNX file, opened once for each way in which it is run.

    Args:
        path: the file.
        text_operators: whether it needs those of onnxruntime-extensions.
    """

    def __init__(self, path, text_operators: bool = False):
        self._path, self._text_operators, self._opened = path, text_operators, {}

    def open(self, threads: int, small: bool) -> onnxruntime.InferenceSession:
        """Return the session of so many threads, for batches of at most `SMALL` hypotheses or for larger ones.

        onnxruntime's memory arena has one lock, and the short operators of small batches ask for memory all the time: side by
        side without it they take 0.7 to 0.9 of the time. Large tensors need it, or the system maps their pages anew each time;
        at 128 hypotheses the two are level.
        """
        if (threads, small) not in self._opened:
            self._opened[threads, small] = open_session(self._path, threads, self._text_operators, arena=not small)
        return self._opened[threads, small]


def scalar_inputs(settings: dict, rules: dict[str, dict]) -> dict[str, np.ndarray]:
    """Turn search settings into the graph's inputs; what is not given has its default in the file.

    Args:
        settings: by name.
        rules: of the file, by name, see `config.setting_rules`.

    Raises:
        ValueError: for an unknown or impossible setting.
    """
    unknown = sorted(set(settings) - set(rules))
    if unknown:
        raise ValueError(f"settings: expected some of {', '.join(rules)}, got {', '.join(unknown)}.")
    for name, value in settings.items():
        _check_setting(name, value, rules[name])
    chosen = {name: settings.get(name, rule["default"]) for name, rule in rules.items()}
    if chosen["n_best"] > chosen["beam_size"]:
        raise ValueError(f"n_best: expected at most beam_size, got n_best {chosen['n_best']} and beam_size {chosen['beam_size']}.")
    return {name: np.array(value, _SETTING_KINDS[rules[name]["type"]][1]) for name, value in settings.items()}


_SETTING_KINDS = {"integer": (int, "int32"), "number": ((int, float), "float32")}
_LIMITS = {"minimum": (operator.ge, "at least"), "exclusiveMinimum": (operator.gt, "above"), "maximum": (operator.le, "at most")}


def _check_setting(name: str, value, rule: dict) -> None:
    limits = [(*_LIMITS[key], limit) for key, limit in rule.items() if key in _LIMITS]
    right_kind = isinstance(value, _SETTING_KINDS[rule["type"]][0]) and not isinstance(value, bool)
    if not right_kind or not all(holds(value, limit) for holds, _, limit in limits):
        allowed = " and ".join(f"{words} {limit}" for _, words, limit in limits)
        raise ValueError(f"{name}: expected a{'n' if rule['type'] == 'integer' else ''} {rule['type']} of {allowed}, got {value!r}.")


def open_session(path, threads: int | None = None, text_operators: bool = False, arena: bool = True) -> onnxruntime.InferenceSession:
    """Open an ONNX file on the CPU, with the operators of onnxruntime-extensions at hand or with stock ones alone.

    Args:
        path: the file.
        threads: inside operators; None: as many as there are processors.
        text_operators: whether it needs those of onnxruntime-extensions.
        arena: whether memory comes from onnxruntime's own store, which keeps it, or from the system's.

    Raises:
        ValueError: if there is no file, or onnxruntime does not load it.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"ONNX: expected a file, got {path}, which is not there.")
    options = onnxruntime.SessionOptions()
    if text_operators:
        options.register_custom_ops_library(_text_operators())
    options.log_severity_level = 4  # errors come as exceptions
    options.enable_cpu_mem_arena = arena
    if threads:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions share no base but Exception
        raise ValueError(f"ONNX: {path} does not load: {str(error).splitlines()[0]}") from None


def _text_operators() -> str:
    """Return the path of onnxruntime-extensions' library, loaded such that it lives with TensorFlow in one process.

    TensorFlow puts its symbols, protobuf's among them, before everybody's. A library that is loaded after it and has
    protobuf inside calls TensorFlow's copy and crashes, unless it is bound to its own symbols first.
    """
    if "onnxruntime_extensions" not in sys.modules and hasattr(os, "RTLD_DEEPBIND"):
        found = importlib.util.find_spec("onnxruntime_extensions")
        for library in Path(found.origin).parent.glob("_extensions_pydll*.so") if found else ():
            ctypes.CDLL(str(library), os.RTLD_NOW | os.RTLD_DEEPBIND)
    try:
        import onnxruntime_extensions
    except ImportError:
        raise ImportError("a file that takes text needs onnxruntime-extensions: pip install onnxruntime-extensions") from None
    return onnxruntime_extensions.get_library_path()


def read_metadata(session: onnxruntime.InferenceSession, path) -> dict:
    """Return what the export wrote into the file."""
    found = session.get_modelmeta().custom_metadata_map.get(METADATA)
    if found is None:
        raise ValueError(f"ONNX: expected a file that tfk-transformer exported, got {path}, which has no metadata of it.")
    return json.loads(found)
