"""Write a web folder: a page that translates, and its model.

The folder has the page's own files, the npm packages, the files and the description of the model,
and the list of files that the page caches for offline use.
"""

import hashlib
import json
import shutil
from pathlib import Path

from tfk_transformer.constants import __version__
from tfk_transformer.data.shortlist import shortlist_metadata
from tfk_transformer.export import file_names
from tfk_transformer.export.parity import Figures
from tfk_transformer.export.to_web.npm_packages import copy_packages
from tfk_transformer.pipelines.bundle import SOURCE_TOKENIZER, TARGET_TOKENIZER, write_json
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.calibration import calibration_metadata

PAGE_FILES = Path(__file__).with_name("page")
MODEL_FOLDER = "model"
RUNTIME_FOLDER = "runtime"
OFFLINE_LIST = "files.js"


def write_web_page(
    translator: Translator,
    folder: Path,
    search: Path,
    score: Path,
    node_modules: Path,
    figures: Figures,
) -> None:
    """Write a web folder with copies of two ONNX files over ids: `search` translates, and `score`
    gives the attention that the page shows. `figures` are their parity figures.
    """
    shutil.copytree(PAGE_FILES, folder)
    copy_packages(node_modules, folder / RUNTIME_FOLDER)
    model = folder / MODEL_FOLDER
    model.mkdir()
    for file in (search, score):
        shutil.copyfile(file, model / file.name)
    files = {"search": search.name, "score": score.name, **_write_tokenizers(translator, model)}
    paths = {role: f"{MODEL_FOLDER}/{name}" for role, name in files.items()}
    write_json(
        folder / file_names.PAGE_DESCRIPTION, _description(translator, folder, paths, figures)
    )
    _write_offline_list(folder)


def _write_tokenizers(translator: Translator, model: Path) -> dict[str, str]:
    """Write the tokenizers, or one file if both sides share a tokenizer; return names by side."""
    source, target = translator.source_tokenizer, translator.target_tokenizer
    source.save(model / SOURCE_TOKENIZER)
    if source is target:
        return {"source": SOURCE_TOKENIZER, "target": SOURCE_TOKENIZER}
    target.save(model / TARGET_TOKENIZER)
    return {"source": SOURCE_TOKENIZER, "target": TARGET_TOKENIZER}


def _description(
    translator: Translator, folder: Path, files: dict[str, str], figures: Figures
) -> Figures:
    """Return the description for translate.mjs and the model card: `Model` in translate.d.mts."""
    config = translator.model.config
    runtime_files = (folder / RUNTIME_FOLDER).glob("*.wasm")
    loaded = {*files.values(), *(path.relative_to(folder).as_posix() for path in runtime_files)}
    return {
        "version": __version__,
        "int8": ".int8." in files["search"],
        "parameters": translator.model.count_params(),
        "config": config.model_dump(mode="json"),
        "settings": translator.runtime.rules,
        "origin": dict(translator.origin),
        "metrics": dict(translator.metrics),
        "sentences_per_text": translator.sentences_per_text,
        "parity": figures,
        **shortlist_metadata(translator.shortlist),
        **calibration_metadata(translator.calibration),
        "files": files,
        "bytes": {name: (folder / name).stat().st_size for name in sorted(loaded)},
    }


def _write_offline_list(folder: Path) -> None:
    """Write the list of files that the service worker caches on installation, and a version.

    The version changes with any file of the folder. The service worker caches the large files of
    the model and of onnxruntime when they are first used.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    version = hashlib.sha256()
    for path in paths:
        version.update(hashlib.sha256(path.read_bytes()).digest())
    names = [path.relative_to(folder).as_posix() for path in paths]
    shell = [
        name
        for name in names
        if name.endswith((".html", ".css", ".mjs")) or name == file_names.PAGE_DESCRIPTION
    ]
    listed = {"version": version.hexdigest()[:16], "shell": ["./", *shell]}
    (folder / OFFLINE_LIST).write_text(
        f"self.TFK_TRANSFORMER_FILES = {json.dumps(listed, indent=2)};\n", encoding="utf-8"
    )
