"""Fuzz the readers that are written in Python with atheris; they may raise only ValueError.

pip install atheris (Linux, Python 3.11)
python scripts/fuzz_readers.py [FOLDER_OF_INPUTS] -max_total_time=3600
"""

import os
import sys
import tempfile
from pathlib import Path

import atheris

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with atheris.instrument_imports(include=["tfk_transformer"]):
    from tfk_transformer.apps.cli.arguments import named_value
    from tfk_transformer.config import array_files
    from tfk_transformer.config.search_settings import resolve_settings
    from tfk_transformer.config.small_files import one_line_error, parse_json, parse_yaml
    from tfk_transformer.data.labels import Labels
    from tfk_transformer.export.runtime.sessions import parse_metadata
    from tfk_transformer.models.registry import config_from_json
    from tfk_transformer.pipelines.text_classifier import _check_labels
    from tfk_transformer.pipelines.weights import read_shapes
    from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
    from tfk_transformer.training.recipe import Recipe

FILE = Path(
    tempfile.mkdtemp(dir="/dev/shm"), "content"
)  # the content, for readers that take a path


def read_settings(content: bytes) -> None:
    """Check the default settings in a file's metadata, as `OnnxTranslator` does."""
    metadata = parse_metadata(content.decode("utf-8", "replace"), "fuzzed.onnx")
    if "search" in metadata:
        rules = metadata["search"]
        resolve_settings({name: rule.get("default") for name, rule in rules.items()}, rules)


def read_npz(_: bytes) -> None:
    """Read the arrays of an archive. A border catches all errors: this finds what takes long."""
    with one_line_error(".npz: "), array_files.open_archive(FILE) as archive:
        for name in array_files.npz_headers(archive):
            array_files.read_npz(archive, name)


def read_options(content: bytes) -> None:
    """Read YAML; see `read_npz`."""
    with one_line_error("YAML: "):
        parse_yaml(content)


READERS = [
    read_npz,
    read_options,
    Labels,
    config_from_json,
    read_settings,
    lambda _: read_shapes(FILE),
    lambda _: Recipe.read(FILE),
    lambda content: _check_labels(parse_json(content, "labels.json"), num_classes=2),
    lambda content: named_value(content.decode("utf-8", "replace"), "--setting", "beam_size=1"),
    SubwordTokenizer,
]


def read(data: bytes) -> None:
    """Pass the bytes after the first byte to the reader that the first byte selects."""
    if data:
        FILE.write_bytes(data[1:])
        try:
            READERS[data[0] % len(READERS)](data[1:])
        except ValueError as error:
            assert "\n" not in str(error), str(error)


atheris.Setup(sys.argv, read)
atheris.Fuzz()
