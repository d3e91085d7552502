"""Books (.epub): their pages of XHTML, and the titles in their tables of contents."""

import posixpath
from urllib.parse import unquote
from xml.etree import ElementTree

from tfk_transformer.formats.documents.items import Document
from tfk_transformer.formats.office.archive import ILLEGAL, Archive, OfficeFile
from tfk_transformer.formats.reading import html_reader

TYPES = ("application/xhtml+xml", "application/x-dtbncx+xml")


def read(data: bytes) -> OfficeFile:
    """Parse a book."""
    archive = Archive(data, ".epub")
    pages: dict[str, Document] = {}
    for root in ElementTree.fromstring(archive.xml("META-INF/container.xml")).findall(
        ".//{*}rootfile"
    ):
        package = root.get("full-path", "")
        for item in ElementTree.fromstring(archive.xml(package)).findall(".//{*}item"):
            path = posixpath.join(posixpath.dirname(package), unquote(item.get("href", "")))
            name = posixpath.normpath(path)
            if item.get("media-type") in TYPES and name in archive.members:
                document = html_reader.read(archive.xml(name).decode(), is_xml=True)
                pages[name] = document._replace(escape=_escape, encode=_escape)
    return OfficeFile(
        list(pages.values()),
        lambda texts: archive.replaced(
            {name: text.encode() for name, text in zip(pages, texts, strict=True)}
        ),
    )


def _escape(text: str, following: str = "") -> str:
    return html_reader.escape_html(ILLEGAL.sub("", text))
