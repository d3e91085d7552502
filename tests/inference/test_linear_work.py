"""The work on a text grows with its length, whatever is in it: translate, stream, documents.

Counted are the executed lines of Python, of the package and of other code, and the characters of
slices of the text. The models are echoes, since a model bounds the length of what it reads.
"""

import functools
import html
import json
import string
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import tfk_transformer
from tfk_transformer.config.search_settings import resolve_settings, setting_arrays, setting_rules
from tfk_transformer.constants import END_ID, UNKNOWN_ID
from tfk_transformer.formats.documents.translation import translating
from tfk_transformer.formats.registry import DOCUMENT_FORMATS, read
from tfk_transformer.inference.conveyor import text_road, translate_sentences
from tfk_transformer.inference.streaming import stream_text
from tfk_transformer.text.outcome import too_long
from tfk_transformer.text.results import Hypothesis, Translation
from tfk_transformer.text.road import drive

LENGTH = 600
MAX_GROWTH = 2.3  # of the work for a text of twice the length
PACKAGE = str(Path(tfk_transformer.__file__).parent)
TEXTS = {
    "unknown letters": "жщ",
    "unknown words": "жщ a ",
    "markup": "<b>a</b> ",
    "emphasis": "**a** ",
    "spaces": " \t",
    "one word": "ab",
    "punctuation": "a, b. ",
    "emoji": "😀👍🏽 a ",
    "right-to-left": "שלום عليكم ",
    "digits": "12 3.5 ",
    "tags": "<i><br></i>",
    "open tags": "<i>a ",
    "entities": "&amp; a &copy; ",
    "lines": "a\n",
}
# A file with one text, in each format that needs more than the text.
FILES = {
    "subtitles": "1\n00:00:01,000 --> 00:00:02,000\n{}".format,
    "po": lambda text: f'msgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n',
    "xliff": lambda text: (
        '<xliff version="1.2"><file><trans-unit id="1"><source>'
        f"{html.escape(text)}</source></trans-unit></file></xliff>"
    ),
    "json": lambda text: json.dumps([text]),
    "arb": lambda text: json.dumps({"key": text}),
    "csv": lambda text: f'"{text}"',
}


class CountedText(str):
    """A text that counts the characters of its slices, and of their slices."""

    counts = Counter()

    def __getitem__(self, index):
        part = str.__getitem__(self, index)
        self.counts["characters"] += len(part)
        return CountedText(part)


def tokens(text):
    return len(text.strip())


class EchoRuntime:
    """A model that reads a character as a token, and that ends its translation at once."""

    has_encoder = True
    characters = frozenset(string.printable)
    cache_shapes = {}
    pieces = ["", "", "", "", "a"]
    terms = frozenset()

    def __init__(self, max_length=10_000):
        self.max_length = max_length
        self.runtime = self

    def run(self, name, inputs):
        if name == "decoder_step":
            return {"next_token": np.array([END_ID]), "log_prob": np.zeros(1)}
        if name == "encode":
            return {}
        lengths = [tokens(text) for text in inputs["text"]]
        ids = np.zeros((len(lengths), max(lengths) + 1), "int32")
        for row, length in zip(ids, lengths, strict=True):
            row[:length] = UNKNOWN_ID + 1
            row[length] = END_ID
        return {"source_ids": ids}

    def translate(self, sentences):
        return [
            too_long(text, self.max_length)
            if tokens(text) > self.max_length
            else Translation(text, [Hypothesis(text, 0.0)])
            for text in sentences.texts
        ]


def translate(text, **limits):
    runtime = EchoRuntime(**limits)
    road = text_road([text], [""], "en", runtime.max_length)
    (translation,) = drive(road, lambda sentences: translate_sentences(runtime, sentences))
    assert "".join(translation.text.split()) == "".join(text.split())


def stream(text):
    rules = setting_rules()
    settings = setting_arrays(resolve_settings({"beam_size": 1}, rules), rules)
    "".join(stream_text(EchoRuntime(), text, settings, "en"))


def translate_document(text, format):
    file = CountedText(FILES[format](text)) if format in FILES else text
    document = read(file, format, fields=["1"] if format == "csv" else [])
    road = translating(document, "en")
    document.finish(drive(road, lambda sentences: [echo(text) for text in sentences.texts]))


def echo(text):
    """Return a text as its translation; each word attends to itself."""
    pieces = [*text.split(), "</s>"]
    weights = np.eye(len(pieces), dtype="float32")
    return Hypothesis(CountedText(text), 0.0, pieces, attention=weights, source_tokens=pieces)


STEPS = {
    "translate": translate,
    "translate parts": functools.partial(translate, max_length=20),
    "stream": stream,
    **{
        name: functools.partial(translate_document, format=name)
        for name, format in DOCUMENT_FORMATS.items()
        if not format.is_office  # their parts are read by libraries
    },
}


def work(function, text):
    """Return the lines of the package, the lines of other code, and the characters of slices."""
    counts = CountedText.counts
    counts.clear()

    def trace(frame, event, argument):
        counts["package" if frame.f_code.co_filename.startswith(PACKAGE) else "other"] += 1
        return trace

    tracing = sys.gettrace()
    sys.settrace(trace)
    try:
        function(CountedText(text))
    finally:
        sys.settrace(tracing)
    return dict(counts)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", TEXTS)
def test_work_is_linear(step, kind):
    def text(length):
        return (TEXTS[kind] * length)[:length]

    STEPS[step](text(100))  # what is computed once
    single, double = (work(STEPS[step], text(length)) for length in (LENGTH, 2 * LENGTH))
    growth = {name: double[name] / max(count, LENGTH) for name, count in single.items()}
    assert max(growth.values()) <= MAX_GROWTH, growth
