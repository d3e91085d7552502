"""The formats of an export, and the checks of its arguments. This module loads neither TensorFlow nor Keras."""

import os
from collections.abc import Sequence
from pathlib import Path

TRANSLATOR_FORMATS = ("saved_model", "onnx", "onnx_steps", "onnx_fast", "onnx_int8")
DEFAULT_TRANSLATOR_FORMATS = ("saved_model", "onnx", "onnx_steps")
CLASSIFIER_FORMATS = ("saved_model", "onnx")


def check_formats(formats: Sequence[str] | None, known: Sequence[str] = TRANSLATOR_FORMATS) -> None:
    """Check the names of formats.

    Args:
        formats: the requested formats; None for the default ones.
        known: the formats of this kind of model: `TRANSLATOR_FORMATS` or `CLASSIFIER_FORMATS`.

    Raises:
        ValueError: if `formats` is a string, is empty or has an unknown name.
    """
    if isinstance(formats, str):
        raise ValueError(f"formats: expected a list of names, got the string {formats!r}; write [{formats!r}].")
    unknown = sorted(set(formats or ()) - set(known))
    if unknown or (formats is not None and not formats):
        raise ValueError(f"formats: expected some of {', '.join(known)}, got {', '.join(unknown) or 'none'}.")


def check_out(out: str | os.PathLike[str]) -> None:
    """Check that a new folder can be made at a path. Missing folders above it are made later.

    Raises:
        ValueError: if `out` exists, or if it cannot be written.
    """
    if Path(out).exists():
        raise ValueError(f"out: expected a new folder, got {out}, which exists; choose another name or remove it.")
    above = next(folder for folder in Path(out).absolute().parents if folder.exists())
    if not above.is_dir():
        raise ValueError(f"out: expected a path inside a folder, got {out}, but {above} is a file; choose another path.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ValueError(f"out: expected a path in a writable folder, got {out}, but {above} is not writable; choose another path.")
