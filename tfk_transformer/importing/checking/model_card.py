"""The license and the example texts in the README.md of a model's folder. No code in it is run."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tfk_transformer.config.small_files import read_small_text
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.hugging_face.model_folder import CONFIG, read_optional_json

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


def read_license(folder: Path) -> str | None:
    """Return the license from the front matter of a folder's README.md or from its config.json."""
    line = LICENSE.search(_front_matter(_read_card(folder)))
    stated = line[1] if line else read_optional_json(folder / CONFIG).get("license")
    return shorten(stated) if isinstance(stated, str) else None


def read_examples(folder: Path) -> list[str]:
    """Return the source texts of the examples in a folder's README.md, each once."""
    card = _read_card(folder)
    widget = WIDGET.search(_front_matter(card))
    texts = [text for _, text in WIDGET_TEXT.findall(widget[1])] if widget else []
    for code in CODE_BLOCK.findall(card):
        texts += _code_texts(code)
    return list(dict.fromkeys(filter(str.strip, texts)))


def _read_card(folder: Path) -> str:
    path = folder / CARD
    return read_small_text(path, errors="replace") if path.is_file() else ""


def _front_matter(card: str) -> str:
    match = FRONT_MATTER.match(card)
    return match[1] if match else ""


def _code_texts(code: str) -> Iterator[str]:
    """Yield the texts that Python code assigns to variables whose names are usual for sources."""
    try:
        statements = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for statement in statements:
        if not isinstance(statement, ast.Assign):
            continue
        target, value = statement.targets[0], statement.value
        if not isinstance(target, ast.Name) or not SOURCE_NAME.match(target.id):
            continue
        for part in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
            text = part.value if isinstance(part, ast.Constant) else None
            if isinstance(text, str) and len(text.split()) >= MIN_WORDS:
                yield text
