"""Translate a test split with and without a glossary, and print the share of terms kept, BLEU and
time.

python benchmarks/glossary.py MODEL … --data folder:multi30k:de-en [--beam-size 4]

The glossary is drawn from the test split: pairs of words that occur together in the training split
(Dice coefficient), and whose second word is in the references of most of the test sentences that
have the first.
"""

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import sacrebleu
import typer
from engines.report import print_tables, processor

import tfk_transformer
from tfk_transformer import Glossary, datasets
from tfk_transformer.text.glossary import missing_terms
from tfk_transformer.text.words import word_spans

LEAST_LETTERS, LEAST_SENTENCES, LEAST_DICE, LEAST_SHARE = 4, 2, 0.3, 0.6


def words_of(text: str) -> set[str]:
    """Return the longer words of a text."""
    return {text[start:end] for start, end in word_spans(text) if end - start >= LEAST_LETTERS}


def dice(pairs: Iterable[tuple[str, str]], wanted: set[str]) -> dict[str, Counter[str]]:
    """Return the Dice coefficient of each of the `wanted` source words with the target words beside
    it.
    """
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    together: dict[str, Counter[str]] = {word: Counter() for word in wanted}
    for source, target in pairs:
        theirs = words_of(target)
        targets.update(theirs)
        for word in words_of(source) & wanted:
            sources[word] += 1
            together[word].update(theirs)
    return {
        word: Counter(
            {other: 2 * count / (sources[word] + targets[other]) for other, count in found.items()}
        )
        for word, found in together.items()
    }


def drawn_glossary(train: Iterable[tuple[str, str]], test: list[tuple[str, str]]) -> Glossary:
    """Return the pairs of words that the test split agrees with."""
    counts = Counter(word for source, _ in test for word in words_of(source))
    found = dice(train, {word for word, count in counts.items() if count >= LEAST_SENTENCES})
    terms = {}
    for word, others in found.items():
        for other, value in others.most_common(1):
            kept = sum(
                other in words_of(target) for source, target in test if word in words_of(source)
            )
            if value >= LEAST_DICE and kept >= LEAST_SHARE * counts[word]:
                terms[word] = other
    return Glossary(terms)


def main(
    models: Annotated[list[Path], typer.Argument(help="bundles, SavedModels or ONNX files")],
    data: Annotated[str, typer.Option(help="the pairs of texts")],
    beam_size: Annotated[int, typer.Option(min=1)] = 4,
    sentences: Annotated[int, typer.Option(min=1, help="of the test split")] = 1000,
) -> None:
    """Print a row for each model without and with the glossary."""
    source = datasets.load(data)
    train, test = (
        [(pair.source, pair.target) for pair in source.pairs(split)] for split in ("train", "test")
    )
    test = test[:sentences]
    glossary = drawn_glossary(train, test)
    texts, references = zip(*test, strict=True)
    wanted = [glossary.found_in(text) for text in texts]
    count = sum(map(len, wanted))
    if not count:
        raise typer.BadParameter(
            "expected pairs of texts whose words have translations of their own, found none in "
            f"{data}."
        )
    table, outputs = [["model", "glossary", "terms kept", "BLEU", "seconds"]], []
    for path in models:
        model = tfk_transformer.load(path)
        # The first calls trace or plan.
        model.translate(texts[:8], beam_size=beam_size, glossary=glossary)
        for name, given in (("without", None), ("with", glossary)):
            started = time.perf_counter()
            found = [
                one.text for one in model.translate(texts, beam_size=beam_size, glossary=given)
            ]
            seconds = time.perf_counter() - started
            kept = (
                1
                - sum(
                    len(missing_terms(terms, text))
                    for terms, text in zip(wanted, found, strict=True)
                )
                / count
            )
            bleu = sacrebleu.corpus_bleu(found, [list(references)]).score
            table.append([path.name, name, f"{kept:.1%}", f"{bleu:.2f}", f"{seconds:.1f}"])
            outputs.append((name, found))
    same = all(found == outputs[place % 2][1] for place, (_, found) in enumerate(outputs))
    conditions = [
        f"Processor: {processor()}.",
        (
            f"{len(texts)} sentences; {len(glossary.terms)} terms, {count} times in "
            f"{sum(map(bool, wanted))} sentences; beam size {beam_size}."
        ),
        f"The models give {'the same' if same else 'different'} translations.",
    ]
    print_tables(conditions, (table,))


if __name__ == "__main__":
    typer.run(main)
