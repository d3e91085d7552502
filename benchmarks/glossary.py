"""Translate a test split with and without a glossary, and print the share of terms kept, BLEU and
time.

python benchmarks/glossary.py MODEL … --data folder:multi30k:de-en [--beam-size 4]

The glossary is drawn from the test split: pairs of words that occur together in the training split
(Dice coefficient), and whose second word is in the references of most of the test sentences that
have the first.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import sacrebleu
from harness import arguments_parser, processor, report

import tfk_transformer
from tfk_transformer import Glossary, datasets
from tfk_transformer.text.glossary import missing_terms
from tfk_transformer.text.words import word_spans

LEAST_LETTERS, LEAST_SENTENCES, LEAST_DICE, LEAST_SHARE = 4, 2, 0.3, 0.6


def words_of(text: str) -> set[str]:
    """Return the longer words of a text."""
    return {text[start:end] for start, end in word_spans(text) if end - start >= LEAST_LETTERS}


def dice(pairs: Iterable[tuple[str, str]], words: set[str]) -> dict[str, Counter[str]]:
    """Return the Dice coefficient of each of some source words with each target word."""
    sources: Counter[str] = Counter()
    targets: Counter[str] = Counter()
    together: dict[str, Counter[str]] = {word: Counter() for word in words}
    for source, target in pairs:
        theirs = words_of(target)
        targets.update(theirs)
        for word in words_of(source) & words:
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


def main() -> None:
    """Print a row for each model without and with the glossary."""
    parser = arguments_parser(__doc__)
    add = parser.add_argument
    add("models", type=Path, nargs="+", help="bundles, SavedModels or ONNX files")
    add("--data", required=True, help="the pairs of texts")
    add("--beam-size", type=int, default=4)
    add("--sentences", type=int, default=1000, help="of the test split")
    options = parser.parse_args()
    source = datasets.load(options.data)
    train, test = (
        [(pair.source, pair.target) for pair in source.pairs(split)] for split in ("train", "test")
    )
    test = test[: options.sentences]
    glossary = drawn_glossary(train, test)
    texts, references = [source for source, _ in test], [target for _, target in test]
    terms = [glossary.found_in(text) for text in texts]
    count = sum(map(len, terms))
    if not count:
        sys.exit(f"glossary.py: expected words of {options.data} with one translation, found none")
    table, outputs = [["model", "glossary", "terms kept", "BLEU", "seconds"]], []
    for path in options.models:
        model = tfk_transformer.load(path)
        # The first calls trace or plan.
        model.translate(texts[:8], beam_size=options.beam_size, glossary=glossary)
        for name, given in (("without", None), ("with", glossary)):
            begun = time.perf_counter()
            translations = model.translate(texts, beam_size=options.beam_size, glossary=given)
            seconds = time.perf_counter() - begun
            found = [one.text for one in translations]
            lost = sum(len(missing_terms(*item)) for item in zip(terms, found, strict=True))
            bleu = sacrebleu.corpus_bleu(found, [references]).score
            kept = f"{1 - lost / count:.1%}"
            table.append([path.name, name, kept, f"{bleu:.2f}", f"{seconds:.1f}"])
            outputs.append((name, found))
    same = all(found == outputs[place % 2][1] for place, (_, found) in enumerate(outputs))
    conditions = [
        f"Processor: {processor()}.",
        f"{len(texts)} sentences; {len(glossary.terms)} terms, {count} times in "
        f"{sum(map(bool, terms))} sentences; beam size {options.beam_size}.",
        f"The models give {'the same' if same else 'different'} translations.",
    ]
    report(conditions, [table], options.markdown)


if __name__ == "__main__":
    main()
