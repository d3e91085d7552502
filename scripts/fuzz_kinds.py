"""The kinds of files of scripts/fuzz.py: valid files, how to mutate them, and how to read them.

The 22 kinds make it longer than 60 lines.
"""

import gzip
import importlib
import importlib.util
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import mutations as to

TESTS = Path(__file__).parents[1] / "tests"
sys.path.append(str(TESTS))
IMPORTED = [
    "export.inspection",
    "export.runtime.onnx_runtime",
    "export.runtime.opening",
    "importing.model_import",
    "pipelines.translator",
    "search.model_functions",
    "training.checkpoints",
]
HAS_TORCH = importlib.util.find_spec("torch") is not None
DECODER = "model.npz.decoder.yml"
TEXTS = "texts/texts.txt.gz"
STATE_SHAPE = (3, 5)
CACHED = "the fuzzed pairs"
SEARCH = {"beam_size": 2, "max_length": 4}
GENERATION = {"num_beams": 4, "max_length": 9, "bad_words_ids": [[66]], "forced_eos_token_id": 0}


def import_modules() -> None:
    """Import what readers need, without running TensorFlow."""
    from tfk_transformer.runtime_environment import load_tensorflow

    load_tensorflow()
    for name in IMPORTED:
        importlib.import_module(f"tfk_transformer.{name}")


def make_folders(folder: Path) -> None:
    """Write the valid folders; those to import have random weights."""
    import ctranslate2_folder
    import marian_folder
    import marian_npz_folder
    import numpy as np

    from tfk_transformer.data.encoding import META, PairCache, Rows

    shutil.copytree(TESTS / "saved_files", folder / "saved")
    shutil.copytree(folder / "saved" / "bundle", folder / "bundle")
    marian_folder.write_folder(folder / "marian")
    (folder / "marian" / "generation_config.json").write_text(json.dumps(GENERATION))
    for name, options in {"npz": {}, "binary": {"student": True, "dtype": "int8"}}.items():
        (folder / name).mkdir()
        marian_npz_folder.write_file(folder / name, **options)
    (folder / "npz" / DECODER).write_text("models: [model.npz]\nbeam-size: 6\nnormalize: 0.6\n")
    ctranslate2_folder.write_marian(folder / "ctranslate2")
    (folder / "argos").mkdir()
    ctranslate2_folder.packed(folder / "argos" / "a.argosmodel", folder / "ctranslate2")
    shutil.copytree(folder / "marian", folder / "pickle", ignore=lambda *_: ["model.safetensors"])
    if HAS_TORCH:
        import safetensors.torch
        import torch

        tensors = safetensors.torch.load_file(folder / "marian" / "model.safetensors")
        torch.save(tensors, folder / "pickle" / "pytorch_model.bin")
    (folder / "texts").mkdir()
    (folder / TEXTS).write_bytes(gzip.compress("ein Hund\n\nfünf\r\n".encode(), mtime=0))
    (folder / "state").mkdir()
    about = np.array(json.dumps({"rows": [{"loss": 1.5}], "seconds": 2.5}))
    np.savez(folder / "state" / "state.npz", **{"0": np.zeros(STATE_SHAPE, "f4"), "about": about})
    shards = [(Rows.of([[5, 6], [7]]), Rows.of([[8], [9, 6]]))]
    [*PairCache(folder / "cache", CACHED, lambda _: shards).shards()]
    assert (folder / "cache" / META).is_file()
    write_saved_model(folder / "saved_model")


