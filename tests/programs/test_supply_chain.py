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
    assert different == {"pillow", "protobuf", "pyarrow", "python-dateutil"}, (
        "run scripts/lock, and correct docs/dependencies.md"
    )


@pytest.mark.parametrize("lock", ["light", "tensorflow", "tools", "beam"])
def test_locked_packages_have_hashes(lock):
    text = (REPOSITORY / f"locks/{lock}.txt").read_text()
    entries = re.split(r"\n(?=[a-zA-Z])", text.split("\n", 2)[2])
    assert len(entries) == len(pins(f"locks/{lock}.txt"))
    assert [entry for entry in entries if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry)] == []


def package(license: str, name: str = "some", megabytes: float = 10.0) -> licenses.Package:
    return licenses.Package(name, license, "light", megabytes)


def test_other_licenses_are_refused():
    good = [
        package("MIT"),
        package("Apache-2.0 OR BSD-2-Clause"),
        package("LGPL", name="num2words"),
    ]
    assert licenses.refused(good) == []
    bad = [
        package("GPL-3.0-only"),
        package("MIT AND SSPL-1.0"),
        package("LGPL"),
        package("none declared"),
    ]
    lines = licenses.refused(bad)
    assert len(lines) == 4
    assert re.match(
        (
            "some: expected licenses of 0BSD, Apache-2.0, .*, got GPL-3.0-only; replace the "
            "package, or add an exception"
        ),
        lines[0],
    )


def test_stale_table_is_reported():
    def page(*packages):
        return f"before\n{licenses.BEGIN}{licenses.table(list(packages))}{licenses.END}\nafter\n"

    ours = [package("MIT"), package("ISC", name="other")]
    assert licenses.check(ours, page(*ours)) == []
    assert licenses.check(ours, page(package("MIT", megabytes=9.0), ours[1])) == []
    for written in (
        [ours[0]],
        [*ours, package("MIT", name="third")],
        [package("ISC"), ours[1]],
        [package("MIT", megabytes=7.0), ours[1]],
    ):
        (line,) = licenses.check(ours, page(*written))
        assert "run scripts/licenses.py" in line


def test_license_table_is_current():
    packages = licenses.installed()
    assert {each.name for each in packages if each.install == "light"} >= {
        "numpy",
        "onnxruntime",
        "sentencepiece",
    }
    assert licenses.check(packages, licenses.PAGE.read_text(encoding="utf-8")) == []
