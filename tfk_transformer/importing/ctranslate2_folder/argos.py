"""Packages of Argos Translate: a zip archive of a folder of CTranslate2 and a SentencePiece model.

The layout is from argostranslate/package.py of argos-translate.
"""

import contextlib
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tfk_transformer.config import small_files
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.arrays import first_line
from tfk_transformer.importing.model_paths import ARGOS_MODEL_FOLDER, CTRANSLATE2_BINARY
from tfk_transformer.text.languages import Languages, is_language

METADATA = "metadata.json"
MAX_MEMBERS = 10_000  # a package has about 20
# Weights in float32 become at most a tenth smaller, and quantized ones at most a half.
MAX_COMPRESSION = 20
# Argos Translate's codes that are not of ISO 639.
ARGOS_CODES = {"pb": "pt_BR", "zt": "zh_Hant"}
# The files of a package that an import reads, and their largest sizes. None: as in the archive.
PACKAGE_FILES: dict[str, int | None] = {
    METADATA: small_files.MAX_CONFIG_BYTES,
    "README.md": small_files.MAX_CONFIG_BYTES,
    "sentencepiece.model": small_files.MAX_VOCABULARY_BYTES,
    "bpe.model": small_files.MAX_VOCABULARY_BYTES,
    f"{ARGOS_MODEL_FOLDER}/config.json": small_files.MAX_CONFIG_BYTES,
    **{
        f"{ARGOS_MODEL_FOLDER}/{side}_vocabulary.{suffix}": small_files.MAX_VOCABULARY_BYTES
        for side in ("shared", "source", "target")
        for suffix in ("json", "txt")
    },
    f"{ARGOS_MODEL_FOLDER}/{CTRANSLATE2_BINARY}": None,
}


def read_package(folder: Path) -> tuple[str | None, Languages, str | None]:
    """Return the name of an unpacked package, its languages, and the token before every target."""
    path = folder / METADATA
    values = small_files.read_json_object(path) if path.is_file() else {}
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
        try:
            with zipfile.ZipFile(path) as archive:
                _unpack(archive, path, Path(folder))
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,  # an unknown compression
            OSError,
            RuntimeError,  # a password
        ) as error:
            raise ValueError(
                f"Argos Translate: {path} does not load: {first_line(error)}"
            ) from None
        yield Path(folder)


def _unpack(archive: zipfile.ZipFile, path: Path, folder: Path) -> None:
    members = archive.infolist()
    model_file = f"{ARGOS_MODEL_FOLDER}/{CTRANSLATE2_BINARY}"
    binaries = [
        member
        for member in members[:MAX_MEMBERS]
        if PurePosixPath(member.filename).parts[-2:] == (ARGOS_MODEL_FOLDER, CTRANSLATE2_BINARY)
    ]
    if len(binaries) != 1 or len(members) > MAX_MEMBERS:
        raise ValueError(
            f"Argos Translate: expected a package with one {model_file} in {path}, got "
            f"{len(binaries)} in {len(members):,} files."
        )
    root = binaries[0].filename.removesuffix(model_file)
    (folder / ARGOS_MODEL_FOLDER).mkdir()
    by_name = {member.filename: member for member in members}
    for name, max_bytes in PACKAGE_FILES.items():
        if (member := by_name.get(root + name)) is None:
            continue
        allowed = MAX_COMPRESSION * member.compress_size if max_bytes is None else max_bytes
        if member.file_size > allowed:
            raise ValueError(
                f"Argos Translate: expected at most {allowed:,} bytes for {name} in {path}, got "
                f"{member.file_size:,} bytes."
            )
        # An archive that has more bytes than it states is refused by its reader.
        with archive.open(member) as source, (folder / name).open("wb") as target:
            shutil.copyfileobj(source, target)
