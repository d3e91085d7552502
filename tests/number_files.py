"""Parallel files of number words, as data of tests."""

from pathlib import Path

# Five sentences, with characters that the vocabulary of number words lacks, and their translation.
PARAGRAPH = " forty-two.  seven!   nine? one hundred ninety-nine 😀. three"
TRANSLATED_PARAGRAPH = " zweiundvierzig.  sieben!   neun? einhundertneunundneunzig 😀. drei"


def write_number_files(folder: Path, numbers) -> str:
    """Write English and German number words as parallel files; return their spec."""
    from tfk_transformer.datasets.numbers import spell

    folder.mkdir(exist_ok=True)
    for language in ("en", "de"):
        (folder / f"{language}.txt").write_text(
            "".join(f"{spell(n, language)}\n" for n in numbers), encoding="utf-8"
        )
    return number_files_spec(folder)


def number_files_spec(folder: Path) -> str:
    """Return the spec of the files that `write_number_files` wrote."""
    return f"files:{folder / 'en.txt'},{folder / 'de.txt'}"
