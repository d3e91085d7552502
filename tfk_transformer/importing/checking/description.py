"""The files and sizes of an imported model, and the license and the examples in its README.md."""

import ast
import collections
import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfk_transformer.config.array_files import open_safetensors
from tfk_transformer.config.small_files import read_small_text
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.arrays import FLOATS
from tfk_transformer.importing.ctranslate2_folder.binary_file import open_binary
from tfk_transformer.importing.hugging_face.model_folder import read_optional_json
from tfk_transformer.importing.model_paths import (
    ARGOS_MODEL_FOLDER,
    CONFIG,
    CTRANSLATE2_BINARY,
    FILES,
    WEIGHT_PATTERNS,
    is_ctranslate2_folder,
    resolve_model_path,
)
from tfk_transformer.pipelines.translator import Translator

Values = dict[str, Any]  # JSON values by name

# Files of a model, of all families.
PATTERNS = (*FILES, *WEIGHT_PATTERNS, "*.npz", "*.bin", "*.yml", f"{ARGOS_MODEL_FOLDER}/*")
# The options of a model that are sizes.
SIZES = (
    "encoder_layers",
    "decoder_layers",
    "model_dim",
    "ff_dim",
    "num_heads",
    "source_vocab_size",
    "target_vocab_size",
)
CARD = "README.md"
FRONT_MATTER = re.compile(r"---\n(.*?\n)---\n", re.DOTALL)
LICENSE = re.compile(r"(?m)^license: *['\"]?([\w.+-]+)")
# The texts of `widget`, with which the hub's page of a model tries it.
WIDGET = re.compile(r"(?m)^widget: *\n((?:[ -].*(?:\n|$))+)")
WIDGET_TEXT = re.compile(r"(?m)^[ -]*text: *(['\"]?)(\S.*?)\1 *$")
CODE_BLOCK = re.compile(r"(?ms)^```(?:python|py)\n(.*?)^```")
# Names of variables that contain a source text in the code of model cards.
SOURCE_NAME = re.compile(
    r"(?i)^(?:(?:src|source|input)_?)?(?:texts?|sentences?|article\w*|inputs?)"
)
MIN_WORDS = 2  # fewer may be the name of a file or a language


def describe_model(
    model: str | os.PathLike[str], translator: Translator, vocab: Sequence[Path] = ()
) -> Values:
    """Return the files and sizes of a model as JSON values.

    They are `files`, bytes by name; `dtypes`, numbers of stored weights by dtype, the most frequent
    first, if the files state them; sizes by the names of the model's options; and `parameters`.
    """
    path = resolve_model_path(model)
    patterned = (file for pattern in PATTERNS for file in path.glob(pattern) if file.is_file())
    paths = [path] if path.is_file() else sorted(set(patterned))
    root = path if path.is_dir() else path.parent
    dtypes: collections.Counter[str] = collections.Counter()
    for dtype, shape in itertools.chain.from_iterable(map(_arrays, paths)):
        dtypes[dtype] += math.prod(shape)
    return {
        "files": {
            os.path.relpath(file, root): file.stat().st_size for file in [*paths, *map(Path, vocab)]
        },
        "dtypes": dict(dtypes.most_common()),
        **{name: getattr(translator.model.config, name) for name in SIZES},
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


def _arrays(path: Path) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the dtypes and shapes of the arrays in a file whose header states them."""
    if path.suffix == ".safetensors":
        _, slices = open_safetensors(path)
        for array in slices.values():
            yield FLOATS.get(array.get_dtype(), array.get_dtype()), array.get_shape()
    elif path.name == CTRANSLATE2_BINARY and is_ctranslate2_folder(path.parent):
        for variable in open_binary(path).variables.values():
            yield variable.dtype, variable.shape


def read_license(folder: Path) -> str | None:
    """Return the license that a folder's README.md or its config.json states."""
    line = LICENSE.search(_read_card(folder)[1])
    stated = line[1] if line else read_optional_json(folder / CONFIG).get("license")
    return shorten(stated) if isinstance(stated, str) else None


def read_examples(folder: Path) -> list[str]:
    """Return the source texts of the examples in a folder's README.md, each once."""
    card, front_matter = _read_card(folder)
    widget = WIDGET.search(front_matter)
    texts = [text for _, text in WIDGET_TEXT.findall(widget[1])] if widget else []
    for code in CODE_BLOCK.findall(card):
        try:
            statements = ast.parse(code).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for statement in statements:
            if not isinstance(statement, ast.Assign):
                continue
            target, value = statement.targets[0], statement.value
            if isinstance(target, ast.Name) and SOURCE_NAME.match(target.id):
                parts = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
                literals = [part.value for part in parts if isinstance(part, ast.Constant)]
                strings = [text for text in literals if isinstance(text, str)]
                texts += [text for text in strings if len(text.split()) >= MIN_WORDS]
    return list(dict.fromkeys(filter(str.strip, texts)))


def _read_card(folder: Path) -> tuple[str, str]:
    """Return README.md and its front matter, which are empty if there are none."""
    path = folder / CARD
    card = read_small_text(path, errors="replace") if path.is_file() else ""
    match = FRONT_MATTER.match(card)
    return card, match[1] if match else ""
