"""Word files and books: bytes in, bytes out."""

import io
import zipfile
from xml.etree import ElementTree

import pytest
from hard_documents import unchanged

from tfk_transformer.formats.documents.translation import translating
from tfk_transformer.formats.office import epub, word
from tfk_transformer.text.road import drive

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
CONTENT_TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/'
    f'content-types"><Override PartName="/word/document.xml" ContentType="{TYPE}.document.main+xml"'
    f'/><Override PartName="/word/header1.xml" ContentType="{TYPE}.header+xml"/>'
    f'<Override PartName="/word/comments.xml" ContentType="{TYPE}.comments+xml"/></Types>'
)
BOLD = "<w:rPr><w:b/></w:rPr>"
PAGE = """\
<?xml version="1.0"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>One</title><script src="a.js"/></head>
<body><p>Two&nbsp;<a id="x"/><i>three</i><br/>four</p><pre>five</pre></body></html>
"""
NCX = """\
<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint id="a"><navLabel><text>One
</text></navLabel><content src="one.xhtml"/></navPoint></navMap></ncx>
"""
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="EPUB/book.opf"/></rootfiles></container>'
)
PACKAGE = (
    '<package xmlns="http://www.idpf.org/2007/opf"><manifest>'
    '<item href="one%20page.xhtml" media-type="application/xhtml+xml"/>'
    '<item href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
    '<item href="a.svg" media-type="image/svg+xml"/></manifest></package>'
)


