"""The lock files belong to pyproject.toml and constraints.txt, and the table of licenses to what is
installed.
"""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY / "scripts"))

import licenses  # noqa: E402

PINNED = r"(?m)^([\w.-]+)==([\w.]+)(?: ;.*?)?(?: \\)?$"


def pins(path: str) -> dict[str, str]:
    return {
        canonicalize_name(name): version
        for name, version in re.findall(PINNED, (REPOSITORY / path).read_text())
    }


def dependencies(*extras: str) -> set[str]:
    """The packages that pyproject.toml asks for, with those of extras within extras."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    found = set()
    for text in project["dependencies"] + [
        text for extra in extras for text in project["optional-dependencies"][extra]
    ]:
        requirement = Requirement(text)
        found |= (
            dependencies(*requirement.extras)
            if requirement.name == "tfk-transformer"
            else {canonicalize_name(requirement.name)}
        )
    return found


@pytest.mark.parametrize(("lock", "extras"), [("light", ()), ("tensorflow", ("tensorflow",))])
def test_locks_follow_constraints(lock, extras):
    locked, constrained = pins(f"locks/{lock}.txt"), pins("constraints.txt")
    assert dependencies(*extras) <= set(locked), "run scripts/lock"
    different = {
        name: version
        for name, version in locked.items()
        if constrained.get(name, version) != version
    }
    assert different == {}, "run scripts/lock"


def test_beam_lock_differs_minimally():
    """Its environment is not .venv. docs/dependencies.md names the packages."""
    locked, constrained = pins("locks/beam.txt"), pins("constraints.txt")
    assert dependencies("beam") | {"pandas", "pyspark", "ray"} <= set(locked), "run scripts/lock"
    different = {
        name for name, version in locked.items() if constrained.get(name, version) != version
    }
    assert different == {"pandas", "pillow", "protobuf", "pyarrow", "python-dateutil"}, (
        "run scripts/lock, and correct docs/dependencies.md"
    )


@pytest.mark.parametrize("lock", ["light", "tensorflow", "tools", "beam"])
def test_locked_packages_have_hashes(lock):
    text = (REPOSITORY / f"locks/{lock}.txt").read_text()
    entries = re.split(r"\n(?=[a-zA-Z])", text.split("\n", 2)[2])
    assert len(entries) == len(pins(f"locks/{lock}.txt"))
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []


def test_other_licenses_are_refused():
    good = {"some": "MIT", "other": "Apache-2.0 OR BSD-2-Clause", "num2words": "LGPL"}
    assert licenses.refused(good) == []
    bad = {"a": "GPL-3.0-only", "b": "MIT AND SSPL-1.0", "c": "LGPL", "d": "none declared"}
    lines = licenses.refused(bad)
    assert len(lines) == 4
    assert re.match(
        (
            "a: expected licenses of 0BSD, Apache-2.0, .*, got GPL-3.0-only; replace the "
            "package, or add an exception"
        ),
        lines[0],
    )


def test_license_table_is_current():
    """Sizes may differ between platforms, and the last column is not compared."""
    page = (REPOSITORY / "locks" / "licenses.md").read_text(encoding="utf-8")
    written = [line.rpartition("| ")[0] for line in page.splitlines() if line.startswith("| ")][2:]
    assert written == [row.rpartition("| ")[0] for row in licenses.table()], "run licenses.py"


def test_installed_licenses_are_permitted():
    packages = licenses.locked("tensorflow")
    assert {"numpy", "onnxruntime", "sentencepiece", "tensorflow"} <= set(packages)
    assert licenses.refused({name: licenses.license_of(packages[name]) for name in packages}) == []
