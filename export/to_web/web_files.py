"""Write the web folder of a translator, and compare its files, and the folder itself where Node is
installed, with the model.
"""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tfk_transformer.export import file_names, parity
from tfk_transformer.export.expected_results import ExpectedResults
from tfk_transformer.export.parity import Figures
from tfk_transformer.export.to_web.node_check import node_program, translate_in_node
from tfk_transformer.export.to_web.page_folder import write_web_page
from tfk_transformer.export.translator_files import WRITERS
from tfk_transformer.pipelines.translator import Translator

# By format: the format whose file translates in the page, the name of that file, and the folder.
WEB_SOURCES = {
    "web": ("onnx", file_names.GENERATE_FILE, file_names.WEB_FOLDER),
    "web_int8": (
        "onnx_int8",
        file_names.with_profile(file_names.GENERATE_FILE, "int8"),
        file_names.WEB_INT8_FOLDER,
    ),
}
SCORING = "onnx"  # the format whose `score.onnx` gives the attention
LINE_BREAK = re.compile("[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")  # Node reads a text a line
# Parameters: with more, an ONNX file has a second file, which JavaScript cannot read.
MAX_WEB_PARAMETERS = 500_000_000


def check_web(translator: Translator) -> None:
    """Refuse a translator that is too large for JavaScript.

    Raises:
        ValueError: if an ONNX file of its weights needs a second file.
    """
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
    written: dict[str, Figures],
) -> dict[str, Figures]:
    """Write web folders into the folder of an export.

    They hold copies of ONNX files of the export. Those that it has not written are written,
    compared with the model, and deleted.

    Args:
        translator: the translator, in float32.
        folder: the folder of the export.
        expected: the model's own results.
        formats: some of `WEB_SOURCES`.
        node_modules: the folder with the npm packages.
        written: the figures of the formats that the export has written.

    Returns:
        The parity figures by format.

    Raises:
        ParityError: if the results of the files, or of a folder in Node, differ from the model's.
    """
    needed = {SCORING, *(WEB_SOURCES[format][0] for format in formats)}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        places = {name: folder if name in written else Path(scratch) for name in needed}
        made = {
            name: written.get(name) or WRITERS[name](translator, Path(scratch), expected)
            for name in sorted(needed)
        }
        figures = {}
        for format in formats:
            onnx, search, name = WEB_SOURCES[format]
            exact = onnx == SCORING
            score = places[SCORING] / file_names.SCORE_FILE
            write_web_page(
                translator, folder / name, places[onnx] / search, score, node_modules, made[onnx]
            )
            figures[format] = {
                **made[onnx],
                "in_node": check_in_node(folder / name, *_translations(expected, exact), exact),
            }
    return figures


def _translations(expected: ExpectedResults, exact: bool) -> tuple[list[str], list[str]]:
    """Return the probe texts without line breaks, and the model's translations: greedily, or of
    weights of 8 bits by its beam search.
    """
    if exact:
        texts = expected.short_texts
        translations = expected.translator.target_tokenizer.decode(
            expected.greedy[expected.fitting].tolist()
        )
    else:
        texts, translations = expected.beam_texts, expected.beam_translations
    rows = [row for row, text in enumerate(texts) if not LINE_BREAK.search(text)]
    return [texts[row] for row in rows], [translations[row] for row in rows]


def check_in_node(
    folder: Path, texts: list[str], expected: list[str], exact: bool
) -> Figures | None:
    """Compare the translations of a folder in Node with the model's.

    Args:
        folder: the web folder.
        texts: probe texts without line breaks.
        expected: the model's translations, greedy if they must be equal.
        exact: whether they must be equal. Those of weights of 8 bits need only agree, as those of
            the ONNX file do.

    Returns:
        The figures, or None if Node is not installed.

    Raises:
        ParityError: if they differ.
    """
    node = node_program()
    if node is None:
        return None
    found = translate_in_node(node, folder, texts, parity.PROBE_SETTINGS[0] if exact else {})
    if exact:
        parity.compare_texts("web in Node", "translations", texts, expected, found)
        return {"sentences": len(texts), "texts": "equal"}
    agreement = parity.agreement(expected, found)
    if agreement < parity.AGREEMENT:
        raise parity.ParityError(
            f"web_int8 in Node: expected a BLEU over characters of {parity.AGREEMENT:g} with the "
            f"model's own translations of {len(texts)} "
            f"probe sentences, got {agreement:.1f}; export with the format web. Nothing was "
            "written."
        )
    return {"sentences": len(texts), "bleu_with_the_model": agreement}
