"""Office files, which are ZIP archives: some members of XML are replaced, and others are copied."""

import io
import re
import zipfile
import zlib
from collections.abc import Callable, Sequence
from xml.parsers import expat

from tfk_transformer.config.array_files import open_archive
from tfk_transformer.formats.documents.items import Document

# Characters that XML 1.0 cannot have.
ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class OfficeFile:
    """A ZIP archive, `data`, of the format with a suffix, and the documents in it."""

    def __init__(self, data: bytes, suffix: str) -> None:
        # By the name of a member: its document, and its content with another text of the document.
        self.documents: dict[str, tuple[Document, Callable[[str], bytes]]] = {}
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

    def written(self, texts: Sequence[str]) -> bytes:
        """Return the archive with a text for each document. Everything else stays."""
        pairs = zip(self.documents.items(), texts, strict=True)
        members = {name: write(text) for (name, (_, write)), text in pairs}
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
