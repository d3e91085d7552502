"""Build the package. The folder `export/` is installed as `tfk_transformer.export`.

The variable REPOSITORY, such as https://github.com/OWNER/NAME, is the address in the metadata of a
release.
"""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
constants = (HERE / "tfk_transformer" / "constants.py").read_text(encoding="utf-8")
version = re.search(r'__version__ = "(.+)"', constants).group(1)
exported = [
    "tfk_transformer.export",
    *(f"tfk_transformer.export.{name}" for name in find_packages("export")),
]

# PyPI shows README.md as the description, and resolves no relative link or image.
description = (HERE / "README.md").read_text(encoding="utf-8")
urls = {}
if repository := os.environ.get("REPOSITORY"):
    files = f"{repository}/blob/v{version}"
    pictures = f"{repository}/raw/v{version}"
    description = re.sub(r"(!\[[^]]*\]\()(?!\w+:)", rf"\g<1>{pictures}/", description)
    description = re.sub(r"\]\((?!\w+:|#)", f"]({files}/", description)
    urls = {
        "Source": repository,
        "Documentation": f"{files}/docs/index.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }

setup(
    version=version,
    long_description=description,
    long_description_content_type="text/markdown",
    project_urls=urls,
    packages=[*find_packages(include=["tfk_transformer", "tfk_transformer.*"]), *exported],
    package_dir={"tfk_transformer.export": "export"},
    package_data={
        "tfk_transformer": ["py.typed", "apps/cli/commands/template/*"],
        "tfk_transformer.plots": ["explorer.html"],
        "tfk_transformer.export.to_onnx.templates": ["*.onnx"],
        "tfk_transformer.export.to_web": ["page/*"],
    },
)
