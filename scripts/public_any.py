"""List and count the public signatures that contain `Any` or the backend's `Tensor`.

Needs the extra "docs".

python scripts/public_any.py
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "docs")]

import api_pages  # noqa: E402
import griffe  # noqa: E402


def functions(path: str, thing: griffe.Object) -> Iterator[tuple[str, griffe.Object]]:
    """Yield the functions of a public name.

    These include methods, inherited methods, constructors, and the functions of a module.
    """
    if thing.is_function:
        yield path, thing
    elif thing.is_class or thing.is_module:
        for key, found in thing.all_members.items():
            if (key.startswith("_") and key != "__init__") or (
                thing.is_module and key not in (thing.exports or ())
            ):
                continue
            try:
                found = found.final_target if found.is_alias else found
            except griffe.AliasResolutionError:
                continue  # in a library that griffe does not read
            if found.is_function or thing.is_module:
                yield from functions(f"{path}.{key}", found)


packages = api_pages.load(REPOSITORY)
# The last three names are aliases of JSON objects, whose values are Any.
counts = {"Any": 0, "Tensor": 0, "Json|Figures|Description": 0}
seen: set[str] = set()  # inherited methods are counted once
for name, home in api_pages.homes(REPOSITORY).items():
    for path, function in functions(name, api_pages.find(packages, name, home)):
        if function.path in seen:
            continue
        seen.add(function.path)
        places = {each.name: each.annotation for each in function.parameters if each.annotation}
        places["returns"] = function.returns
        for place, annotation in places.items():
            for word in counts:
                if re.search(rf"\b({word})\b", str(annotation)):
                    counts[word] += 1
                    print(f"{path}, {place}: {annotation}")
print(", ".join(f"{count} with {word}" for word, count in counts.items()))
