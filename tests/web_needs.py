"""What the tests of web folders need, and how they are skipped without it."""

import json
import os
import shutil
import subprocess
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


def visit(script, task, home):
    """Run a program of `tests/web` that opens Chromium, and return what it prints.

    Args:
        script: the name of the program.
        task: JSON values for the program, in addition to the browser and its profile.
        home: an empty folder.
    """
    done = subprocess.run(
        ["node", Path(__file__).parent / "web" / script],
        input=json.dumps({"program": browser(), "profile": str(home / "profile"), **task}),
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "HOME": str(home)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
