"""Gettext PO: translations in the places of empty ones."""

import polib
import pytest
from string_files import translated, translation

HEADER = r"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: \n"
"Plural-Forms: nplurals=3; plural=0;\n"

"""


def entry(text, **options):
    """Return the translation of an entry, without the header."""
    return translated(HEADER + text, "po", **options).removeprefix(HEADER)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('msgid "six"\nmsgstr ""\n', '#, fuzzy\nmsgid "six"\nmsgstr "SIX"\n'),
        (
            '#: a.c:1\n#, c-format\nmsgctxt "menu"\nmsgid "six %s"\nmsgstr ""\n',
            '#: a.c:1\n#, fuzzy, c-format\nmsgctxt "menu"\nmsgid "six %s"\nmsgstr "SIX %s"\n',
        ),
        (
            '#| msgid "old"\nmsgid "six"\nmsgstr ""\n',
            '#, fuzzy\n#| msgid "old"\nmsgid "six"\nmsgstr "SIX"\n',
        ),
        (
            'msgid ""\n"a \\"six\\"\\n"\n"and "\n"more"\nmsgstr ""\n',
            '#, fuzzy\nmsgid ""\n"a \\"six\\"\\n"\n"and "\n"more"\n'
            'msgstr ""\n"A \\"SIX\\"\\n"\n"AND MORE"\n',
        ),
    ],
)
def test_empty_entries_are_translated(source, expected):
    assert entry(source) == expected


@pytest.mark.parametrize(
    "text",
    [
        'msgid "six"\nmsgstr "sechs"\n',
        '#, fuzzy\nmsgid "six"\nmsgstr "sieben"\n',
        '#~ msgid "six"\n#~ msgstr ""\n',
        'msgid "one"\nmsgid_plural "%d"\nmsgstr[0] "eins"\nmsgstr[1] ""\n',
    ],
)
def test_other_entries_stay(text):
    assert entry(text) == text


def test_plural_forms_are_those_of_the_header():
    text = 'msgid "a file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    (actual,) = polib.pofile(translated(HEADER + text, "po"))
    assert actual.msgstr_plural == {0: "A FILE", 1: "%d FILES", 2: "%d FILES"}
    one = translated(HEADER.replace("nplurals=3", "nplurals=1") + text, "po")
    assert polib.pofile(one)[0].msgstr_plural == {0: "%d FILES"}


def test_a_blank_source_is_not_the_header():
    text = 'msgid " "\nmsgstr ""\n\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    assert entry(text).count('msgstr[2] "B"') == 1


def test_plural_forms_need_their_number():
    text = 'msgid "a file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    message = "expected Plural-Forms with nplurals in the header, since line 2 has plural forms"
    with pytest.raises(ValueError, match=message):
        translated(text, "po")


@pytest.mark.parametrize(
    ("source", "target"), [("&File", "&FILE"), ("_File", "_FILE"), ("E&xit", "&EXIT")]
)
def test_accelerators_are_before_a_word(source, target):
    assert f'msgstr "{target}"' in entry(f'msgid "{source}"\nmsgstr ""\n')


@pytest.mark.parametrize(
    "point", ["%s", "%(name)s", "{name}", "%1$s", "%%", "%1", "&amp;", "%dMB", "<_:link-1/>"]
)
def test_placeholders_are_kept_once(point):
    text = f'msgid "six {point} seven"\nmsgstr ""\n'
    assert f'msgstr "SIX {point} SEVEN"' in entry(text)


@pytest.mark.parametrize("target", ["%s", "six %", "{six", "<b>six</b>"])
def test_translations_with_other_placeholders_are_refused(target):
    text = 'msgid "seven"\nmsgstr ""\n'
    result = translation(text, "po", lambda source: target)
    assert 'msgstr "seven"' in result.text
    assert result.sentences[0].keeps_source


def test_hard_characters_are_escaped():
    actual = translated('msgid "six"\nmsgstr ""\n', "po", lambda text: 'a "b" \\n\n\x00"')
    assert polib.pofile(actual)[0].msgstr == 'a "b" \\n  "'


def test_header_is_set():
    text = HEADER.replace("charset=UTF-8", "charset=CHARSET")
    assert translated(text, "po", target_language="de-AT") == HEADER.replace(
        "Language: ", "Language: de_AT"
    )
    without = HEADER.replace('"Language: \\n"\n', "")
    assert (
        polib.pofile(translated(without, "po", target_language="de")).metadata["Language"] == "de"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("msgid six\n", "got one that begins with 'msgid six' in line 7; correct the entry"),
        ('msgid "six"\n', "expected an entry with msgid and msgstr in quotes"),
        ('msgid "a "six"\nmsgstr ""\n', "expected an entry with msgid and msgstr in quotes"),
    ],
)
def test_broken_files_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        entry(text)


def test_line_ends_stay():
    text = 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    crlf = (HEADER + text).replace("\n", "\r\n")
    assert translated(crlf, "po") == translated(HEADER + text, "po").replace("\n", "\r\n")


def test_other_charsets_are_refused():
    with pytest.raises(ValueError, match="expected charset=UTF-8 in the header, got ISO-8859-1"):
        translated(HEADER.replace("UTF-8", "ISO-8859-1"), "po")
