"""Translate a test split as documents and as sentences, and print the BLEU of both.

python benchmarks/documents.py MODEL --data folder:multi30k:de-en --language de [--documents 10]
[--beam-size 4]

The source texts are joined to documents in two ways: one text per line (`lines=True`), and
paragraphs of ten texts, whose sentences have to be found. The translation of a text is what stands
in the document in place of it.
"""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import sacrebleu
from harness import arguments_parser, processor, report

import tfk_transformer
from tfk_transformer import datasets
from tfk_transformer.inference.base_translator import BaseTranslator
from tfk_transformer.text.results import DocumentSentence

PARAGRAPH = 10  # texts
PARAGRAPHS = f"paragraphs of {PARAGRAPH}"


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
    model: BaseTranslator, texts: Sequence[str], size: int, lines: bool, options: Namespace
) -> tuple[list[str], int]:
    """Return the translation of each text, and how many sentences go beyond the end of a text."""
    found, beyond = [], 0
    settings = {"language": options.language, "beam_size": options.beam_size}
    for first in range(0, len(texts), size):
        document, starts = pieces(texts[first : first + size], lines)
        translated = model.translate_document(document, lines=lines, **settings)
        parts, count = translations(translated.sentences, starts)
        found, beyond = found + parts, beyond + count
    return found, beyond


def main() -> None:
    """Print a row for the sentences and for each kind of document."""
    parser = arguments_parser(__doc__)
    add = parser.add_argument
    add("model", type=Path, help="a bundle, a SavedModel or an ONNX file")
    add("--data", required=True, help="its split 'test' is translated")
    add("--language", default="en", help="of the source texts (en)")
    add("--documents", type=int, default=10, help="how many documents the split makes (10)")
    add("--beam-size", type=int, default=4)
    options = parser.parse_args()
    pairs = list(datasets.load(options.data).pairs("test"))
    texts, references = [pair.source.strip() for pair in pairs], [pair.target for pair in pairs]
    model = tfk_transformer.load(options.model)
    size = -(-len(texts) // options.documents)
    alone = [one.text for one in model.translate(texts, beam_size=options.beam_size)]
    table = [["texts", "BLEU", "same as alone", "sentences beyond a text"]]
    for name, lines in (("alone", None), ("one per line", True), (PARAGRAPHS, False)):
        found, beyond = (alone, 0)
        if lines is not None:
            found, beyond = as_documents(model, texts, size, lines, options)
        bleu = sacrebleu.corpus_bleu(found, [references]).score
        same = sum(map(str.__eq__, found, alone))
        table.append([name, f"{bleu:.2f}", f"{same} of {len(texts)}", str(beyond)])
    conditions = [
        f"Processor: {processor()}.",
        f"{len(texts)} texts in {options.documents} documents, beam size {options.beam_size}, "
        f"{options.model.name}.",
    ]
    report(conditions, [table], options.markdown)


if __name__ == "__main__":
    main()
