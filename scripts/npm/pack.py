"""Write the npm package `tfk-transformer` into `build/npm`, and pack it into `dist/`.

python scripts/npm/pack.py [--build DIR] [--dist DIR] [--node-modules DIR]

The variable REPOSITORY, such as https://github.com/OWNER/NAME, is the address in the package.
Its modules are those of the web page in `export/to_web/page`. SentencePiece is included, and
onnxruntime-web is a dependency. Nothing is downloaded and nothing is published. It needs npm.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tfk_transformer.constants import __version__
from tfk_transformer.export.to_web.npm_packages import (
    VERSIONS,
    copy_sentencepiece,
    find_packages,
)

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
PAGE_FILES = REPOSITORY / "export" / "to_web" / "page"
STAGES = {"a": "alpha", "b": "beta", "rc": "rc", ".dev": "dev"}


def npm_version(version: str) -> str:
    """Return a version of Python as a semantic version: "0.1.0.dev0" is "0.1.0-dev.0".

    Raises:
        ValueError: if the version has other parts than a release and one stage.
    """
    match = re.fullmatch(r"(\d+\.\d+\.\d+)(?:(a|b|rc|\.dev)(\d+))?", version)
    if match is None:
        raise ValueError(
            f"__version__: expected a version like 1.2.3, 1.2.3rc1 or 1.2.3.dev0, got {version}."
        )
    release, stage, number = match.groups()
    return f"{release}-{STAGES[stage]}.{number}" if stage else release


def write_package(folder: Path, node_modules: Path) -> None:
    """Write the package into a new folder."""
    package = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    runtime = folder / "runtime"
    runtime.mkdir(parents=True)
    copy_sentencepiece(node_modules, runtime)
    shutil.copyfile(HERE / "onnxruntime.mjs", runtime / "onnxruntime.mjs")
    for name in package["files"]:
        if not name.endswith("/"):
            source = HERE / name if (HERE / name).is_file() else PAGE_FILES / name
            shutil.copyfile(source, folder / name)
    shutil.copyfile(HERE / "README.md", folder / "README.md")
    shutil.copyfile(REPOSITORY / "LICENSE", folder / "LICENSE")
    package["version"] = npm_version(__version__)
    package["dependencies"] = {"onnxruntime-web": VERSIONS["onnxruntime-web"]}
    if repository := os.environ.get("REPOSITORY"):  # npm compares it with the origin of a release
        package["repository"] = {"type": "git", "url": f"git+{repository}.git"}
        package["homepage"] = f"{repository}/blob/v{__version__}/docs/browser.md"
        package["bugs"] = f"{repository}/issues"
    (folder / "package.json").write_text(json.dumps(package, indent=2) + "\n", encoding="utf-8")


def pack(folder: Path, dist: Path) -> Path:
    """Pack a package folder, and return the path of the tarball."""
    dist.mkdir(parents=True, exist_ok=True)
    command = ["npm", "pack", "--silent", "--offline", "--pack-destination", str(dist.resolve())]
    packed = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return dist / packed.stdout.strip()


def main() -> None:
    """Write and pack the package."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for option, default in (
        ("--build", REPOSITORY / "build" / "npm"),
        ("--dist", REPOSITORY / "dist"),
        ("--node-modules", REPOSITORY / "scripts" / "node_modules"),
    ):
        help_text = f"default: {default.relative_to(REPOSITORY)}"
        parser.add_argument(option, type=Path, default=default, metavar="DIR", help=help_text)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.build, ignore_errors=True)
    write_package(arguments.build, find_packages(arguments.node_modules))
    print(pack(arguments.build, arguments.dist))


if __name__ == "__main__":
    main()
