"""Configuration of the documentation site; `scripts/site` builds it, and any warning is an error.

The pages are the Markdown files of this folder, and README.md, CONTRIBUTING.md, CHANGELOG.md and
SECURITY.md. `api_pages` writes the API reference from docstrings.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import api_pages  # noqa: E402

import tfk_transformer  # noqa: E402

project = "tfk_transformer"
release = tfk_transformer.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["fieldlist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "pictures/README.md"]
highlight_language = "none"
maximum_signature_line_length = 100
add_module_names = False
toc_object_entries = False

html_theme = "furo"
html_title = "tfk_transformer"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_copyright = False

# Pages of the site whose text stands at the root of the repository.
ROOT_PAGES = {
    "index": "README.md",
    "contributing": "CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
    "reporting": "SECURITY.md",
}


def from_the_root(name: str) -> str:
    """Return a Markdown file of the repository's root with its links made relative to this
    folder.
    """
    text = (HERE.parent / name).read_text(encoding="utf-8")
    for page, file in ROOT_PAGES.items():
        text = text.replace(f"]({file})", f"]({page}.md)")
    text = re.sub(r"\]\((?=(?:scripts|recipes|benchmarks|tests|locks|LICENSE)\b)", "](../", text)
    return text.replace("](docs/", "](")


def add_root_page(app, docname: str, source: list[str]) -> None:
    """Put the text of a root page before the content of the page in this folder (its table of
    contents), and link to its page. Pages of benchmarks/ and locks/ are not part of the site: links
    to them are downloads, like links to other files outside of this folder.
    """
    if docname in ROOT_PAGES:
        source[0] = f"{from_the_root(ROOT_PAGES[docname])}\n\n{source[0]}"
    for page, file in ROOT_PAGES.items():
        source[0] = source[0].replace(f"](../{file}", f"]({page}.md")
    source[0] = re.sub(
        r"\]\((\.\./(?:benchmarks|locks)/[\w-]+\.md)(?:#[\w-]+)?\)", r"](path:\1)", source[0]
    )


def setup(app) -> None:
    """Write the API pages and connect the hook; Sphinx calls this."""
    api_pages.write(HERE.parent, HERE / "api")
    app.connect("source-read", add_root_page)
