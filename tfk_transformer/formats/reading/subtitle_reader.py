"""Subtitles as items: SubRip (.srt), WebVTT (.vtt), and SubStation Alpha (.ass, .ssa)."""

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from tfk_transformer.formats.documents.items import Document, Item, ItemType, pair_elements
from tfk_transformer.formats.lines import one_line

TIME = r"(?:\d{1,4}:)?\d{1,4}:\d{1,4}[.,]\d{1,4}"
TIMES = rf"^[ \t]*(?P<Start>{TIME})[ \t]*-->[ \t]*(?P<End>{TIME})[^\r\n]*(?:\r?\n|\r|\Z)"
TWO_TIMES = re.compile(rf"{TIME}.*{TIME}")  # some players read any such line as a cue
SUBRIP = re.compile(rf"(?:^[ \t]*\d+[ \t]*(?:\r?\n|\r))?{TIMES}", re.MULTILINE)
WEBVTT = re.compile(TIMES, re.MULTILINE)
# What ends the text of a cue.
END = {
    "srt": SUBRIP,
    "vtt": re.compile(r"^[ \t]*\r?$|^.*-->", re.MULTILINE),
    "ass": re.compile(r"\r?$", re.MULTILINE),
}
ASS_FIELDS = re.compile(r"^Format:(.*),\s*Text\s*$", re.MULTILINE)
USUAL_FIELDS = "Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect"
READ_FIELDS = {"Start", "End", "Style", "Name", "Actor"}
# A name of an element, the time of karaoke, or codes in braces, of which those of bold, italic,
# strikeout and underlined text are elements too; or the code of a character.
MARKUP = re.compile(
    r"</?(?P<name>[A-Za-z]+|(?=\d+:))[^>]*(?:>|\Z)|\{\\(?P<code>[bisu])[01]\}|\{[^{}\r\n]*\}"
    r"|(?P<character>\\h|&#?\w+;)"
)
DRAWING = re.compile(r"\{[^{}]*\\p[1-9]")  # its text is shapes
VOICE = re.compile(r"<v\b[^>]*>")
# Music is between notes, and each speech of a dialogue begins with a dash.
NOTES, DASHES = "♪♫", "-–—"
LEAD = re.compile(rf"[\s{NOTES}]*(?:[{DASHES}]\s*)?")
LINE_END = re.compile(
    rf"(?<![\s{NOTES}])[\s{NOTES}]*(?:[\r\n]|\\[Nn])(?:[\s{NOTES}]|\\[Nnh])*(?:[{DASHES}]\s*)?"
)
LINE_CODE = re.compile(r"\\(?=[Nnh])")  # in a translation
MAX_PAUSE = 3.0  # seconds between two cues of one sentence


class Cue(NamedTuple):
    """One subtitle: its text is document[start:end], without the notes and the dash around it."""

    start: int
    end: int
    first: float  # in seconds
    last: float
    speaker: list[str | None]  # and the style


def read(text: str) -> Document:
    """Parse subtitles. Times, numbers, settings, styles, comments and drawings stay unchanged."""
    format = "srt"
    if re.match("\ufeff?WEBVTT", text):
        format = "vtt"
    elif re.search(r"^\ufeff?\[(?:Script Info|Events)\]", text, re.MULTILINE):
        format = "ass"
    items: list[Item] = []
    cues = list(_cues(text, format))
    if format == "srt" and not cues and text.strip():
        raise ValueError(
            "text: expected subtitles of SubRip, WebVTT or SubStation Alpha, got a text without "
            "times; give another format."
        )
    last: Cue | None = None
    done = 0
    for number, cue in enumerate(cues):
        inner = list(_cue_items(text, cue, number))
        if not any(character.isalpha() for item in inner for character in item.text):
            last = None
            continue
        border = _border(text, done, cue.start, last is not None and _is_next(last, cue))
        items += [border._replace(needs_text=True), *inner]
        done, last = cue.end, cue

    def encode(text: str) -> str:
        text = one_line(text)
        if format == "vtt":
            return html.escape(text, quote=False)
        return LINE_CODE.sub("\\\\\u2060", text.replace("-->", "→"))

    def structure(text: str) -> list[str]:
        return list(_structure(text, format))

    return Document(text, pair_elements(items), structure=structure, encode=encode)