def write_saved_model(folder: Path) -> None:
    """Write a SavedModel with a signature and the constant that `inspect` reads."""
    import tensorflow as tf

    module = tf.Module()
    module.weight = tf.Variable(tf.zeros(STATE_SHAPE))
    module.config = tf.function(lambda: tf.constant('{"max_length": 9}'), input_signature=[])
    module.translate = tf.function(
        lambda text: text, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(module, folder, signatures={"translate": module.translate})


def use(model: Path, **options: int) -> None:
    """Describe a bundle or a file, open it and translate."""
    import tfk_transformer

    tfk_transformer.inspect(model)
    tfk_transformer.load(model, **options).translate(["one", "two hundred"], **SEARCH)


def use_onnx(folder: Path) -> None:
    """Describe an ONNX file, open it and translate."""
    try:
        use(folder / "translate.onnx", threads=1)
    except OSError as error:  # onnxruntime opened the graph, but refuses to run it
        raise ValueError(str(error)) from None


def use_recipe(folder: Path) -> None:
    """Read a recipe."""
    from tfk_transformer.training.recipe import Recipe

    Recipe.read(folder / "recipe.toml")


def use_saved_model(folder: Path) -> None:
    """Describe a SavedModel, which is a program and is not opened."""
    import tfk_transformer

    tfk_transformer.inspect(folder)


def use_import(folder: Path) -> None:
    """Import a model of another library, and translate."""
    from tfk_transformer.importing.model_import import import_model

    models = [*folder.glob("*.npz"), *folder.glob("model.bin")]
    packages = [*folder.glob("*.argosmodel")]
    vocab = [folder / "source.spm"] if models else []
    model = import_model(*(models or packages or [folder]), vocab=vocab)
    model.translate(["ka lo", "mi"], **SEARCH)


def use_state(folder: Path) -> None:
    """Restore the state of a training run with a single variable."""
    import keras

    from tfk_transformer.training.checkpoints import Checkpoints

    class Model:
        variables = [keras.Variable(keras.ops.zeros(STATE_SHAPE))]
        optimizer = type("Optimizer", (), {"variables": []})

    Checkpoints(folder).restore(Model)


def use_cache(folder: Path) -> None:
    """Read the ids of a data cache."""
    from tfk_transformer.data.encoding import PairCache
    from tfk_transformer.datasets import Report

    report = Report()
    for shard in PairCache(folder, CACHED, lambda _: []).shards(report):
        for rows in shard:
            rows.padded(range(len(rows)), (len(rows), int(rows.lengths.max(initial=1))))
    report.lines()


def use_texts(folder: Path) -> None:
    """Read lines as the text commands and as training do."""
    from tfk_transformer.datasets import load
    from tfk_transformer.formats.lines import LineReader, Texts

    file = folder / Path(TEXTS).name
    for _ in LineReader(file, Texts()):
        pass
    for _ in load(f"files:{file},{file}").pairs("train"):
        pass


class Kind(NamedTuple):
    """A kind of file: its path below `make_folders`, how to mutate it, and how to read a folder."""

    file: str
    mutate: Callable
    use: Callable[[Path], None]


KINDS = {
    "config": Kind("bundle/config.json", to.mutated_json, use),
    "metrics": Kind("bundle/metrics.json", to.mutated_json, use),
    "safetensors": Kind("bundle/model.safetensors", to.mutated_safetensors, use),
    "tokenizer": Kind("bundle/source.model", to.mutated_tokenizer, use),
    "recipe": Kind("bundle/recipe.toml", to.mutated_options, use_recipe),
    "onnx": Kind("saved/translate.onnx", to.mutated_onnx, use_onnx),
    "import config": Kind("marian/config.json", to.mutated_json, use_import),
    "import generation": Kind("marian/generation_config.json", to.mutated_json, use_import),
    "import vocabulary": Kind("marian/vocab.json", to.mutated_json, use_import),
    "import tokenizer": Kind("marian/source.spm", to.mutated_tokenizer, use_import),
    "import safetensors": Kind("marian/model.safetensors", to.mutated_safetensors, use_import),
    "import npz": Kind("npz/model.npz", to.mutated_archive, use_import),
    "import options": Kind(f"npz/{DECODER}", to.mutated_options, use_import),
    "import argos": Kind("argos/a.argosmodel", to.mutated_archive, use_import),
    "import binary": Kind("binary/model.bin", to.mutated_bytes, use_import),
    "saved model": Kind("saved_model/saved_model.pb", to.mutated_bytes, use_saved_model),
    "texts": Kind(TEXTS, to.mutated_gzip, use_texts),
    "state": Kind("state/state.npz", to.mutated_archive, use_state),
    "cache": Kind("cache/cache.json", to.mutated_json, use_cache),
    "cache ids": Kind("cache/00000.0.ids.npy", to.mutated_npy, use_cache),
    "cache ends": Kind("cache/00000.1.ends.npy", to.mutated_npy, use_cache),
}
if HAS_TORCH:
    KINDS["import pickle"] = Kind("pickle/pytorch_model.bin", to.mutated_pickle, use_import)
