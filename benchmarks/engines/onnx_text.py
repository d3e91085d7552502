"""A `translate.onnx` or `translate.int8.onnx`, from texts to texts."""

import onnxruntime

from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator


class Engine:
    """A loaded file, with the search settings of its bundle."""

    version = f"onnxruntime {onnxruntime.__version__}"

    def __init__(self, path: str, threads: int, max_length_factor: str):
        self._settings = {"max_length_factor": float(max_length_factor)}
        self._translator = OnnxTranslator(path, threads=threads)

    def translate(self, texts: list[str]) -> list[str]:
        """Return the translations of texts, each of which is one sentence."""
        translations = self._translator.translate(texts, split_sentences=False, **self._settings)
        return [translation.text for translation in translations]
