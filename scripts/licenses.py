"""Write the table of locks/licenses.md from the installed packages, and check the licenses.

The lists of spellings and of permitted licenses make it longer than 60 lines.
"""

import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

LOCKS = Path(__file__).parents[1] / "locks"
# Texts in metadata without an SPDX expression.
SPDX = {
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",  # the number of clauses is not stated
    "3-Clause BSD License": "BSD-3-Clause",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
ALLOWED = """0BSD Apache-2.0 BSD BSD-2-Clause BSD-3-Clause CC0-1.0 CNRI-Python ISC MIT MIT-CMU
MPL-2.0 PSF-2.0 Zlib""".split()
EXCEPTIONS = {"num2words": "LGPL"}  # docs/dependencies.md describes the consequences for users
UNDECLARED = {"namex": "Apache-2.0"}  # the license in the repository of the package


def license_of(package: metadata.Distribution) -> str:
    """Return the license that a package declares."""
    declared = package.metadata
    classifiers = [text for text in declared.get_all("Classifier", []) if "License ::" in text]
    texts = [text.split(" :: ")[-1] for text in classifiers]
    texts = texts or [declared["License"] or UNDECLARED.get(package.name, "none declared")]
    return declared["License-Expression"] or " AND ".join(SPDX.get(text, text) for text in texts)


def locked(lock: str) -> dict[str, metadata.Distribution]:
    """Return the installed packages of a lock by name, except packages of other platforms."""
    lines = re.findall(r"(?m)^[\w.-]+==[^\\\n]+", (LOCKS / f"{lock}.txt").read_text())
    needed = [each for each in map(Requirement, lines) if not each.marker or each.marker.evaluate()]
    return {each.name: metadata.distribution(each.name) for each in needed}


def refused(licenses: dict[str, str]) -> list[str]:
    """Return a line for each package whose license is not allowed."""
    return [
        f"{name}: expected licenses of {', '.join(ALLOWED)}, got {license}; replace the package, "
        "or add an exception with its reason"
        for name, license in licenses.items()
        if EXCEPTIONS.get(name) != license
        and not set(re.split(" AND | OR ", license)) <= set(ALLOWED)
    ]


def rows(lock: str, without: Iterable[str] = ()) -> list[str]:
    """Return the rows of a table, by name, and a row with the sum of the sizes."""
    packages = {name: each for name, each in locked(lock).items() if name not in without}
    sizes = [sum(file.size or 0 for file in each.files or ()) / 1e6 for each in packages.values()]
    columns = zip(packages, map(license_of, packages.values()), sizes, strict=True)
    body = [f"| {name} | {license} | {lock} | {size:.1f} |" for name, license, size in columns]
    return [*body, f"| **all** | | **{lock}** | **{sum(sizes):,.0f}** |"]


def table() -> list[str]:
    """Return the rows of the light install, then the rows of what `[tensorflow]` adds."""
    return [*rows("light"), *rows("tensorflow", without=locked("light"))]


if __name__ == "__main__":
    page = (LOCKS / "licenses.md").read_text(encoding="utf-8")
    head = page[: page.index("| --- |")] + "| --- | --- | --- | --- |\n"
    (LOCKS / "licenses.md").write_text(head + "\n".join(table()) + "\n", encoding="utf-8")
    found = {name: license_of(each) for name, each in locked("tensorflow").items()}
    sys.exit("\n".join(refused(found)) or 0)
