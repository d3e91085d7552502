"""Write the table of locks/licenses.md: the installed packages, their licenses and their sizes.

python scripts/licenses.py
    Write the table. The environment needs the extra "tensorflow".
python scripts/licenses.py --check
    Compare the table with the environment, and check that every license is allowed.
"""

import re
import sys
from collections.abc import Iterable
from email.message import Message
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).parents[1] / "locks" / "licenses.md"
BEGIN, END = "<!-- Written by scripts/licenses.py. -->\n\n", "\n<!-- End. -->"
PROJECT, EXTRA = "tfk-transformer", "tensorflow"

# Names of licenses, and patterns of their spellings in metadata without an SPDX expression.
SPELLINGS = {
    "Apache-2.0": r"apache[ -](license )?2\.0|apache software license",
    "BSD": r"bsd|bsd license|(bsd )?[23][ -]clause bsd license|bsd-[23]-clause",
    "ISC": r"isc license \(iscl\)",
    "LGPL": r".*\(lgpl\)",
    "MIT": r"mit( license)?",
    "MPL-2.0": r"mozilla public license 2\.0 \(mpl 2\.0\)",
    "PSF-2.0": r"python software foundation license",
}
ALLOWED = set(
    (
        "0BSD Apache-2.0 BSD BSD-2-Clause BSD-3-Clause CC0-1.0 CNRI-Python ISC MIT MIT-CMU MPL-2.0 "
        "PSF-2.0 Zlib"
    ).split()
)
EXCEPTIONS = {"num2words": "LGPL"}  # docs/dependencies.md describes the consequences for users
# Packages without a license in their metadata, and the license in their repository.
UNDECLARED = {"namex": "Apache-2.0"}


class Package(NamedTuple):
    """An installed package."""

    name: str
    license: str
    install: str  # "light", or the extra that brings it
    megabytes: float

    @property
    def row(self) -> str:
        """The row of the package in the table."""
        return f"| {self.name} | {self.license} | {self.install} | {self.megabytes:.1f} |"

    def is_like(self, other: "Package | None") -> bool:
        """Return whether another package has the same row.

        Sizes may differ between platforms and versions, by at most a quarter or 1 MB.
        """
        return (
            other is not None
            and self[:3] == other[:3]
            and abs(self.megabytes - other.megabytes) <= max(1, 0.25 * self.megabytes)
        )


def license_of(name: str, declared: Message) -> str:
    """Return the license that a package declares: an SPDX expression, or a key of `SPELLINGS`."""
    if expression := declared.get("License-Expression"):
        return expression
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in declared.get_all("Classifier") or ()
        if text.startswith("License ::")
    ]
    text = (
        " AND ".join(classifiers)
        or (declared.get("License") or UNDECLARED.get(name, "none declared"))
        .strip()
        .splitlines()[0]
    )
    return " AND ".join(
        next(
            (known for known, spelling in SPELLINGS.items() if re.fullmatch(spelling, part, re.I)),
            part,
        )
        for part in text.split(" AND ")
    )


def refused(packages: Iterable[Package]) -> list[str]:
    """Return a line for each package with a license that is not allowed."""
    allowed = ", ".join(sorted(ALLOWED))
    return [
        (
            f"{each.name}: expected licenses of {allowed}, got {each.license}; replace the "
            "package, or add an exception with its reason."
        )
        for each in packages
        if EXCEPTIONS.get(each.name) != each.license
        and not set(re.split(r" AND | OR ", each.license)) <= ALLOWED
    ]


def required(
    name: str, extras: frozenset[str] = frozenset(), known: set[tuple[str, str]] | None = None
) -> set[str]:
    """Return the names of a package and of all packages that it requires in this environment."""
    known = set() if known is None else known
    for extra in {"", *extras}:
        if (name, extra) not in known:
            known.add((name, extra))
            for requirement in map(Requirement, metadata.requires(name) or ()):
                if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                    required(
                        canonicalize_name(requirement.name), frozenset(requirement.extras), known
                    )
    return {name for name, _ in known}


def installed() -> list[Package]:
    """Return the packages of the light install, then the packages that the extra adds."""
    light, everything = required(PROJECT), required(PROJECT, frozenset({EXTRA}))
    order = [(name, "light") for name in sorted(light)] + [
        (name, EXTRA) for name in sorted(everything - light)
    ]
    return [package(name, install) for name, install in order if name != PROJECT]


def package(name: str, install: str) -> Package:
    """Describe an installed package."""
    found = metadata.distribution(name)
    megabytes = sum(file.size or 0 for file in found.files or ()) / 1e6
    return Package(name, license_of(name, found.metadata), install, megabytes)


def table(packages: list[Package]) -> str:
    """Return the table as Markdown."""
    totals = {
        install: sum(each.megabytes for each in packages if each.install == install)
        for install in ("light", EXTRA)
    }
    lines = [
        "| package | license | install | MB |",
        "| --- | --- | --- | --- |",
        *(each.row for each in packages),
    ]
    return (
        "\n".join(
            [
                *lines,
                *(
                    f"| **all** | | **{install}** | **{total:,.0f}** |"
                    for install, total in totals.items()
                ),
            ]
        )
        + "\n"
    )


def read_table(page: str) -> dict[str, Package]:
    """Return the packages in the table of a page by name."""
    rows = re.findall(
        r"(?m)^\| ([\w-]+) \| (.+) \| (\w+) \| ([\d.]+) \|$",
        page.partition(BEGIN)[2].partition(END)[0],
    )
    return {
        name: Package(name, license, install, float(size)) for name, license, install, size in rows
    }


def check(packages: list[Package], page: str) -> list[str]:
    """Return a line for each license that is not allowed, and one if the table is out of date."""
    written = read_table(page)
    changed = {each.name for each in packages if not each.is_like(written.get(each.name))} | (
        set(written) - {each.name for each in packages}
    )
    stale = (
        f"{PAGE.name}: expected the packages of this environment, got a table that differs for "
        f"{', '.join(sorted(changed))}; run scripts/licenses.py."
    )
    return refused(packages) + ([stale] if changed else [])


def main() -> None:
    """Write or check the table."""
    packages, page = installed(), PAGE.read_text(encoding="utf-8")
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(check(packages, page)) or 0)
    start, _, rest = page.partition(BEGIN)
    PAGE.write_text(
        start + BEGIN + table(packages) + END + rest.partition(END)[2], encoding="utf-8"
    )


if __name__ == "__main__":
    main()
