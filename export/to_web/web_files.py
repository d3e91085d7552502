"""Write the web folders of a translator, and compare them with the model if Node is installed.

A folder has the page's own files, the npm packages, the files and the description of the model, and
the list of files that the page caches for offline use.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfk_transformer.config.setting_values import setting_text
from tfk_transformer.constants import __version__
from tfk_transformer.data.shortlist import shortlist_metadata
from tfk_transformer.export import file_names, parity
from tfk_transformer.export.expected_results import ExpectedResults
from tfk_transformer.export.formats import RESULTS, WEB_SOURCES
from tfk_transformer.export.parity import Figures
from tfk_transformer.export.to_web.npm_packages import copy_packages
from tfk_transformer.formats.lines import ANY_LINE_END
from tfk_transformer.pipelines.bundle import SOURCE_TOKENIZER, TARGET_TOKENIZER, write_json
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.calibration import calibration_metadata

PAGE_FILES = Path(__file__).with_name("page")
MODEL_FOLDER = "model"
RUNTIME_FOLDER = "runtime"
OFFLINE_LIST = "files.js"

# The file that translates in a page, by the format that the page is made from.
SEARCH_FILES = {
    "onnx": file_names.GENERATE_FILE,
    "onnx_int8": file_names.GENERATE_INT8_FILE,
}
SCORING = "onnx"  # the format with `score.onnx`, which returns the attention
# The ONNX file of a larger model has a second file, which JavaScript cannot read.
MAX_WEB_PARAMETERS = 500_000_000
MIN_NODE_VERSION = 20


def check_web(translator: Translator) -> None:
    """Refuse a translator that is too large for JavaScript."""
    if (count := translator.model.count_params()) > MAX_WEB_PARAMETERS:
        raise ValueError(
            f"formats: expected a model of at most {MAX_WEB_PARAMETERS:,} parameters for web, got "
            f"{count:,}. Nothing was written."
        )


def write_web(
    expected: ExpectedResults,
    folder: Path,
    name: str,
    node_modules: Path,
    folders: Mapping[str, Path],
    figures: Figures,
) -> Figures:
    """Write a web folder into the folder of an export, and return its parity figures.

    It has copies of two ONNX files over ids: one translates, with these parity figures, and the
    other one gives the attention that the page shows. `folders` are the folders of their formats.
    """
    onnx = WEB_SOURCES[name]
    path = folder / RESULTS[name]
    shutil.copytree(PAGE_FILES, path)
    copy_packages(node_modules, path / RUNTIME_FOLDER)
    model = path / MODEL_FOLDER
    model.mkdir()
    search, score = SEARCH_FILES[onnx], file_names.SCORE_FILE
    shutil.copyfile(folders[onnx] / search, model / search)
    shutil.copyfile(folders[SCORING] / score, model / score)
    translator = expected.translator
    source, target = translator.source_tokenizer, translator.target_tokenizer
    files = {
        "search": search,
        "score": score,
        "source": SOURCE_TOKENIZER,
        "target": SOURCE_TOKENIZER if source is target else TARGET_TOKENIZER,
    }
    source.save(model / SOURCE_TOKENIZER)
    if source is not target:
        target.save(model / TARGET_TOKENIZER)
    paths = {role: f"{MODEL_FOLDER}/{file}" for role, file in files.items()}
    write_json(path / file_names.PAGE_DESCRIPTION, _description(translator, path, paths, figures))
    _write_offline_list(path)
    return {**figures, "in_node": check_in_node(path, expected, exact=onnx == SCORING)}


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
    """Write the version of all files, and the files that the service worker caches on installation.

    It caches the large files when they are first used.
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


def check_in_node(folder: Path, expected: ExpectedResults, exact: bool) -> Figures | None:
    """Compare the translations of a folder in Node with the model's; None without a recent Node.

    If `exact`, the translations must equal the model's, which are of greedy search. With 8-bit
    weights, they have the limits of the translations of the ONNX file.
    """
    # Node reads one text per line.
    rows = [
        row
        for row in (expected.fitting if exact else expected.int8_rows)
        if not ANY_LINE_END.search(expected.texts[row])
    ]
    texts = [expected.texts[row] for row in rows]
    settings = expected.greedy_settings if exact else expected.beam_settings
    results = translate_in_node(folder, texts, settings)
    if results is None:
        return None
    if exact:
        translations = expected.translator.target_tokenizer.decode(expected.greedy[rows].tolist())
        got = [result["text"] for result in results]
        parity.compare_texts("web in Node", "translations", texts, translations, got)
        return {"sentences": len(texts), "texts": "equal"}
    ids = [result["ids"] for result in results]
    padded = np.zeros((len(ids), max(map(len, ids), default=1)), "int32")
    for row, tokens in zip(padded, ids, strict=True):
        row[: len(tokens)] = tokens
    figures = expected.int8_figures(rows, padded)
    if error := expected.int8_limits.error("web_int8 in Node", figures):
        raise error
    return figures


def translate_in_node(
    folder: Path, texts: Sequence[str], settings: Mapping[str, Any]
) -> list[dict[str, Any]] | None:
    """Translate texts without line breaks, each as one sentence and exactly as it is.

    Returns the JSON objects of `translate-cli.mjs`; None without a recent Node.
    """
    node = shutil.which("node")
    if node is None:
        return None
    # The output looks like "v20.20.2".
    version = subprocess.run([node, "--version"], capture_output=True, encoding="utf-8").stdout
    major = version.removeprefix("v").partition(".")[0]
    if not major.isdecimal() or int(major) < MIN_NODE_VERSION:
        return None
    command = [node, str(folder / "translate-cli.mjs"), "--json", "--no-split-sentences"]
    for name, value in settings.items():
        command += [f"--{name.replace('_', '-')}", setting_text(value)]
    process = subprocess.run(
        command, input="".join(f"{text}\n" for text in texts), capture_output=True, encoding="utf-8"
    )
    if process.returncode:
        # Node also writes the lines of the code that failed.
        lines = [line for line in process.stderr.splitlines() if line.strip()]
        last_line = lines[-1] if lines else "no message"
        error = next((line for line in lines if "Error" in line), last_line)
        raise ValueError(
            f"web: expected a folder that runs in Node, got the failure: {error}. "
            "Nothing was written."
        )
    return [json.loads(line) for line in process.stdout.splitlines()]
