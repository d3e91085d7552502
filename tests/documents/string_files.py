"""Translate files of strings by a function, and check what must be true of each."""

import numpy as np
from document_checks import translate
from hard_documents import unchanged

from tfk_transformer.formats.registry import read


def by(function):
    """Return a translator by a function; each piece attends to the one with the same number."""

    def run(texts, attention):
        sources = unchanged(texts, attention)
        targets = unchanged([function(text) for text in texts], attention)
        return [
            target._replace(
                attention=np.eye(len(target.tokens), len(source.tokens)),
                source_tokens=source.tokens,
            )
            for source, target in zip(sources, targets, strict=True)
        ]

    return run


def translation(text, format, function=str.upper, **options):
    """Translate a file, and check the positions of its sentences."""
    document = read(text, format, **options)
    result = document.finish(translate(document, "en", by(function)))
    for sentence in result.sentences:
        assert text[sentence.source_start : sentence.source_end] == sentence.source
        assert result.text[sentence.target_start : sentence.target_end] == sentence.target
    return result


def translated(text, format, function=str.upper, **options):
    """Return the text of a translation."""
    return translation(text, format, function, **options).text
