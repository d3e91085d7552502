"""Run exported ONNX files with NumPy and onnxruntime, without TensorFlow and Keras."""

import base64
import contextlib
import functools
from collections.abc import Container, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfk_transformer.config.search_settings import Rules
from tfk_transformer.config.small_files import first_line
from tfk_transformer.export import file_names
from tfk_transformer.export.runtime.sessions import OnnxFile, required
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.base_translator import BaseTranslator
from tfk_transformer.inference.runtime import ONE_BATCH, UNCACHED, Outputs, Workload, has_encoder
from tfk_transformer.inference.signatures import FUNCTIONS
from tfk_transformer.runtime_environment import usable_processors
from tfk_transformer.text.calibration import CONFIDENCE, Calibration
from tfk_transformer.text.languages import Languages

if TYPE_CHECKING:
    from tfk_transformer.inference.token_scoring import Tokenizers

# Metadata keys. In `score.onnx`: SentencePiece models in base 64.
SOURCE_TOKENIZER = "source_tokenizer"
TARGET_TOKENIZER = "target_tokenizer"
CHARACTERS = "characters"  # that the source vocabulary represents

# The file of each function, next to the opened file.
FILES = {
    "translate": file_names.TRANSLATE_FILE,
    "generate": file_names.GENERATE_FILE,
    "score_ids": file_names.SCORE_FILE,
    "attention": file_names.SCORE_FILE,
    "score_and_attend": file_names.SCORE_FILE,
    "tokenize": file_names.TOKENIZER_FILE,
    "encode": file_names.ENCODER_FILE,
    "decoder_step": file_names.DECODER_STEP_FILE,
    "probabilities": file_names.PROBABILITIES_FILE,
}
TEXT_FUNCTIONS = ("translate", "tokenize")  # their files have operators over texts
STEP_FILES = (file_names.TOKENIZER_FILE, file_names.ENCODER_FILE, file_names.DECODER_STEP_FILE)

# The functions of the opened file, by the class that reads it.
READERS = {
    "OnnxTranslator": ("translate",),
    "OnnxClassifier": ("classify",),
    "OnnxScorer": ("score_ids", "attention", "score_and_attend"),
    "OnnxStreamer": ("decoder_step",),
}


