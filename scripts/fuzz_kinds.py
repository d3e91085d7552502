"""The kinds of files of scripts/fuzz.py: valid files, how to mutate them, and how to read them.

The 13 kinds make it longer than 60 lines.
"""

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import mutations as to
import onnxruntime

TESTS = Path(__file__).parents[1] / "tests"
sys.path.append(str(TESTS))
IMPORTED = [
    "export.inspection",
    "export.runtime.onnx_runtime",
    "export.runtime.opening",
    "importing.model_import",
    "pipelines.translator",
    "search.model_functions",
]
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
    import marian_folder
    import marian_npz_folder

    shutil.copytree(TESTS / "saved_files", folder / "saved")
    shutil.copytree(folder / "saved" / "bundle", folder / "bundle")
    marian_folder.write_folder(folder / "marian")
    (folder / "marian" / "generation_config.json").write_text(json.dumps(GENERATION))
    for name, options in {"npz": {}, "binary": {"student": True, "dtype": "int8"}}.items():
        (folder / name).mkdir()
        marian_npz_folder.write_file(folder / name, **options)


def use(model: Path, **options: int) -> None:
    """Describe a bundle or a file, open it and translate."""
    import tfk_transformer

    tfk_transformer.inspect(model)
    tfk_transformer.load(model, **options).translate(["one", "two hundred"], **SEARCH)


def use_onnx(folder: Path) -> None:
    """Describe an ONNX file, open it and translate."""
    errors = onnxruntime.capi.onnxruntime_pybind11_state
    try:
        use(folder / "translate.onnx", threads=1)
    except (errors.Fail, errors.InvalidArgument) as error:
        # onnxruntime opened the graph, but refuses to run it.
        raise ValueError(str(error).splitlines()[0]) from None


def use_recipe(folder: Path) -> None:
    """Read a recipe."""
    from tfk_transformer.training.recipe import Recipe

    Recipe.read(folder / "recipe.toml")


def use_import(folder: Path) -> None:
    """Import a model of another library, and translate."""
    from tfk_transformer.importing.model_import import import_model

    models = [*folder.glob("*.npz"), *folder.glob("model.bin")]
    model = import_model(*models, vocab=[folder / "source.spm"]) if models else import_model(folder)
    model.translate(["ka lo", "mi"], **SEARCH)


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
    "recipe": Kind("bundle/recipe.toml", to.mutated_bytes, use_recipe),
    "onnx": Kind("saved/translate.onnx", to.mutated_onnx, use_onnx),
    "import config": Kind("marian/config.json", to.mutated_json, use_import),
    "import generation": Kind("marian/generation_config.json", to.mutated_json, use_import),
    "import vocabulary": Kind("marian/vocab.json", to.mutated_json, use_import),
    "import tokenizer": Kind("marian/source.spm", to.mutated_tokenizer, use_import),
    "import safetensors": Kind("marian/model.safetensors", to.mutated_safetensors, use_import),
    "import npz": Kind("npz/model.npz", to.mutated_bytes, use_import),
    "import binary": Kind("binary/model.bin", to.mutated_bytes, use_import),
}