def _cues(text: str, format: str) -> Iterator[Cue]:
    """Yield the cues of subtitles in the order of the document."""
    head = SUBRIP if format == "srt" else WEBVTT
    if format == "ass":
        fields = ASS_FIELDS.findall(text)[-1:] or [USUAL_FIELDS]
        names = [name.strip() for name in fields[0].split(",")]
        groups = (
            f"(?P<{name}>[^,\r\n]*)" if name in READ_FIELDS else "[^,\r\n]*" for name in names
        )
        head = re.compile(rf"^Dialogue:{','.join(groups)},", re.MULTILINE)
    for match in head.finditer(text):
        end = END[format].search(text, match.end())
        piece = text[match.end() : end.start() if end else len(text)]
        lead = LEAD.match(piece)
        start = match.end() + (lead.end() if lead else 0)
        last = max(start, match.end() + len(piece.rstrip(f"{NOTES} \t\r\n")))
        if not DRAWING.search(text, start, last):
            values = match.groupdict()
            voice = VOICE.match(text, start, last)
            speaker = [voice and voice[0], *map(values.get, ("Style", "Name", "Actor"))]
            yield Cue(start, last, _seconds(values["Start"]), _seconds(values["End"]), speaker)


def _seconds(time: str) -> float:
    seconds = 0.0
    for part in re.findall(r"\d+(?:[.,]\d+)?", time):
        seconds = 60 * seconds + float(part.replace(",", "."))
    return seconds


def _is_next(last: Cue, cue: Cue) -> bool:
    """Return whether the sentence of a cue may continue in another one."""
    is_near = last.first < cue.first and abs(cue.first - last.last) <= MAX_PAUSE
    return is_near and last.speaker == cue.speaker


def _border(text: str, start: int, end: int, is_next: bool = True) -> Item:
    """Return the border text[start:end] of two lines: a break where speech begins or ends."""
    begins = text[start:end].rstrip()[-1:] in (*NOTES, *DASHES)
    has_sound = text[start - 1 : start] in (")", "]") or text[end : end + 1] in ("(", "[")
    if begins or has_sound or not is_next:
        return Item(ItemType.BREAK, start, end)
    return Item(ItemType.BORDER, start, end, " ")


def _cue_items(text: str, cue: Cue, number: int) -> Iterator[Item]:
    done = cue.start
    for line_end in LINE_END.finditer(text, cue.start, cue.end):
        yield from _line_items(text, done, line_end.start(), number)
        done = line_end.end()
        if done < cue.end:
            yield _border(text, line_end.start(), done)
    yield from _line_items(text, done, cue.end, number)


def _line_items(text: str, start: int, end: int, number: int) -> Iterator[Item]:
    for mark in MARKUP.finditer(text, start, end):
        yield Item(ItemType.TEXT, start, mark.start(), text[start : mark.start()])
        is_end = mark[0].startswith("</") or mark[0].endswith("0}")
        element = mark["name"] or mark["code"]
        item_type = ItemType.CLOSE if is_end else ItemType.OPEN
        if mark["character"]:
            shown = " " if mark[0] == "\\h" else html.unescape(mark[0])
            yield Item(ItemType.TEXT, *mark.span(), shown)
        else:
            # The number of the cue is part of the name: both ends of an element are in one cue.
            name = f"{number} {element}"
            yield Item(item_type if element else ItemType.POINT, *mark.span(), name=name)
        start = mark.end()
    yield Item(ItemType.TEXT, start, end, text[start:end])


def _structure(text: str, format: str) -> Iterator[str]:
    """Yield what is around the cues, the tags in them, and whether they have text."""
    done = 0
    for cue in _cues(text, format):
        yield text[done : cue.start].strip(f"{NOTES}{DASHES} \t\r\n")
        items = list(_cue_items(text, cue, 0))
        for item in items:
            if item.type not in (ItemType.TEXT, ItemType.BORDER, ItemType.BREAK):
                yield f"inline {text[item.start : item.end]}"
        yield f"text: {any(item.text.strip() for item in items)}"
        done = cue.end
    yield text[done:].strip()
    yield f"{len(TWO_TIMES.findall(text))} lines of times"
