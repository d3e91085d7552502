"""Stream translations from exported ONNX files; needs numpy, onnxruntime and onnxruntime-extensions, and never TensorFlow or Keras."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tfk_transformer.export.runtime.onnx_translator import open_session, read_metadata, scalar_inputs
from tfk_transformer.inference.streaming import StepModel, empty_cache, stream_text

TOKENIZER, ENCODER, DECODER_STEP = "tokenizer.onnx", "encoder.onnx", "decoder_step.onnx"


class OnnxStreamer:
    """Translate with `tokenizer.onnx`, `encoder.onnx` and `decoder_step.onnx`, text coming as its tokens do.

    Args:
        folder: of the files.
        threads: used inside operators; None: as many as there are cores.

    Raises:
        ValueError: if a file is missing, or none of this project.
    """

    def __init__(self, folder, threads: int | None = None):
        step = open_session(_found(folder, DECODER_STEP), threads)
        self.metadata = read_metadata(step, Path(folder) / DECODER_STEP)
        self.steps = StepModel(
            tokenize=_tokenizer(_found(folder, TOKENIZER)),
            encode=_encoder(folder, threads) if self.metadata["config"]["architecture"] == "encoder_decoder" else None,
            first_cache=lambda rows: empty_cache({value.name: value.shape for value in step.get_inputs()}, rows),
            step=_named(step),
            pieces=self.metadata["pieces"],
            max_length=self.metadata["config"]["max_length"],
        )

    def stream(self, text: str, **settings) -> Iterator[str]:
        """Translate a text and yield its translation as its tokens come; see `Translator.stream`."""
        rules = self.metadata["search"]
        defaults = {name: rule["default"] for name, rule in rules.items()}
        return stream_text(self.steps, text, scalar_inputs({**defaults, "beam_size": 1, **settings}, rules))


def _found(folder, name: str) -> Path:
    path = Path(folder) / name
    if not path.is_file():
        raise ValueError(f"stream: expected {name} in {folder}, which is not there; export the bundle with the format onnx_steps.")
    return path


def _tokenizer(path: Path):
    session = open_session(path, text_operators=True)
    return lambda text: session.run(["source_ids"], {"text": np.array([text], object)})[0]


def _encoder(folder, threads):
    encode = _named(open_session(_found(folder, ENCODER), threads))
    return lambda source_ids: encode({"source_ids": source_ids})


def _named(session):
    """Return a session's function from arrays by name to arrays by name; logits, which a stream does not read, stay in it."""
    names = [value.name for value in session.get_outputs() if value.name != "logits"]
    return lambda inputs: dict(zip(names, session.run(names, inputs), strict=True))
