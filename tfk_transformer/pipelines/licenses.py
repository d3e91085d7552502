"""Licenses of imported models that forbid commercial use."""

import re
import warnings
from collections.abc import Mapping
from typing import Any

# "nc" as a part of a name such as cc-by-nc-4.0, and the word.
NON_COMMERCIAL = re.compile(r"(?i)(?<![a-z])nc(?![a-z])|non-?commercial")


class LicenseWarning(UserWarning):
    """Warns that the license of an imported model forbids commercial use."""


def license_warning(origin: Mapping[str, Any]) -> str | None:
    """Return a warning if the license in `Translator.origin` forbids commercial use."""
    license_name = str(origin.get("license") or "")
    if not NON_COMMERCIAL.search(license_name):
        return None
    return (
        f"the license of {origin.get('name', 'the model')}, {license_name}, forbids commercial "
        "use. It also applies to files made from the model."
    )


def warn_of_license(origin: Mapping[str, Any]) -> None:
    """Emit the warning of `license_warning`, if any, as a `LicenseWarning`."""
    if warning := license_warning(origin):
        warnings.warn(warning, LicenseWarning, stacklevel=3)
