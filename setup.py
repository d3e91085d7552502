"""Build the package. The folder `export/` is installed as `tfk_transformer.export`."""

import re
from pathlib import Path

from setuptools import find_packages, setup

version = re.search(
    r'__version__ = "(.+)"',
    Path(__file__).with_name("tfk_transformer").joinpath("constants.py").read_text(),
)
exported = [
    "tfk_transformer.export",
    *(f"tfk_transformer.export.{name}" for name in find_packages("export")),
]

setup(
    version=version.group(1),
    packages=[*find_packages(include=["tfk_transformer", "tfk_transformer.*"]), *exported],
    package_dir={"tfk_transformer.export": "export"},
    package_data={
        "tfk_transformer": ["py.typed", "apps/cli/commands/template/*"],
        "tfk_transformer.plots": ["explorer.html"],
        "tfk_transformer.export.to_onnx.templates": ["*.onnx"],
        "tfk_transformer.export.to_web": ["page/*"],
    },
)
