"""XLIFF: translations in the targets."""

from xml.etree import ElementTree

import pytest
from string_files import translated

REVIEW = 'state="needs-review-translation"'


def old(units, attributes=""):
    """Return a file of version 1.2."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2"><file original="a" '
        f'source-language="en"{attributes}><body>\n{units}\n</body></file></xliff>\n'
    )


def new(segments, unit="", target=' trgLang="de"'):
    """Return a file of version 2.0."""
    return (
        f'<xliff version="2.0" srcLang="en"{target}><file id="f"><unit id="u"{unit}>{segments}'
        "</unit></file></xliff>"
    )


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (
            '<trans-unit id="1">\n  <source>six</source>\n</trans-unit>',
            f'<trans-unit id="1">\n  <source>six</source>\n  <target {REVIEW}>SIX</target>\n'
            "</trans-unit>",
        ),
        (
            '<x:trans-unit id="1"><x:source>a &amp; &lt;b></x:source><x:target/></x:trans-unit>',
            '<x:trans-unit id="1"><x:source>a &amp; &lt;b></x:source>'
            f"<x:target {REVIEW}>A &amp; &lt;b></x:target></x:trans-unit>",
        ),
        (
            '<trans-unit id="1"><source>six</source><target state="new" xml:lang="de">six</target>'
            "<alt-trans><target>x</target></alt-trans></trans-unit>",
            f'<trans-unit id="1"><source>six</source><target {REVIEW} xml:lang="de">SIX</target>'
            "<alt-trans><target>x</target></alt-trans></trans-unit>",
        ),
        (
            '<trans-unit id="1"><source>six. two</source><seg-source><mrk mtype="seg" mid="1">six.'
            '</mrk> <mrk mtype="seg" mid="2">two</mrk></seg-source></trans-unit>',
            '<trans-unit id="1"><source>six. two</source><seg-source><mrk mtype="seg" mid="1">six.'
            '</mrk> <mrk mtype="seg" mid="2">two</mrk></seg-source>'
            f'<target {REVIEW}><mrk mtype="seg" mid="1">SIX.</mrk> <mrk mtype="seg" mid="2">TWO'
            "</mrk></target></trans-unit>",
        ),
        (
            '<trans-unit id="1"><source><![CDATA[a <i> & b]]></source></trans-unit>',
            '<trans-unit id="1"><source><![CDATA[a <i> & b]]></source>'
            f"<target {REVIEW}>A &lt;i&gt; &amp; B</target></trans-unit>",
        ),
    ],
)
def test_targets_are_written(unit, expected):
    prefix = ' xmlns:x="x"' if "<x:" in unit else ""
    assert translated(old(unit, prefix), "xliff") == old(expected, prefix)


@pytest.mark.parametrize(
    "unit",
    [
        '<trans-unit id="1"><source>six</source><target>sechs</target></trans-unit>',
        '<trans-unit id="1" approved="yes"><source>six</source><target/></trans-unit>',
        '<trans-unit id="1" translate="no"><source>six</source></trans-unit>',
        '<group translate="no"><trans-unit id="1"><source>six</source></trans-unit></group>',
        '<trans-unit id="1"><source>six</source><target state="final"/></trans-unit>',
        '<!-- <trans-unit id="1"><source>six</source></trans-unit> -->',
        '<trans-unit id="1"><source></source></trans-unit>',
    ],
)
def test_other_units_stay(unit):
    assert translated(old(unit), "xliff") == old(unit)


@pytest.mark.parametrize(
    "source",
    [
        '<g id="1">six</g> seven',
        'six <x id="1"/> seven',
        'six <x id="1" equiv-text="&lt;a>"/>seven<x id="2"/>',
        '<bx id="1"/>six<ex id="2" rid="1"/>',
        'six <ph id="1">&lt;br></ph> seven',
        '<bpt id="1">[b]</bpt>six<ept id="1">[/b]</ept> seven',
        'six <mrk mtype="protected">seven</mrk> eight',
        "six {name} &lt;b>seven&lt;/b>",
    ],
)
def test_inline_elements_are_kept(source):
    text = old(f'<trans-unit id="1"><source>{source}</source></trans-unit>')
    root = ElementTree.fromstring(translated(text, "xliff"))
    expected = [child.attrib for child in root.find(".//source").iter()][1:]
    assert [child.attrib for child in root.find(".//target").iter()][1:] == expected
    assert "SIX" in "".join(root.find(".//target").itertext())


def test_segments_are_translated():
    source = (
        'six <pc id="1">two</pc> <ph id="2"/> <sc id="3"/>nine<ec startRef="3"/> '
        '<mrk id="m" translate="no">x</mrk>'
    )
    target = source.replace("six", "SIX").replace("two", "TWO").replace("nine", "NINE")
    rest = "<ignorable><source> </source></ignorable>"
    segments = f'<segment id="s" subState="a:b" state="initial"><source>{source}</source></segment>'
    expected = (
        f'<segment id="s" state="translated"><source>{source}</source><target>{target}</target>'
        "</segment>"
    )
    assert translated(new(segments + rest), "xliff") == new(expected + rest)
    assert translated(new(segments, ' translate="no"'), "xliff") == new(segments, ' translate="no"')


def test_language_is_set():
    unit = '<trans-unit id="1"><source>six</source><target>sechs</target></trans-unit>'
    assert translated(old(unit), "xliff", target_language="de-AT") == old(
        unit, ' target-language="de-AT"'
    )
    segment = "<segment><source>6</source><target>6</target></segment>"
    assert translated(new(segment, target=""), "xliff", target_language="de") == new(segment)
    with pytest.raises(ValueError, match="since the file has no trgLang, got none; give its code"):
        translated(new("<segment><source>six</source></segment>", target=""), "xliff")


@pytest.mark.parametrize("target", ["</target>", "<g>", "&", "]]>", "a\x00b", "{", '"'])
def test_hostile_translations_stay_well_formed(target):
    text = old('<trans-unit id="1"><source>six <x id="1"/></source></trans-unit>')
    root = ElementTree.fromstring(translated(text, "xliff", lambda text: target))
    assert [child.tag for child in root.find(".//target")] == ["x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<xliff version='1.2'><file></xliff>", r"got an error \(mismatched tag: line 1, column"),
        ("<!DOCTYPE xliff [<!ENTITY a 'b'>]><xliff/>", "got a document type in line 1; remove it"),
        ("<?xml version='1.0' encoding='latin1'?><xliff/>", "got the encoding latin1 in line 1"),
        ("<tmx version='1.4'/>", "expected XLIFF 1.2 or 2, got <tmx> with the version '1.4'"),
    ],
)
def test_other_files_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        translated(text, "xliff")
