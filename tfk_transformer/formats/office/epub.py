"""Books (.epub): their pages of XHTML, and the titles in their tables of contents."""

import functools
import posixpath
from urllib.parse import unquote
from xml.etree import ElementTree

from tfk_transformer.formats.office.archive import ILLEGAL, OfficeFile
from tfk_transformer.formats.reading import html_reader

TYPES = ("application/xhtml+xml", "application/x-dtbncx+xml")


def read(data: bytes) -> OfficeFile:
    """Parse a book."""
    book = OfficeFile(data, ".epub")
    for root in ElementTree.fromstring(book.xml("META-INF/container.xml")).findall(
        ".//{*}rootfile"
    ):
        package = root.get("full-path", "")
        for item in ElementTree.fromstring(book.xml(package)).findall(".//{*}item"):
            path = posixpath.join(posixpath.dirname(package), unquote(item.get("href", "")))
            name = posixpath.normpath(path)
            if item.get("media-type") in TYPES and name in book.members:
                document = html_reader.read(book.xml(name).decode(), is_xml=True)
                document = document._replace(clean=functools.partial(ILLEGAL.sub, ""))
                book.documents[name] = (document, str.encode)
    return book
