"""Translate a test split as documents and as sentences, and print the BLEU of both.

python benchmarks/documents.py MODEL --data folder:multi30k:de-en --language de [--documents 10]
[--beam-size 4]

The source texts are joined to documents in two ways: one text per line (`lines=True`), and
paragraphs of ten texts, whose sentences have to be found. The translation of a text is what stands
in the document in place of it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import sacrebleu
import typer
from engines.report import print_tables, processor

import tfk_transformer
from tfk_transformer import datasets
from tfk_transformer.inference.base_translator import BaseTranslator
from tfk_transformer.text.results import DocumentSentence

PARAGRAPH = 10  # texts


def pieces(texts: Sequence[str], lines: bool) -> tuple[str, list[int]]:
    """Return texts as one document, and where each begins."""
    ends = [
        "\n" if lines else "\n\n" if number % PARAGRAPH == 0 else " "
        for number in range(1, len(texts) + 1)
    ]
    starts = [0]
    for text, end in zip(texts, ends, strict=True):
        starts.append(starts[-1] + len(text) + len(end))
    return "".join(text + end for text, end in zip(texts, ends, strict=True)), starts[:-1]


def translations(
    sentences: Sequence[DocumentSentence], starts: Sequence[int]
) -> tuple[list[str], int]:
    """Return the translation of the text at each start, and how many sentences go beyond the end of
    their text.
    """
    found: list[list[str]] = [[] for _ in starts]
    beyond = 0
    for sentence in sentences:
        place = sum(start <= sentence.source_start for start in starts) - 1
        beyond += place + 1 < len(starts) and sentence.source_end > starts[place + 1]
        found[place].append(sentence.target)
    return [" ".join(parts) for parts in found], beyond


def as_documents(
    model: BaseTranslator,
    texts: Sequence[str],
    size: int,
    language: str,
    beam_size: int,
    lines: bool,
) -> tuple[list[str], int]:
    """Return the translation of each text, and how many sentences go beyond the end of a text."""
    found, beyond = [], 0
    for first in range(0, len(texts), size):
        document, starts = pieces(texts[first : first + size], lines)
        translated = model.translate_document(
            document, language=language, lines=lines, beam_size=beam_size
        )
        parts, count = translations(translated.sentences, starts)
        found, beyond = found + parts, beyond + count
    return found, beyond


def main(
    path: Annotated[
        Path, typer.Argument(metavar="MODEL", help="a bundle, a SavedModel or an ONNX file")
    ],
    data: Annotated[str, typer.Option(help="the pairs of texts")],
    language: Annotated[str, typer.Option(help="language of the source texts")] = "en",
    documents: Annotated[
        int, typer.Option(min=1, help="how many documents the test split makes")
    ] = 10,
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
) -> None:
    """Print a row for the sentences and for each kind of document."""
    source = datasets.load(data)
    texts, references = zip(
        *((pair.source.strip(), pair.target) for pair in source.pairs("test")), strict=True
    )
    model = tfk_transformer.load(path)
    size = -(-len(texts) // documents)
    alone = [one.text for one in model.translate(list(texts), beam_size=beam_size)]
    table = [["texts", "BLEU", "same as alone", "sentences beyond a text"]]
    for name, lines in (
        ("alone", None),
        ("one per line", True),
        (f"paragraphs of {PARAGRAPH}", False),
    ):
        found, beyond = (
            (alone, 0)
            if lines is None
            else as_documents(model, texts, size, language, beam_size, lines)
        )
        bleu = sacrebleu.corpus_bleu(found, [list(references)]).score
        table.append(
            [
                name,
                f"{bleu:.2f}",
                f"{sum(map(str.__eq__, found, alone))} of {len(texts)}",
                str(beyond),
            ]
        )
    conditions = [
        f"Processor: {processor()}.",
        f"{len(texts)} texts in {documents} documents, beam size {beam_size}, {path.name}.",
    ]
    print_tables(conditions, (table,))


if __name__ == "__main__":
    typer.run(main)
