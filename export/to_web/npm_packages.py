"""Copy the npm packages of a web folder from a `node_modules` folder. Nothing is downloaded."""

import json
import os
import shutil
from pathlib import Path

# The tested versions. Other versions may have other files.
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
# The folders of the working directory and of a clone.
DEFAULT_FOLDERS = (Path("node_modules"), Path(__file__).parents[2] / "scripts" / "node_modules")

# sentencepiece-js is a CommonJS module that detects its environment and reads a model from a path.
# This header and footer make it an ES module that runs in every environment and takes the model's
# bytes instead of a path.
HEADER = """// sentencepiece-js as an ES module: tfk-transformer wrote the beginning and the end.
const modules = { fs: { readFileSync: (bytes) => bytes }, url: { URL } };
const exports = {}, process = undefined, __filename = "/", require = (name) => modules[name];
"""
FOOTER = """
export { SentencePieceProcessor };
"""
# The page imports onnxruntime under one name. The npm package has another file of this name.
ONNXRUNTIME_MODULE = """// onnxruntime, and its WebAssembly in this folder.
export * from "./ort.wasm.min.mjs";
export const webAssembly = {
  name: "runtime/ort-wasm-simd-threaded.wasm",
  address: new URL("ort-wasm-simd-threaded.wasm", import.meta.url),
};
"""


def find_packages(node_modules: str | os.PathLike[str] | None = None) -> Path:
    """Return `node_modules`, or a default folder, that has the npm packages in tested versions."""
    folders = DEFAULT_FOLDERS if node_modules is None else [Path(node_modules)]
    for folder in folders:
        if all(_installed_version(folder / name) == VERSIONS[name] for name in VERSIONS):
            return folder
    installed = {name: _installed_version(folders[0] / name) for name in VERSIONS}
    problems = " and ".join(
        f"{name} {installed[name] or 'missing'}"
        for name, version in VERSIONS.items()
        if installed[name] != version
    )
    packages = " and ".join(f"{name} {version}" for name, version in VERSIONS.items())
    raise ValueError(
        f"node_modules: expected the npm packages {packages}, got {problems} in {folders[0]}; "
        f"install them with: {INSTALL}; or name another folder with --node-modules."
    )


def _installed_version(package: Path) -> str | None:
    try:
        return str(json.loads((package / "package.json").read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def copy_packages(node_modules: Path, folder: Path) -> None:
    """Write the files that run in the browser into a new folder, with their licenses."""
    folder.mkdir()
    for name in ONNXRUNTIME_FILES:
        shutil.copyfile(node_modules / "onnxruntime-web" / "dist" / name, folder / name)
    (folder / "onnxruntime.mjs").write_text(ONNXRUNTIME_MODULE, encoding="utf-8")
    copy_sentencepiece(node_modules, folder)
    notices = [f"{name} {version}: {NOTICES[name]}\n" for name, version in VERSIONS.items()]
    (folder / "LICENSES.txt").write_text("".join(notices), encoding="utf-8")


def copy_sentencepiece(node_modules: Path, folder: Path) -> None:
    """Write SentencePiece as an ES module, and its license."""
    package = node_modules / "sentencepiece-js"
    code = (package / "dist" / "index.js").read_text(encoding="utf-8")
    (folder / "sentencepiece.mjs").write_text(HEADER + code + FOOTER, encoding="utf-8")
    shutil.copyfile(package / "LICENSE", folder / "LICENSE-sentencepiece-js")