def packed(members):
    """Return a ZIP archive with dates, whose first member is not compressed."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w") as file:
        for number, (name, text) in enumerate(members.items()):
            member = zipfile.ZipInfo(name, (2001, 2, 3, 4, 5, 6))
            member.compress_type = zipfile.ZIP_DEFLATED if number else zipfile.ZIP_STORED
            file.writestr(member, text)
    return output.getvalue()


def unpacked(data):
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name).decode() for name in file.namelist()}


def run(text):
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def document(*paragraphs):
    body = "".join(f"<w:p><w:pPr/>{content}</w:p>" for content in paragraphs)
    return f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>'


def docx(*paragraphs, header=""):
    header = f'<w:hdr xmlns:w="{W}"><w:p>{header}</w:p></w:hdr>'
    comments = f'<w:comments xmlns:w="{W}"><w:p>{run("a comment")}</w:p></w:comments>'
    return packed(
        {
            "[Content_Types].xml": CONTENT_TYPES,
            "word/document.xml": document(*paragraphs),
            "word/comments.xml": comments,
            "word/header1.xml": header,
        }
    )


def book(page=PAGE):
    return packed(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": CONTAINER,
            "EPUB/book.opf": PACKAGE,
            "EPUB/toc.ncx": NCX,
            "EPUB/one page.xhtml": page,
            "EPUB/a.svg": "<svg xmlns='http://www.w3.org/2000/svg'><text>six</text></svg>",
        }
    )


def upper(texts, attention):
    return [
        each._replace(text=each.text.upper(), tokens=[piece.upper() for piece in each.tokens])
        for each in unchanged(texts, attention)
    ]


def translated(file, translate=upper):
    texts = [
        drive(translating(part, "en"), lambda each: translate(each.texts, each.attention)).text
        for part, _ in file.documents.values()
    ]
    return file.written(texts)


def paragraphs(data):
    """Return the XML of each paragraph of a Word file without declarations of namespaces."""
    root = ElementTree.fromstring(unpacked(data)["word/document.xml"])
    ElementTree.register_namespace("w", W)
    texts = [ElementTree.tostring(each, "unicode") for each in root.iter(f"{{{W}}}p")]
    return [text.replace(f' xmlns:w="{W}"', "").replace(" />", "/>") for text in texts]


def check_paragraph(content, expected):
    """Check the translation of a paragraph of a Word file."""
    assert paragraphs(translated(word.read(docx(content)))) == [f"<w:p><w:pPr/>{expected}</w:p>"]


def test_unchanged_words_are_the_same_files():
    data = docx(run("One") + f"<w:r>{BOLD}<w:t>two</w:t></w:r>", header=run("three"))
    assert translated(word.read(data), unchanged) == data
    assert translated(epub.read(book()), unchanged) == book()


def test_members_keep_their_order_dates_and_compression():
    with zipfile.ZipFile(io.BytesIO(book())) as file:
        expected = [(each.filename, each.date_time, each.compress_type) for each in file.filelist]
    with zipfile.ZipFile(io.BytesIO(translated(epub.read(book())))) as file:
        actual = [(each.filename, each.date_time, each.compress_type) for each in file.filelist]
    assert actual == expected


def test_pages_and_titles_of_a_book_change():
    expected = unpacked(book())
    page = PAGE.replace("One", "ONE").replace("Two", "TWO").replace("four", "FOUR")
    expected["EPUB/one page.xhtml"] = page.replace(">three", ">THREE")
    expected["EPUB/toc.ncx"] = NCX.replace("One", "ONE")
    assert unpacked(translated(epub.read(book()))) == expected


def test_translations_stay_well_formed():
    evil = "<b> & ]]> \x00\x0b\ufffe </p>"

    def run_evil(texts, attention):
        return [each._replace(text=f"{evil}{each.text}") for each in unchanged(texts, attention)]

    root = ElementTree.fromstring(unpacked(translated(epub.read(book()), run_evil))["EPUB/toc.ncx"])
    assert "".join(root.itertext()).split() == ["<b>", "&", "]]>", "</p>One"]
    data = translated(word.read(docx(run("two"))), run_evil)
    (paragraph,) = paragraphs(data)
    assert "".join(ElementTree.fromstring(paragraph.replace("w:", "")).itertext()).split() == [
        "<b>",
        "&",
        "]]>",
        "</p>two",
    ]


def test_headers_change_and_comments_do_not():
    expected = unpacked(docx(run("one"), header=run("two")))
    actual = unpacked(translated(word.read(docx(run("one"), header=run("two")))))
    assert "TWO" in actual["word/header1.xml"]
    assert actual["word/comments.xml"] == expected["word/comments.xml"]


def test_runs_of_one_format_are_one_text():
    language = '<w:rPr><w:lang w:val="en-US"/></w:rPr>'
    content = f"{run('Hel')}<w:proofErr w:type='spellStart'/><w:r>{language}<w:t>lo</w:t></w:r>"
    check_paragraph(content, run("HELLO"))


def test_formats_and_links_move_with_their_words():
    bold = f"<w:r>{BOLD}<w:t xml:space='preserve'>two</w:t></w:r>".replace("'", '"')
    link = f'<w:hyperlink w:anchor="a">{run("four")}</w:hyperlink>'
    content = f"{run('One ')}{bold}{run(' three ')}{link}{run('.')}"
    expected = content
    for each in ("One", "two", "three", "four"):
        expected = expected.replace(each, each.upper())
    check_paragraph(content, expected)


def test_tabs_images_and_notes_stay():
    note = '<w:r><w:footnoteReference w:id="1"/></w:r>'
    content = f"{run('one')}<w:r><w:tab/></w:r>{run('two')}{note}{run('.')}"
    expected = content.replace("one", "ONE").replace("two", "TWO")
    # Neighbors of one format are in one run.
    check_paragraph(content, expected.replace("</w:r><w:r>", ""))


def test_code_of_fields_and_deleted_text_stay():
    begin, separate, end = (
        f'<w:r><w:fldChar w:fldCharType="{type}"/></w:r>' for type in ("begin", "separate", "end")
    )
    code = "<w:r><w:instrText>{}</w:instrText></w:r>"
    deleted = '<w:del w:id="1"><w:r><w:delText>six</w:delText></w:r></w:del>'
    page = f"{begin}{code.format(' PAGE ')}{separate}{run('seven')}{end}"
    link = f"{begin}{code.format('HYPERLINK x')}{separate}{{}}{end}"
    content = f"{run('one ')}{page}{run(' two ')}{deleted}{link}{run(' four')}"
    expected = content.replace(">one", ">ONE").replace(" two", " TWO").replace("four", "FOUR")
    check_paragraph(content.format(run("three")), expected.format(run("THREE")))


def test_paragraphs_of_text_boxes_change():
    box = f"<w:r><w:pict><w:txbxContent><w:p>{run('two')}</w:p></w:txbxContent></w:pict></w:r>"
    data = translated(word.read(docx(run("one") + box)))
    text = unpacked(data)["word/document.xml"]
    assert "".join(ElementTree.fromstring(text).itertext()) == "ONETWO"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"seven",
            "that is a whole ZIP archive without a password, got File is not a zip file; save",
        ),
        (
            docx(run("one")).replace(b"header+xml", b"hooder+xml"),
            r"that is a whole ZIP archive without a password, got Bad CRC-32 for file '\[Content",
        ),
        (
            docx(run("one " * 1_250_000)),
            "that is a whole ZIP archive without a password, got expected at most",
        ),
        (packed({"a": "b"}), r"with XML in UTF-8 as \[Content_Types\].xml, got"),
        (
            packed({"[Content_Types].xml": '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///c">]><a/>'}),
            r"with XML in UTF-8 as \[Content_Types\].xml, got an entity of its own",
        ),
    ],
    ids=["no archive", "damaged", "large", "other members", "entities"],
)
def test_other_files_are_refused(data, message):
    with pytest.raises(ValueError, match=f"text: expected a .docx file {message}"):
        word.read(data)
