"""Translate with an exported ONNX file. Needs numpy, onnxruntime and onnxruntime-extensions, and
never TensorFlow or Keras.
"""

import functools
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfk_transformer.config.search_settings import Rules, resolve_settings, setting_arrays
from tfk_transformer.export.file_names import GENERATE_FILE, SCORE_FILE, TRANSLATE_FILE
from tfk_transformer.export.runtime.onnx_scorer import OnnxScorer
from tfk_transformer.export.runtime.onnx_streamer import OnnxStreamer
from tfk_transformer.export.runtime.sessions import (
    OnnxFile,
    Sessions,
    are_small,
    open_onnx_file,
    required,
)
from tfk_transformer.inference.base_translator import (
    BaseTranslator,
    BatchSearch,
    Request,
    refuse_uncached,
)

if TYPE_CHECKING:
    from tfk_transformer.inference.token_scoring import Tokenizers


class OnnxTranslator(BaseTranslator):
    """Translate with `translate.onnx` or `translate.int8.onnx`.

    Some methods need more files of the same export in the same folder. `stream` needs the files of
    the format onnx_steps. `score` and `score_tokens` need `score.onnx`. `translate` with
    `token_scores` or `attention` needs `score.onnx`, `generate.onnx` and the package sentencepiece.

    Args:
        path: the file, or an open `OnnxFile`.
        threads: the number of threads, which one text or several batches at the same time share.
            Default: the number of processors.

    Raises:
        ValueError: if the file is not a translator that this project exported and that takes text,
            or `threads` is less than 1.
    """

    def __init__(self, path: str | PathLike[str] | OnnxFile, threads: int | None = None) -> None:
        self._file = open_onnx_file(path, threads, "OnnxTranslator")
        self.metadata = self._file.metadata
        self.max_length = self._file.max_length
        self._rules: Rules = required(self.metadata, "search", self._file.path)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the threads; see `OnnxFile`."""
        return type(self), (self._file,)

    def _search(self, request: Request, settings: dict[str, Any]) -> BatchSearch:
        refuse_uncached(request.use_cache)
        resolved = resolve_settings(settings, self._rules)
        # The file has the defaults of the other settings.
        scalars = setting_arrays({name: resolved[name] for name in settings}, self._rules)
        small = are_small(request.texts, request.batch_size, resolved["beam_size"])
        if request.details:
            return self._detailed_search(scalars, request.attention, small)
        session, concurrency = self._file.session(request.texts, small)

        def run(texts: Sequence[str], prefixes: Sequence[str]) -> Sequence[Any]:
            inputs = {"text": np.array(texts, object), **scalars}
            if any(prefixes):
                inputs["prefix"] = np.array(prefixes, object)
            return session.run(["translations", "scores"], inputs)

        return BatchSearch(run, concurrency)

    def _detailed_search(
        self, scalars: dict[str, np.ndarray], attention: bool, small: bool
    ) -> BatchSearch:
        """Return the search over ids with `generate.onnx`, whose hypotheses `score.onnx` scores."""
        from tfk_transformer.inference.token_scoring import search_with_details

        scorer = self._detail_scorer
        session = self._id_sessions.open(self._file.threads, small)

        def generate(
            source_ids: np.ndarray, prefix_ids: np.ndarray
        ) -> tuple[np.ndarray, np.ndarray]:
            inputs = {"source_ids": source_ids, "prefix_ids": prefix_ids, **scalars}
            ids, scores = session.run(["ids", "scores"], inputs)
            return ids, scores

        score = functools.partial(scorer.score_arrays, attention=attention)
        return BatchSearch(search_with_details(self._tokenizers, generate, score))

    def stream(self, text: str, **settings: float) -> Iterator[str]:
        """Translate one text and yield parts of its translation as they are decoded; see
        `TranslatorProtocol.stream`.

        Needs `tokenizer.onnx`, `encoder.onnx` and `decoder_step.onnx`, see `OnnxStreamer`.
        """
        return self._streamer.stream(text, **settings)

    def _scored(
        self, sources: Sequence[str], targets: Sequence[str], batch_size: int, attention: bool
    ) -> list[tuple[Any, ...]]:
        return self._scorer._scored(sources, targets, batch_size, attention)

    @property
    def _tokenizers(self) -> "Tokenizers":
        return self._scorer._tokenizers

    @functools.cached_property
    def _streamer(self) -> OnnxStreamer:
        return OnnxStreamer(self._file.path.parent, self._file.threads)

    @functools.cached_property
    def _scorer(self) -> OnnxScorer:
        return OnnxScorer(self._export_file(SCORE_FILE, "score, score_tokens"), self._file.threads)

    @property
    def _detail_scorer(self) -> OnnxScorer:
        """The scorer, which has the same weights as this file unless they are rounded here."""
        if self.metadata.get("profile") == "int8":
            raise ValueError(
                "token_scores, attention: expected a file with float32 weights, got "
                f"{self._file.path}, whose rounded weights {SCORE_FILE} does not have; use "
                f"{TRANSLATE_FILE}."
            )
        self._export_file(SCORE_FILE, "token_scores, attention")
        return self._scorer

    @functools.cached_property
    def _id_sessions(self) -> Sessions:
        """The sessions of the same search over ids."""
        return Sessions(self._export_file(GENERATE_FILE, "token_scores, attention"))

    def _export_file(self, name: str, methods: str) -> Path:
        """Return the path of another file of the export.

        Args:
            name: the name of the file.
            methods: the methods or arguments that need the file, for errors.

        Raises:
            ValueError: if the file is missing.
        """
        path = self._file.path.parent / name
        if not path.is_file():
            raise ValueError(
                f"{methods}: expected {name} beside {self._file.path}, which is not there; copy it "
                "from the same export, or export the bundle again with the format onnx."
            )
        return path