class OnnxRuntime:
    """An ONNX file, and the other files of its export, which are opened when they are used.

    `reader` is the name of the class that reads the file. Default: the class for the file.
    """

    def __init__(
        self, path: str | PathLike[str], threads: int | None = None, reader: str = ""
    ) -> None:
        if threads is not None and threads < 1:
            raise ValueError(
                "threads: expected at least 1, or None for the number of processors, got "
                f"{threads}."
            )
        self.path = Path(path)
        self.threads = threads or usable_processors()
        self._arguments = (self.path.absolute(), threads, reader)
        takes_text = reader not in ("OnnxScorer", "OnnxStreamer")
        self._opened_file = OnnxFile(self.path, takes_text)
        self._files = {self.path: self._opened_file}
        self._opened_file.session(self.threads, small=takes_text)
        self.metadata = self._opened_file.metadata
        self.reader = reader or self._reader_of_file()
        self.check(self.reader)
        self.max_length: int = self.metadata["config"]["max_length"]

    def _reader_of_file(self) -> str:
        """Return the name of the class for the opened file, if it is not the file of a step."""
        if {"source_ids", "target_ids"} <= set(self._opened_file.inputs):
            return "OnnxScorer"
        if self.metadata["config"].get("architecture") == "encoder":
            return "OnnxClassifier"
        return "OnnxTranslator"

    def check(self, reader: str) -> None:
        """Refuse a file that is not for a class; the error names the class or the file to use."""
        if reader == "OnnxStreamer":
            return
        file_reader = self._reader_of_file()
        if reader == "OnnxScorer" and file_reader != "OnnxScorer":
            raise ValueError(
                f"ONNX: expected a file that scores, got {self.path}, which does not score; "
                f"use {file_names.SCORE_FILE} of the same export."
            )
        if reader != file_reader:
            raise ValueError(
                f"ONNX: expected a file that {reader} reads, got {self.path}, which is for "
                f"{file_reader}; open it with {file_reader}."
            )
        if reader != "OnnxScorer" and "text" not in self._opened_file.inputs:
            file = f"{file_names.TRANSLATE_FILE}, or {file_names.SCORE_FILE} to score pairs,"
            if reader == "OnnxClassifier":
                file = file_names.CLASSIFY_FILE
            raise ValueError(
                f"ONNX: expected a file that takes text, got {self.path}, which takes ids; use "
                f"{file} of the same export."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the threads: unpickling opens the files again."""
        return OnnxRuntime, self._arguments

    def run(self, name: str, inputs: Mapping[str, Any], workload: Workload = ONE_BATCH) -> Outputs:
        """Run a function; see `Runtime.run`."""
        file, session = self._file(name), self._session(name, workload)
        if name in FUNCTIONS:
            names = [tensor.name for tensor in FUNCTIONS[name].outputs]
        else:
            names = [output for output in file.outputs if output != "logits"]  # which are not read
        try:
            return dict(zip(names, session.run(names, inputs), strict=True))
        except ValueError:
            raise
        except Exception as error:  # onnxruntime's, such as for memory that the system lacks
            raise OSError(f"ONNX: {file.path} does not run: {first_line(error)}") from None

    def _session(self, name: str, workload: Workload) -> Any:
        return self._file(name).session(self.threads // workload.concurrency, workload.small)

    def preload(self) -> None:
        """Open the files that exist, for all workloads; see `Runtime.preload`."""
        several = self.concurrency(2)
        workloads = {
            "translate": [Workload(1, True), Workload(several, True), Workload(several)],
            "classify": [Workload(1, True), Workload(several)],
            "generate": [Workload(1, True), ONE_BATCH],
        }
        names = set(READERS[self.reader])
        if self.reader in ("OnnxTranslator", "OnnxStreamer"):
            names |= set(FILES)
        if self.metadata.get("profile") == "int8":
            names.discard("generate")  # has float32 weights: `require` refuses it
        for name in names:
            if self._path(name).is_file():
                for workload in workloads.get(name, [ONE_BATCH]):
                    self._session(name, workload)

    def _path(self, name: str) -> Path:
        return self.path if name in READERS[self.reader] else self.path.parent / FILES[name]

    def _file(self, name: str) -> OnnxFile:
        path = self._path(name)
        if path not in self._files:
            self._files[path] = OnnxFile(path, name in TEXT_FUNCTIONS, self._opened_file)
        return self._files[path]

    def require(self, argument: str, *names: str) -> None:
        """Check that the files of functions exist; see `Runtime.require`."""
        if "generate" in names and self.metadata.get("profile") == "int8":
            raise ValueError(
                f"{argument}: expected a file with float32 weights, got {self.path} with 8-bit "
                f"weights, which {file_names.SCORE_FILE} does not have; use "
                f"{file_names.TRANSLATE_FILE}."
            )
        for name in names:
            path = self._path(name)
            if self.reader == "OnnxScorer" and path != self.path:
                raise ValueError(
                    f"{argument}: expected a file that translates, got {self.path.name}, which "
                    f"only scores pairs; open {file_names.TRANSLATE_FILE} of the same export."
                )
            if path not in self._files:
                _check_file(argument, path, self.path)

    def concurrency(self, texts: int) -> int:
        """Return the number of batches that run concurrently. One text shares the threads."""
        # The threads of short operators wait for each other. Concurrent batches, each on one
        # thread, take half to four fifths of the time.
        return 1 if texts < 2 else self.threads

    @property
    def has_encoder(self) -> bool:
        """Whether the model has an encoder; see `TranslatorRuntime`."""
        return has_encoder(required(self.metadata["config"], "architecture", self.path))

    @property
    def languages(self) -> Languages:
        """The languages of the model's configuration."""
        return Languages.of(self.metadata["config"])

    @property
    def split_sentences(self) -> bool:
        """The option `split_sentences` of the model's configuration; earlier versions had none."""
        return self.metadata["config"].get("split_sentences", True) is not False

    @property
    def rules(self) -> Rules:
        """The rules of the search settings."""
        return required(self.metadata, "search", self.path)

    @functools.cached_property
    def calibration(self) -> Calibration | None:
        """The calibration of confidences."""
        record = self.metadata.get(CONFIDENCE)
        return None if record is None else Calibration.from_json(record)

    @property
    def labels(self) -> list[str]:
        """The names of the classes."""
        return required(self.metadata, "labels", self.path)

    @functools.cached_property
    def characters(self) -> Container[str] | None:
        """The characters that the source vocabulary represents, from the metadata of the file."""
        reads_text = "translate" in READERS[self.reader]
        file = self._opened_file if reads_text else self._opened("tokenize")
        text = file.metadata_text(CHARACTERS)
        return None if text is None else frozenset(text)

    @property
    def pieces(self) -> Sequence[str]:
        """The text of each target token."""
        file = self._opened("decoder_step")
        return required(file.metadata, "pieces", file.path)

    @functools.cached_property
    def cache_shapes(self) -> dict[str, Sequence[Any]]:
        """The shapes of the KV cache that a decoding step reads, by name."""
        inputs = self._opened("decoder_step").inputs
        return {name: shape for name, shape in inputs.items() if name.startswith("cache_")}

    @functools.cached_property
    def tokenizers(self) -> "Tokenizers":
        """The tokenizers of both sides, from the metadata of `score.onnx`."""
        from tfk_transformer.inference.token_scoring import Tokenizers
        from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

        file = self._opened("score_ids")
        source = SubwordTokenizer(_tokenizer_model(file, SOURCE_TOKENIZER))
        target = SubwordTokenizer(_tokenizer_model(file, TARGET_TOKENIZER))
        return Tokenizers(source, target, self.has_encoder)

    def _opened(self, name: str) -> OnnxFile:
        """Return the file that has a function, with the session that runs the function."""
        file = self._file(name)
        file.session(self.threads, small=False)
        return file

    def without_cache(self) -> "OnnxRuntime":
        """Raise an error: exported files have only cached decoding steps."""
        raise ValueError(UNCACHED)


def _check_file(argument: str, path: Path, opened: Path) -> None:
    """Refuse a missing file of the export whose file `opened` is open."""
    if path.is_file():
        return
    if path.name in STEP_FILES:
        raise ValueError(
            f"{argument}: expected {path.name} in {path.parent}, which does not exist; export the "
            "bundle with the format onnx_steps."
        )
    raise ValueError(
        f"{argument}: expected {path.name} next to {opened}, which does not exist; copy it from "
        "the same export, or export the bundle again with the format onnx."
    )


def _tokenizer_model(file: OnnxFile, name: str) -> bytes:
    text = file.metadata_text(name) or ""
    model = b""
    with contextlib.suppress(ValueError):
        model = base64.b64decode(text, validate=True)
    if not model:
        raise ValueError(
            f"ONNX: expected a SentencePiece model in base 64 as '{name}' in the metadata of "
            f"{file.path}, got none."
        )
    return model


class OnnxReader:
    """Base of the classes below."""

    runtime: Any  # an `OnnxRuntime`

    @property
    def metadata(self) -> dict[str, Any]:
        """The values that the export wrote into the file, by name."""
        return self.runtime.metadata

    def _open(
        self, path: str | PathLike[str] | OnnxRuntime, threads: int | None, reader: str
    ) -> OnnxRuntime:
        if not isinstance(path, OnnxRuntime):
            return OnnxRuntime(path, threads, reader)
        path.check(reader)
        return path


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
        super().__init__(self._open(path, threads, "OnnxTranslator"))
        _ = self.runtime.rules  # raises if the file has no rules


class OnnxScorer(OnnxReader, BaseTranslator):
    """Score with `score.onnx`, which does not translate; arguments as of `OnnxTranslator`."""

    def __init__(self, path: str | PathLike[str], threads: int | None = None) -> None:
        super().__init__(self._open(path, threads, "OnnxScorer"))


class OnnxStreamer(OnnxReader, BaseTranslator):
    """Stream translations with the files of the format onnx_steps in a folder.

    The other methods of `BaseTranslator` need their files in the same folder.
    """

    def __init__(self, folder: str | PathLike[str], threads: int | None = None) -> None:
        path = Path(folder) / file_names.DECODER_STEP_FILE
        _check_file("stream", path, path)
        super().__init__(self._open(path, threads, "OnnxStreamer"))


class OnnxClassifier(OnnxReader, BaseClassifier):
    """Classify with `classify.onnx`; arguments as of `OnnxTranslator`."""

    def __init__(self, path: str | PathLike[str] | OnnxRuntime, threads: int | None = None) -> None:
        super().__init__(self._open(path, threads, "OnnxClassifier"))
        _ = self.runtime.labels  # raises if the file has no labels
