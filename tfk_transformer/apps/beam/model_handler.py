"""The model handler for Beam's `RunInference`."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
from tfk_transformer.text.outcome import Outcome
from tfk_transformer.text.results import Translation

NAMESPACE = "tfk_transformer"  # the namespace of the metrics
MAX_BATCH_TEXTS = 1024  # texts that the translator receives together, and sorts by length


class BatchTranslator:
    """A translator with one public method: the proxies of other processes read all of them."""

    def __init__(self, path: Path, threads: int | None) -> None:
        self._translator = OnnxTranslator(path, threads)

    def translate(
        self, texts: Sequence[str], settings: dict[str, Any]
    ) -> list[Outcome[Translation]]:
        """Return the outcome of each text."""
        return self._translator.try_translate(texts, **settings)


class TranslationHandler(ModelHandler[str, PredictionResult, BatchTranslator]):
    """Translate texts with an ONNX file in `RunInference`.

    The inference of each text is a `Translation`, or `Refused` if the model cannot
    process the text. The other texts of the batch are translated. The `inference_args` of
    `RunInference` are the arguments of `OnnxTranslator.translate`: search settings,
    `batch_size`, `glossary`, `split_sentences` and `language`.

    Args:
        path: the file, which has the same path on every worker.
        shared: whether the processes of a machine share one model. By default, every process opens
            the file.
        threads: the number of threads of a model. Default: 1, or the number of processors if the
            model is shared.
        texts: the number of texts that are collected before they are translated, in batches of
            similar length.

    Raises:
        ValueError: if `texts` is less than 1.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        shared: bool = False,
        threads: int | None = None,
        texts: int = MAX_BATCH_TEXTS,
    ) -> None:
        if texts < 1:
            raise ValueError(f"texts: expected at least 1, got {texts}.")
        super().__init__(min_batch_size=texts, max_batch_size=texts, large_model=shared)
        self._path = Path(path).absolute()
        self._threads = threads if shared or threads is not None else 1

    def load_model(self) -> BatchTranslator:
        """Open the file."""
        return BatchTranslator(self._path, self._threads)

    def run_inference(
        self,
        batch: Sequence[str],
        model: BatchTranslator,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterable[PredictionResult]:
        """Translate texts."""
        return map(PredictionResult, batch, model.translate(batch, inference_args or {}))

    def get_num_bytes(self, batch: Sequence[str]) -> int:
        """Return the number of bytes of texts in UTF-8."""
        return sum(len(text.encode()) for text in batch)

    def get_metrics_namespace(self) -> str:
        """Return the namespace of the metrics of `RunInference`."""
        return NAMESPACE
