"""Subtitles: sentences over several cues, and everything that stays."""

import pytest
from document_checks import check_places, translate
from hard_documents import unchanged

from tfk_transformer.formats.reading.subtitle_reader import read
from tfk_transformer.text.results import Hypothesis

SUBRIP = """\
1
00:00:01,000 --> 00:00:02,500
One two three
four five

2
00:00:02,600 --> 00:00:04,000  X1:100 Y1:20
six seven.

3
00:00:09,000 --> 00:00:10,000
♪♪

4
00:00:11,000 --> 00:00:12,000
- Yes.
- No <i>way</i>!

5
00:00:12,100 --> 00:00:13,000
{\\an8}(laughs)
"""
WEBVTT = """\
WEBVTT - A film

STYLE
::cue(.loud) { color: red }

NOTE This is
not translated.

intro
00:01.000 --> 00:02.000 align:start line:0%
<v Roger><c.loud>Seven</c> &amp; <00:01.500>nine

00:02.000 --> 00:03.000
<v Roger>live here.

00:03.000 --> 00:04.000
<v Ann>Really?
"""
ASS = """\
[Script Info]
Title: Film
[V4+ Styles]
Style: Default,Arial,20
[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Comment: 0,0:00:00.00,0:00:01.00,Default,,0,0,0,,Not shown
Dialogue: 0,0:00:01.00,0:00:02.00,Default,Ann,0,0,0,,{\\pos(1,2)}Well, {\\i1}two{\\i0}\\Nthree
Dialogue: 0,0:00:02.00,0:00:03.00,Default,Ann,0,0,0,,four\\hfive.
Dialogue: 0,0:00:02.00,0:00:03.00,Sign,,0,0,0,,{\\p1}m 0 0 l 9 0{\\p0}
Dialogue: 0,0:00:03.00,0:00:04.00,Sign,,0,0,0,,Exit
"""


def upper(texts, attention):
    return [
        each._replace(text=each.text.upper(), tokens=[piece.upper() for piece in each.tokens])
        for each in unchanged(texts, attention)
    ]


def scripted(translations):
    """Return a translator of the texts that `translations` names."""
    return lambda texts, attention: [Hypothesis(translations[text], 0.0) for text in texts]


def cue(text):
    return f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n"


@pytest.mark.parametrize("text", [SUBRIP, WEBVTT, ASS], ids=["srt", "vtt", "ass"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_unchanged_words_are_the_same_file(text, line_end, mark):
    text = mark + text.replace("\n", line_end)
    result = translate(read(text), "en", unchanged)
    assert result.text == text
    check_places(text, result)


def test_only_words_of_subrip_change():
    expected = SUBRIP
    for words in ("One two three", "four five", "six seven", "Yes", "No", "way", "laughs"):
        expected = expected.replace(words, words.upper())
    assert translate(read(SUBRIP), "en", upper).text == expected


def test_only_words_of_webvtt_change():
    expected = WEBVTT
    for words in ("Seven", "nine", "live here", "Really"):
        expected = expected.replace(words, words.upper())
    assert translate(read(WEBVTT), "en", upper).text == expected


def test_only_words_of_substation_alpha_change():
    expected = ASS
    for words in ("Well", "two", "three", "four\\hfive", "Exit"):
        expected = expected.replace(words, words.upper())
    # A hard space is a blank between other words.
    assert translate(read(ASS), "en", upper).text == expected.replace("\\HFIVE", " FIVE")


def test_a_sentence_continues_in_the_next_cue():
    sentences = [each.source for each in translate(read(SUBRIP), "en", unchanged).sentences]
    first = SUBRIP[SUBRIP.index("One") : SUBRIP.index("\n\n3")]
    assert sentences == [first, "Yes.", "No <i>way</i>!", "(laughs)"]


def test_words_are_divided_by_the_length_of_the_lines():
    translations = {
        "One two three four five six seven.": "Aaaa bbbb cccc dddd eeee ffff gggg.",
        "Yes.": "Ja.",
        "(laughs)": "(lacht)",
    }
    document = read(SUBRIP.replace("<i>way</i>", "way"))
    result = translate(document, "en", scripted({**translations, "No way!": "Nein!"}))
    expected = SUBRIP.replace("One two three\nfour five", "Aaaa bbbb cccc\ndddd eeee")
    expected = expected.replace("six seven.", "ffff gggg.").replace("No <i>way</i>", "Nein")
    assert result.text == expected.replace("Yes", "Ja").replace("laughs", "lacht")


def test_attention_is_only_needed_for_tags():
    requests = []

    def run(texts, attention):
        requests.extend((text, attention) for text in texts)
        return unchanged(texts, attention)

    translate(read(SUBRIP), "en", run)
    assert [text for text, attention in requests if attention] == ["No way!"]


def test_a_short_translation_has_fewer_lines():
    result = translate(read(cue("One two\nthree")), "en", scripted({"One two three": "Drei"}))
    assert result.text == cue("Drei")


def test_lines_of_chinese_end_between_characters():
    run = scripted({"One two three": "一二三四五六"})
    result = translate(read(cue("One two\nthree")), "en", run)
    assert result.text == cue("一二三\n四五六")


def test_no_cue_becomes_empty():
    text = cue("One") + "\n" + cue("two").replace("01,000", "02,000")
    text = text.replace("02,000 --> 00:00:02,000", "02,000 --> 00:00:03,000")
    result = translate(read(text), "en", scripted({"One two": "Zwei"}))
    assert result.text == text
    assert result.sentences[0].keeps_source


def test_distant_cues_have_sentences_of_their_own():
    text = cue("New York") + "\n" + cue("Hello").replace("00:00:", "00:01:")
    sentences = translate(read(text), "en", unchanged).sentences
    assert [each.source for each in sentences] == ["New York", "Hello"]


@pytest.mark.parametrize(
    "translation",
    ["00:00:01,000 --> 00:00:02,000", "<b>", "{\\an8}", "a\n\n2\n00:00:05,000 --> 00:00:06,000\nb"],
)
def test_a_translation_adds_no_cues_and_tags(translation):
    result = translate(read(cue("One two")), "en", scripted({"One two": translation}))
    assert result.text == cue("One two")
    assert result.sentences[0].keeps_source


def test_a_translation_is_escaped_in_webvtt():
    text = "WEBVTT\n\n00:01.000 --> 00:02.000\nOne two\n"
    result = translate(read(text), "en", scripted({"One two": "a <b> & -->"}))
    assert result.text == text.replace("One two", "a &lt;b&gt; &amp; --&gt;")


def test_other_texts_are_refused():
    message = "text: expected subtitles of SubRip, WebVTT or SubStation Alpha, got a text without"
    with pytest.raises(ValueError, match=message):
        read("Just a text.\n")
