"""The files and sizes of an imported model."""

import collections
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors

from tfk_transformer.importing.ctranslate2_folder.binary_file import open_binary
from tfk_transformer.importing.model_paths import (
    ARGOS_MODEL_FOLDER,
    CTRANSLATE2_BINARY,
    FILES,
    WEIGHT_PATTERNS,
    is_ctranslate2_folder,
    resolve_model_path,
)
from tfk_transformer.pipelines.translator import Translator

Description = dict[str, Any]  # JSON values by name

# Files of a model, of all families.
PATTERNS = (*FILES, *WEIGHT_PATTERNS, "*.npz", "*.bin", "*.yml", f"{ARGOS_MODEL_FOLDER}/*")
SAFETENSORS_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
SIDES = ("source", "target")


def describe_model(
    model: str | os.PathLike[str], translator: Translator, vocab: Sequence[Path] = ()
) -> Description:
    """Describe what was read.

    Returns:
        JSON values: `files`, bytes by name; `dtypes`, numbers of stored weights by dtype, if the
        files state them; sizes of the model by the names of its options; and `parameters`.
    """
    path = resolve_model_path(model)
    patterned = (file for pattern in PATTERNS for file in path.glob(pattern) if file.is_file())
    paths = [path] if path.is_file() else sorted(set(patterned))
    config = translator.model.config
    names = ("encoder_layers", "decoder_layers", "model_dim", "ff_dim", "num_heads")
    sizes = {name: getattr(config, name) for name in names}
    sizes |= {f"{side}_vocab_size": getattr(config, f"{side}_vocab_size") for side in SIDES}
    root = path if path.is_dir() else path.parent
    return {
        "files": {
            os.path.relpath(file, root): file.stat().st_size for file in [*paths, *map(Path, vocab)]
        },
        "dtypes": _dtypes(paths),
        **sizes,
        "parameters": translator.model.count_params(),
    }


def describe_line(description: Mapping[str, Any]) -> str:
    """Return a description as one line."""
    vocabulary = f"{description['target_vocab_size']:,}"
    if description["source_vocab_size"] != description["target_vocab_size"]:
        vocabulary = f"{description['source_vocab_size']:,} and {vocabulary}"
    dtypes = description["dtypes"]
    return (
        f"read: {description['encoder_layers']} + {description['decoder_layers']} layers, width "
        f"{description['model_dim']:,}, feed-forward {description['ff_dim']:,}, "
        f"{description['num_heads']} heads, vocabulary {vocabulary}, "
        f"{description['parameters'] / 1e6:,.1f} million parameters"
        f"{', weights in ' if dtypes else ''}{' and '.join(dtypes)}"
        f"; files: {', '.join(description['files'])}"
    )


def _dtypes(paths: Iterable[Path]) -> dict[str, int]:
    """Return how many weights are stored in each dtype, the most frequent first."""
    counts: collections.Counter[str] = collections.Counter()
    for path in paths:
        for dtype, shape in _arrays(path):
            counts[dtype] += math.prod(shape)
    return dict(counts.most_common())


def _arrays(path: Path) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the dtypes and shapes of the arrays in a file whose header states them."""
    if path.suffix == ".safetensors":
        file = safetensors.safe_open(path, framework="np")
        for array in map(file.get_slice, file.keys()):
            yield SAFETENSORS_DTYPES.get(array.get_dtype(), array.get_dtype()), array.get_shape()
    elif path.name == CTRANSLATE2_BINARY and is_ctranslate2_folder(path.parent):
        for variable in open_binary(path).variables.values():
            yield variable.dtype, variable.shape
