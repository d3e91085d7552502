"""Write the web folders of a translator, and compare them with the model.

The folders are run and compared only if Node is installed.
"""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tfk_transformer.config.setting_values import setting_text
from tfk_transformer.export import file_names, parity
from tfk_transformer.export.expected_results import ExpectedResults
from tfk_transformer.export.formats import FORMAT_BY_NAME, load_writer
from tfk_transformer.export.parity import Figures
from tfk_transformer.export.to_web.page_folder import write_web_page
from tfk_transformer.pipelines.translator import Translator

# The file that translates in a page, by the format that the page is made from.
SEARCH_FILES = {
    "onnx": file_names.GENERATE_FILE,
    "onnx_int8": file_names.with_profile(file_names.GENERATE_FILE, "int8"),
}
SCORING = "onnx"  # the format with `score.onnx`, which returns the attention
LINE_BREAK = re.compile("[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")  # Node reads one text per line
# The ONNX file of a larger model has a second file, which JavaScript cannot read.
MAX_WEB_PARAMETERS = 500_000_000
MIN_NODE_VERSION = 18


def check_web(translator: Translator) -> None:
    """Refuse a translator that is too large for JavaScript."""
    if (count := translator.model.count_params()) > MAX_WEB_PARAMETERS:
        raise ValueError(
            f"formats: expected a model of at most {MAX_WEB_PARAMETERS:,} parameters for web, got "
            f"{count:,}. "
            "Nothing was written."
        )


def write_web(
    translator: Translator,
    folder: Path,
    expected: ExpectedResults,
    formats: Sequence[str],
    node_modules: Path,
    written: Mapping[str, Figures],
) -> dict[str, Figures]:
    """Write web folders into the folder of an export, and return the parity figures by format.

    Web folders have copies of the ONNX files of the export. If the export does not have a file, it
    is written to a temporary folder and compared with the model. `written` are the figures of the
    formats that the export has.
    """
    pages = [FORMAT_BY_NAME[name] for name in formats]
    onnx_formats = sorted({SCORING, *(page.web_source for page in pages)})
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        folders = {name: folder if name in written else Path(scratch) for name in onnx_formats}
        onnx_figures = {
            name: written.get(name)
            or load_writer(FORMAT_BY_NAME[name].writer)(translator, Path(scratch), expected)
            for name in onnx_formats
        }
        figures = {}
        for page in pages:
            onnx = page.web_source
            path = folder / page.result
            write_web_page(
                translator,
                path,
                folders[onnx] / SEARCH_FILES[onnx],
                folders[SCORING] / file_names.SCORE_FILE,
                node_modules,
                onnx_figures[onnx],
            )
            exact = onnx == SCORING
            texts, translations = _translations(expected, exact)
            settings = expected.searches[0 if exact else 1].settings
            node_figures = check_in_node(path, texts, translations, exact, settings)
            figures[page.name] = {**onnx_figures[onnx], "in_node": node_figures}
    return figures


def _translations(expected: ExpectedResults, exact: bool) -> tuple[list[str], list[str]]:
    """Return the probe texts without line breaks, and the model's translations of them.

    Greedy search is used for exact comparisons, and beam search for 8-bit weights.
    """
    texts, translations = expected.beam_texts, expected.beam_translations
    if exact:
        texts = expected.short_texts
        ids = expected.greedy[expected.fitting].tolist()
        translations = expected.translator.target_tokenizer.decode(ids)
    rows = [row for row, text in enumerate(texts) if not LINE_BREAK.search(text)]
    return [texts[row] for row in rows], [translations[row] for row in rows]


def check_in_node(
    folder: Path,
    texts: list[str],
    expected: list[str],
    exact: bool,
    search: Mapping[str, Any] = MappingProxyType({}),
) -> Figures | None:
    """Compare the translations of a folder in Node with the model's, and return the figures; None
    if Node is not installed.

    Args:
        folder: the web folder.
        texts: probe texts without line breaks.
        expected: the model's translations, by greedy search if they must be equal.
        exact: whether the translations must be equal. With 8-bit weights, they must only agree as
            closely as the translations of the ONNX file.
        search: the settings of the model's search. Default: the folder's own.
    """
    node = _node_program()
    if node is None:
        return None
    settings = {**parity.GREEDY, **search} if exact else search
    translations = _translate_in_node(node, folder, texts, settings)
    if exact:
        parity.compare_texts("web in Node", "translations", texts, expected, translations)
        return {"sentences": len(texts), "texts": "equal"}
    agreement = parity.agreement(expected, translations)
    if agreement < parity.AGREEMENT:
        raise parity.ParityError(
            f"web_int8 in Node: expected a BLEU over characters of {parity.AGREEMENT:g} with the "
            f"model's own translations of {len(texts)} "
            f"probe sentences, got {agreement:.1f}; export with the format web. Nothing was "
            "written."
        )
    return {"sentences": len(texts), "bleu_with_the_model": agreement}


def _node_program() -> str | None:
    """Return the path of Node; None if Node is not installed or too old for the folder."""
    node = shutil.which("node")
    if node is None:
        return None
    version = subprocess.run([node, "--version"], capture_output=True, encoding="utf-8").stdout
    # The output looks like "v20.20.2".
    major = version.removeprefix("v").partition(".")[0]
    return node if major.isdecimal() and int(major) >= MIN_NODE_VERSION else None


def _translate_in_node(
    node: str, folder: Path, texts: Sequence[str], settings: Mapping[str, Any]
) -> list[str]:
    """Translate texts without line breaks, each as one sentence and exactly as it is."""
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
    return [json.loads(line)["text"] for line in process.stdout.splitlines()]
