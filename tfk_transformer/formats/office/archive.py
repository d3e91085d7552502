"""ZIP archives of office files: some members of XML are replaced, and the others are copied."""

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from xml.parsers import expat

from tfk_transformer.config.array_files import open_archive
from tfk_transformer.formats.documents.items import Document

# Characters that XML 1.0 cannot have.
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class OfficeFile(NamedTuple):
    """A file with the documents in it, and what writes the file with their translated texts."""

    documents: Sequence[Document]
    written: Callable[[Sequence[str]], bytes]


class Archive:
    """A ZIP archive, `data`, of the format with a suffix."""

    def __init__(self, data: bytes, suffix: str) -> None:
        self._data = data
        self._suffix = suffix
        try:
            with open_archive(data) as archive:
                self._infos = archive.infolist()
                self._comment = archive.comment
                self.members = {info.filename: archive.read(info) for info in self._infos}
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError) as error:
            raise self._error("that is a whole ZIP archive without a password", error) from error
        if len(self.members) < len(self._infos):
            raise self._error("with different names in it", "one name twice")

    def _error(self, expected: str, actual: object) -> ValueError:
        return ValueError(
            f"text: expected a {self._suffix} file {expected}, got {str(actual).rstrip('.')}; save "
            "it again with the program that made it."
        )

    def xml(self, name: str, content: bytes | None = None) -> bytes:
        """Return a member, or its new content, if it is XML in UTF-8 that declares no entities."""

        def refuse(*declaration: object) -> None:
            raise ValueError("an entity of its own")

        parser = expat.ParserCreate()  # it opens no other files
        parser.EntityDeclHandler = refuse
        try:
            data = self.members[name] if content is None else content
            parser.Parse(data, True)
            data.decode()
        except (KeyError, ValueError, expat.ExpatError) as error:
            raise self._error(f"with XML in UTF-8 as {name}", error) from error
        return data

    def replaced(self, members: Mapping[str, bytes]) -> bytes:
        """Return the archive with other content of some members. Everything else stays."""
        if all(self.members[name] == content for name, content in members.items()):
            return self._data
        output = io.BytesIO()
        with zipfile.ZipFile(output, "w") as archive:
            archive.comment = self._comment
            for info in self._infos:
                name = info.filename
                is_new = name in members
                archive.writestr(
                    info, self.xml(name, members[name]) if is_new else self.members[name]
                )
        return output.getvalue()
