"""Export a translator or a classifier: write, compare with the model, and only then put in place."""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from tfk_transformer.atomic_write import written_whole
from tfk_transformer.export import classifier_files, translator_files
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator

PARITY = "parity.json"


def export(fitted: Translator | TextClassifier, out, formats: Sequence[str] | None = None) -> dict:
    """Write a translator or a classifier as files that need none of this code.

    Of a translator, "saved_model" gives the folder `saved_model/`; "onnx" gives `generate.onnx` (ids), `translate.onnx` (text)
    and `score.onnx` (pairs of ids); "onnx_steps" gives `tokenizer.onnx`, `encoder.onnx` and `decoder_step.onnx`, for streams
    and for hosts that loop themselves; "onnx_fast" gives `generate.fast.onnx` and `translate.fast.onnx`, with operators that
    onnxruntime alone has; "onnx_int8" gives `generate.int8.onnx` and `translate.int8.onnx`, with weights of 8 bits. Of a
    classifier, "onnx" gives `probabilities.onnx` (ids) and `classify.onnx` (text).

    Each is run on at least 100 probe sentences, and nothing is written unless every id, or label, is the Keras model's; int8
    translations need only be close to the model's. A model that computes in a half precision is exported, and compared, in
    float32.

    Args:
        fitted: what to export.
        out: folder of the artefacts; it must not exist.
        formats: which; None: all of a classifier, the first three of a translator.

    Returns:
        The parity figures, which are also in `parity.json` and in the ONNX files' metadata.

    Raises:
        ValueError: for a format that there is not, or a folder that exists.
        ParityError: if an artefact differs from the model.
    """
    kind = classifier_files if isinstance(fitted, TextClassifier) else translator_files
    _check(out, formats, list(kind.WRITERS))
    fitted = fitted.in_float32()
    with _exact_float32(), written_whole(out) as folder:
        folder.mkdir()
        probes = kind.Probes(fitted)
        wanted = kind.UNASKED if formats is None else formats
        written = {name: kind.WRITERS[name](fitted, folder, probes) for name in kind.WRITERS if name in wanted}
        figures = {**probes.agreed, **written}
        (folder / PARITY).write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    return figures


def _check(out, formats: Sequence[str] | None, known: list[str]) -> None:
    unknown = sorted(set(formats or ()) - set(known))
    if unknown or formats is not None and not formats:
        raise ValueError(f"formats: expected some of {', '.join(known)}, got {', '.join(unknown) or 'none'}.")
    if Path(out).exists():
        raise ValueError(f"out: expected a new folder, got {out}, which exists; choose another name or remove it.")


@contextlib.contextmanager
def _exact_float32():
    """Let GPUs multiply in float32: TensorFlow has them round factors to 10 bits, and ONNX files would seem to differ."""
    import tensorflow as tf

    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
