"""The environment of Apache Beam, PySpark and Ray, which `scripts/beam` makes next to .venv."""

import os
from pathlib import Path

import pytest

FOLDER = (
    Path(os.environ.get("TFK_TRANSFORMER_BEAM", Path(__file__).parents[1] / ".venv-beam")) / "bin"
)
PYTHON = FOLDER / "python"
needs_beam = pytest.mark.skipif(
    not PYTHON.exists(), reason="Apache Beam is not installed: scripts/beam"
)
