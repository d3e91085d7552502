"""What the tests of web folders need, and how they are skipped without it."""

import shutil
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
NODE_MODULES = SCRIPTS / "node_modules"
INSTALL = f"npm ci --ignore-scripts --prefix {SCRIPTS.name}"


def missing_packages(*names):
    return [name for name in names if not (NODE_MODULES / name).is_dir()]


def needs(*packages):
    missing = missing_packages(*packages)
    return pytest.mark.skipif(
        bool(missing), reason=f"{', '.join(missing)} not installed: {INSTALL}"
    )


def browser():
    """Return the path of Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def needs_node():
    return pytest.mark.skipif(not shutil.which("node"), reason="Node is not installed")
