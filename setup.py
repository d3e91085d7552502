"""Builds the package; `export/` at the top level installs as `tfk_transformer.export`."""

import re
from pathlib import Path

from setuptools import setup

version = re.search(r'__version__ = "(.+)"', Path(__file__).with_name("tfk_transformer").joinpath("__init__.py").read_text())

setup(
    version=version.group(1),
    packages=["tfk_transformer", "tfk_transformer.datasets", "tfk_transformer.export"],
    package_dir={"tfk_transformer.export": "export"},
)
