"""Packages of Argos Translate: a zip archive of a folder of CTranslate2 and a SentencePiece model.

The layout is from argostranslate/package.py of argos-translate.
"""

import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tfk_transformer.config.array_files import open_archive
from tfk_transformer.config.small_files import one_line_error, read_json_object
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.model_paths import ARGOS_MODEL_FOLDER, CTRANSLATE2_BINARY
from tfk_transformer.text.languages import Languages, is_language

METADATA = "metadata.json"
# Argos Translate's codes that are not of ISO 639.
ARGOS_CODES = {"pb": "pt_BR", "zt": "zh_Hant"}
# The files of a package that an import reads.
PACKAGE_FILES = (
    METADATA,
    "README.md",
    "sentencepiece.model",
    "bpe.model",
    f"{ARGOS_MODEL_FOLDER}/config.json",
    *(
        f"{ARGOS_MODEL_FOLDER}/{side}_vocabulary.{suffix}"
        for side in ("shared", "source", "target")
        for suffix in ("json", "txt")
    ),
    f"{ARGOS_MODEL_FOLDER}/{CTRANSLATE2_BINARY}",
)


def read_package(folder: Path) -> tuple[str | None, Languages, str | None]:
    """Return the name of an unpacked package, its languages, and the token before every target."""
    path = folder / METADATA
    values = read_json_object(path) if path.is_file() else {}
    if (package_type := values.get("type", "translate")) != "translate":
        raise ValueError(
            f"folder: expected a package of type 'translate', got {shorten(repr(package_type))} in "
            f"{path}; pass a package that translates."
        )
    prefix = values.get("target_prefix") or None
    if not isinstance(prefix, str | None):
        raise ValueError(
            f"folder: expected a token as target_prefix in {path}, got {shorten(repr(prefix))}."
        )
    stated = [values.get(f"{side}_code") for side in ("from", "to")]
    codes = [ARGOS_CODES.get(code, code) if isinstance(code, str) else None for code in stated]
    source, target = (code if is_language(code) else None for code in codes)
    version = values.get("package_version")
    name = f"{stated[0]}_{stated[1]} {version}" if source and target and version else None
    return name and shorten(name), Languages(source, target), prefix


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack the files of a package that an import reads into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        with (
            one_line_error(f"Argos Translate: {path} does not load: "),
            open_archive(path) as archive,
        ):
            _unpack(archive, Path(folder))
        yield Path(folder)


def _unpack(archive: zipfile.ZipFile, folder: Path) -> None:
    members = archive.infolist()
    model_file = f"{ARGOS_MODEL_FOLDER}/{CTRANSLATE2_BINARY}"
    binaries = [
        member
        for member in members
        if PurePosixPath(member.filename).parts[-2:] == (ARGOS_MODEL_FOLDER, CTRANSLATE2_BINARY)
    ]
    if len(binaries) != 1:
        raise ValueError(
            f"expected a package with one {model_file}, got {len(binaries)} in {len(members):,} "
            "files"
        )
    root = binaries[0].filename.removesuffix(model_file)
    (folder / ARGOS_MODEL_FOLDER).mkdir()
    by_name = {member.filename: member for member in members}
    for name in PACKAGE_FILES:
        if member := by_name.get(root + name):
            with archive.open(member) as source, (folder / name).open("wb") as target:
                shutil.copyfileobj(source, target)
