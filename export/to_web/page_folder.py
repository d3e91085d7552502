"""Write the folder of a page: its own files, the npm packages, the model's description, and the
list of files that it keeps offline.
"""

import hashlib
import json
import shutil
from pathlib import Path

import tfk_transformer
from tfk_transformer.config.search_settings import setting_rules
from tfk_transformer.data.shortlist import about_shortlist
from tfk_transformer.export import file_names
from tfk_transformer.export.parity import Figures
from tfk_transformer.export.to_web.npm_packages import copy_packages
from tfk_transformer.pipelines.bundle import SOURCE_TOKENIZER, TARGET_TOKENIZER, write_json
from tfk_transformer.pipelines.translator import Translator

PAGE_FILES = Path(__file__).with_name("page")
MODEL, RUNTIME = "model", "runtime"  # folders in the page's
OFFLINE = "files.js"
WASM = ".wasm"


def write_web_page(
    translator: Translator,
    folder: Path,
    search: Path,
    score: Path,
    node_modules: Path,
    figures: Figures,
) -> None:
    """Write the folder of a page.

    Args:
        translator: the translator.
        folder: the folder, which must not exist.
        search: the ONNX file over ids that translates; it is copied.
        score: the ONNX file that scores pairs of ids, whose attention the page shows; it is copied.
        node_modules: the folder with the npm packages.
        figures: the parity figures of the ONNX files.
    """
    shutil.copytree(PAGE_FILES, folder)
    copy_packages(node_modules, folder / RUNTIME)
    model = folder / MODEL
    model.mkdir()
    for file in (search, score):
        shutil.copyfile(file, model / file.name)
    files = {"search": search.name, "score": score.name, **_write_tokenizers(translator, model)}
    paths = {role: f"{MODEL}/{name}" for role, name in files.items()}
    write_json(
        folder / file_names.PAGE_DESCRIPTION, _description(translator, folder, paths, figures)
    )
    _write_offline_list(folder)


def _write_tokenizers(translator: Translator, model: Path) -> dict[str, str]:
    """Write the tokenizers, one file if both sides have the same; return their names by side."""
    sides = {
        "source": (SOURCE_TOKENIZER, translator.source_tokenizer),
        "target": (TARGET_TOKENIZER, translator.target_tokenizer),
    }
    if translator.source_tokenizer is translator.target_tokenizer:
        sides["target"] = sides["source"]
    for name, tokenizer in sides.values():
        tokenizer.save(model / name)
    return {side: name for side, (name, _) in sides.items()}


def _description(
    translator: Translator, folder: Path, files: dict[str, str], figures: Figures
) -> Figures:
    """Return what translate.mjs and the model card read: `Model` in translate.d.mts."""
    config = translator.model.config
    loaded = {
        *files.values(),
        *(str(path.relative_to(folder)) for path in (folder / RUNTIME).glob(f"*{WASM}")),
    }
    return {
        "version": tfk_transformer.__version__,
        "int8": ".int8." in files["search"],
        "parameters": translator.model.count_params(),
        "config": config.model_dump(mode="json"),
        "settings": setting_rules(config.max_length, config.target_vocab_size),
        "origin": dict(translator.origin),
        "metrics": dict(translator.metrics),
        "parity": figures,
        **about_shortlist(translator.shortlist),
        "files": files,
        "bytes": {name: (folder / name).stat().st_size for name in sorted(loaded)},
    }


def _write_offline_list(folder: Path) -> None:
    """Write the names of the files that the service worker keeps at once, and a name for this
    version of the folder.

    The large files of the model and of onnxruntime are kept when they are used.
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
    (folder / OFFLINE).write_text(
        f"self.TFK_TRANSFORMER_FILES = {json.dumps(listed, indent=2)};\n", encoding="utf-8"
    )
