"""Translation memories (TMX) and gettext files (PO), made like those of OmegaT, MC and Django."""

import tracemalloc

import pytest

from tfk_transformer.datasets import Report, load
from tfk_transformer.datasets.translation_files import MAX_TEXT

HEADER = '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header/>'


def unit(**texts):
    variants = (
        f'<tuv xml:lang="{code.replace("_", "-")}"><seg>{text}</seg></tuv>'
        for code, text in texts.items()
    )
    return f"<tu><note>seen</note>{''.join(variants)}</tu>"


@pytest.fixture
def memory(tmp_path):
    """Write a translation memory, and return its path."""

    def write(*units, head=HEADER, encoding="utf-8"):
        path = tmp_path / "memory.tmx"
        text = f"{head}<body>{''.join(units)}</body></tmx>"
        path.write_bytes(text.encode(encoding))
        return path

    return write


def texts(spec, report=None):
    return [pair[:2] for pair in load(str(spec)).pairs("train", report)]


def test_two_languages_are_found(memory):
    path = memory(unit(en="a dog", de="ein Hund"), unit(de="zwei Hunde", en="two dogs"))
    assert texts(path) == [("a dog", "ein Hund"), ("two dogs", "zwei Hunde")]


def test_language_is_found_in_its_variants(memory):
    path = memory(unit(en_US="color", de_DE="Farbe"), unit(EN_GB="colour", de="Farbe"))
    assert texts(f"{path},source=en,target=de") == [("color", "Farbe"), ("colour", "Farbe")]


def test_language_is_preferred_to_its_variant(memory):
    path = memory(unit(en_US="color", en="colour", de="Farbe"))
    assert texts(f"{path},source=en,target=de") == [("colour", "Farbe")]


def test_variants_can_be_named(memory):
    path = memory(unit(zh_CN="国", zh_TW="國"))
    assert texts(f"{path},source=zh_CN,target=zh-TW") == [("国", "國")]


def test_three_languages_must_be_named(memory):
    path = memory(unit(en="a dog", de="ein Hund", fr="un chien"))
    with pytest.raises(ValueError, match="expected two languages in .*, got en, de, fr; name them"):
        load(str(path)).pairs("train")


def test_unit_without_a_language_is_counted(memory):
    path = memory(unit(en="a dog", de="ein Hund"), *[unit(en="a cat", fr="un chat")] * 3)
    report = Report()
    assert texts(f"{path},source=en,target=de", report) == [("a dog", "ein Hund")]
    assert report.lines() == [
        "dropped 3 pairs without en and de (memory.tmx:2, memory.tmx:3, memory.tmx:4)"
    ]


def test_markup_is_left_out(memory):
    markup = 'Press <bpt i="1">&lt;b&gt;</bpt>OK<ept i="1">&lt;/b&gt;</ept> <hi>now</hi>'
    assert texts(memory(unit(en=markup, de="\n  Jetzt\n  OK\n"))) == [("Press OK now", "Jetzt OK")]


def test_old_attribute_names_the_language(memory):
    path = memory(unit(en="a dog", de="ein Hund").replace("xml:lang", "lang"))
    assert texts(path) == [("a dog", "ein Hund")]


def test_utf_16_is_read(memory):
    head = HEADER.replace("?>", ' encoding="UTF-16"?>', 1)
    path = memory(unit(en="green", de="grün"), head=head, encoding="utf-16")
    assert texts(path) == [("green", "grün")]


def test_entities_are_refused(memory):
    head = '<!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><tmx>'
    path = memory(unit(en="&b;", de="x"), head=head)
    with pytest.raises(ValueError, match=r"memory \(TMX\), got a declaration of an entity\.$"):
        load(str(path)).pairs("train")


def test_limit_of_texts_counts_each_segment(memory):
    # Elements divide the texts. Work that grew with their square would take many minutes.
    half = "a<ph/>" * (MAX_TEXT // 2)
    assert len(texts(memory(unit(en=half, de=half), unit(en="a dog", de="ein Hund")))) == 2
    path = memory(unit(en=f"{half}{half}a", de="x"))
    with pytest.raises(ValueError, match="got a text of more than 1,048,576 characters"):
        load(str(path)).pairs("train")


def test_truncated_memory_is_refused(memory):
    path = memory(unit(en="a dog", de="ein Hund"))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="expected a whole translation memory"):
        load(str(path)).pairs("train")


def test_large_memory_is_streamed(memory):
    path = memory(*(unit(en=f"sentence {n}", de=f"Satz {n}") for n in range(30_000)))
    source = load(f"{path},source=en,target=de")
    assert len(source.splits) == 4
    tracemalloc.start()
    count = sum(1 for _ in source.pairs("all"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 30_000
    assert peak < 1_000_000


PO = """
msgid ""
msgstr ""
"Content-Type: text/plain; charset={charset}\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: dialog.c:12
msgid "Open"
msgstr "Öffnen"

#, fuzzy
msgid "Close"
msgstr "Öffnen"

msgid "Save"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

#~ msgid "Old"
#~ msgstr "Alt"
"""


@pytest.mark.parametrize("charset", ["UTF-8", "ISO-8859-1"])
def test_messages_and_plurals_are_read(tmp_path, charset):
    pytest.importorskip("polib")
    path = tmp_path / "de.po"
    path.write_bytes(PO.format(charset=charset).encode(charset))
    report = Report()
    assert texts(path, report) == [
        ("Open", "Öffnen"),
        ("%d file", "%d Datei"),
        ("%d files", "%d Dateien"),
    ]
    assert report.lines() == [
        "dropped 1 pair marked as fuzzy (de.po:11)",
        "dropped 1 pair without a translation (de.po:15)",
        "dropped 1 pair marked as obsolete (de.po:23)",
    ]


def test_damaged_gettext_file_is_refused(tmp_path):
    pytest.importorskip("polib")
    (tmp_path / "de.po").write_text('msgid "a"\nmessage "b"\n')
    with pytest.raises(ValueError, match=r"expected a gettext file \(PO\), got "):
        load(str(tmp_path / "de.po")).pairs("train")
