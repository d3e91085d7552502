"""The npm packages that a web folder runs on: found in a `node_modules` folder, and copied from
there. Nothing is downloaded.
"""

import json
import os
import shutil
from pathlib import Path

# The versions that the tests run, by package. Others may have other files.
VERSIONS = {"onnxruntime-web": "1.30.0", "sentencepiece-js": "1.1.0"}
NOTICES = {
    "onnxruntime-web": "MIT, Copyright (c) Microsoft Corporation",
    "sentencepiece-js": "Apache-2.0, see LICENSE-sentencepiece-js",
}
ONNXRUNTIME_FILES = (
    "ort.wasm.min.mjs",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
)
INSTALL = (
    "npm install --ignore-scripts "
    f"{' '.join(f'{name}@{version}' for name, version in VERSIONS.items())}"
)
# The working directory's, and a clone's.
PLACES = (Path("node_modules"), Path(__file__).parents[2] / "scripts" / "node_modules")

# sentencepiece-js is a CommonJS module, and finds out where it runs to read its model from a path.
# In this shell it is an ES module that runs anywhere, and takes the model's bytes in place of the
# path.
BEFORE = """// sentencepiece-js as an ES module: tfk-transformer wrote the beginning and the end.
const modules = { fs: { readFileSync: (bytes) => bytes }, url: { URL } };
const exports = {}, process = undefined, __filename = "/", require = (name) => modules[name];
"""
AFTER = """
export { SentencePieceProcessor };
"""


def find_packages(node_modules: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that holds the npm packages of a web folder.

    Args:
        node_modules: the folder. Default: `node_modules` in the working directory, or the one of
            `scripts/` in a clone.

    Raises:
        ValueError: if a package is missing there or has another version, with the command that
            installs it.
    """
    places = [Path(node_modules)] if node_modules is not None else list(PLACES)
    problems = [_problem(place) for place in places]
    if all(problems):
        wanted = " and ".join(f"{name} {version}" for name, version in VERSIONS.items())
        raise ValueError(
            f"node_modules: expected the npm packages {wanted}, got {problems[0]} in {places[0]}; "
            f"install them with: {INSTALL}; a folder elsewhere is named by --node-modules."
        )
    return next(place for place, problem in zip(places, problems, strict=True) if not problem)


def _problem(node_modules: Path) -> str:
    """Return the packages that are missing in a folder, or have other versions; "" if there are
    none.
    """
    found = {name: _version(node_modules / name) for name in VERSIONS}
    return " and ".join(
        f"{name} {found[name] or 'missing'}"
        for name, version in VERSIONS.items()
        if found[name] != version
    )


def _version(package: Path) -> str | None:
    try:
        return str(json.loads((package / "package.json").read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def copy_packages(node_modules: Path, folder: Path) -> None:
    """Write the files that run in the browser into a new folder, with their licences."""
    folder.mkdir()
    for name in ONNXRUNTIME_FILES:
        shutil.copyfile(node_modules / "onnxruntime-web" / "dist" / name, folder / name)
    package = node_modules / "sentencepiece-js"
    code = (package / "dist" / "index.js").read_text(encoding="utf-8")
    (folder / "sentencepiece.mjs").write_text(BEFORE + code + AFTER, encoding="utf-8")
    shutil.copyfile(package / "LICENSE", folder / "LICENSE-sentencepiece-js")
    notices = [f"{name} {version}: {NOTICES[name]}\n" for name, version in VERSIONS.items()]
    (folder / "LICENSES.txt").write_text("".join(notices), encoding="utf-8")
