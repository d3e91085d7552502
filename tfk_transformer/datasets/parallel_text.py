"""The sources for `files:SOURCE,TARGET` and `folder:DIR:de-en`, text files, plain or compressed.

Only the byte "\\n" ends a line: `str.splitlines` and Python's text mode also split at characters
that occur within sentences (U+2028, form feed, a single carriage return), which would misalign all
later sentences with their translations.
"""

import codecs
import re
from collections.abc import Iterator
from pathlib import Path

from tfk_transformer.datasets.pairs import (
    USUAL_SPLITS,
    Pair,
    Source,
    name_and_languages,
    order_splits,
    spec_error,
)
from tfk_transformer.formats.compression import open_decompressed, read_lines
from tfk_transformer.formats.output_file import content_digest

_BAD_LINES_SHOWN = 10

FilePair = tuple[Path, Path]


class ParallelText(Source):
    """Two files for each split, checked once before they are read: line N of both is pair N."""

    def __init__(self, name: str, files: dict[str, FilePair], *languages: str):
        super().__init__(name, *languages)
        self._files = files
        self._checked: set[FilePair] = set()

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return order_splits(self._files)

    def digest(self, split: str) -> str:
        """Return a hash of the files of a split; "" if there are none."""
        files = [file for file in self._files.get(split, ()) if file.is_file()]
        return content_digest(*files) if files else ""

    def _read(self, split: str) -> Iterator[Pair]:
        files = self._files[split]
        if files not in self._checked:
            source, target = files
            source_count, source_problems = _check_file(source)
            target_count, target_problems = _check_file(target)
            problems = source_problems + target_problems
            if None not in (source_count, target_count) and source_count != target_count:
                problems.append(
                    f"unequal line counts: {source} has {source_count}, {target} has {target_count}"
                )
            _refuse(problems)
            self._checked.add(files)
        return _pairs(*files)


def files_source(spec: str, rest: str) -> ParallelText:
    """Return the source for `files:` and two paths. Each of the usual splits has the same pairs."""
    paths = [part.strip() for part in rest.split(",")]
    if len(paths) != 2 or not all(paths):
        raise spec_error(spec, "expected two paths with one comma between them.")
    if paths[0] == paths[1]:
        raise spec_error(
            spec,
            f"both files are {paths[0]}; name two, or for a table with a pair in each line, "
            f"tsv:{paths[0]}.",
        )
    files = (Path(paths[0]).expanduser(), Path(paths[1]).expanduser())
    _refuse([f"{path}: not found" for path in files if not path.exists()])
    return ParallelText(spec, dict.fromkeys(USUAL_SPLITS, files))


def folder_source(spec: str, rest: str) -> ParallelText:
    """Return the source for `folder:`, a folder and two languages.

    A split that has a file in only one language is refused when its pairs are read.
    """
    name, source, target = name_and_languages(spec, rest)
    folder = Path(name).expanduser()
    by_language = _split_files(folder)
    missing = [language for language in (source, target) if language not in by_language]
    if missing:
        raise ValueError(
            f"folder {folder}: expected files such as {missing[0]}.train.txt or "
            f"{missing[0]}.train.txt.gz, found none for {' and '.join(missing)}; languages there: "
            f"{', '.join(sorted(by_language)) or 'none'}."
        )

    def path(language: str, split: str) -> Path:
        return by_language[language].get(split, folder / f"{language}.{split}.txt")

    splits = {*by_language[source], *by_language[target]}
    files = {split: (path(source, split), path(target, split)) for split in splits}
    return ParallelText(spec, files, source, target)


def _split_files(folder: Path) -> dict[str, dict[str, Path]]:
    """Return the files LANGUAGE.SPLIT.txt, plain, .gz or .zst, by language and split."""
    if not folder.is_dir():
        raise ValueError(
            f"folder {folder}: {'not a folder' if folder.exists() else 'not found'}; name a "
            "folder with files such as de.train.txt."
        )
    files: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"([^.]+)\.([^.]+)\.txt(\.gz|\.zst)?", path.name)
        if match and files.setdefault(match[1], {}).setdefault(match[2], path) != path:
            raise ValueError(
                f"folder {folder}: both {files[match[1]][match[2]].name} and {path.name} are "
                "there; keep one of them."
            )
    return files


def _pairs(source_path: Path, target_path: Path) -> Iterator[Pair]:
    same_name = source_path.name == target_path.name
    line_pairs = zip(raw_lines(source_path), raw_lines(target_path), strict=True)
    for number, line_pair in enumerate(line_pairs, start=1):
        source, target = (
            line.decode("utf-8").removesuffix("\n").rstrip("\r") for line in line_pair
        )
        # If only the target is empty, the location is in the target file.
        path = target_path if source.strip() and not target.strip() else source_path
        yield Pair(source, target, f"{path if same_name else path.name}:{number}")


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ValueError(f"expected two parallel text files, got: {'; '.join(problems)}.")


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file with their ends, without a byte order mark."""
    with open_decompressed(path) as file:
        for number, line in enumerate(read_lines(file, str(path))):
            yield line if number else line.removeprefix(codecs.BOM_UTF8)


def _check_file(path: Path) -> tuple[int | None, list[str]]:
    """Return the number of lines, or None if the file cannot be opened, and problems."""
    # A pipe can be read only once, but the pairs are read again after this check.
    if path.exists() and not path.is_file():
        return None, [f"{path}: not a regular file"]
    bad: list[str] = []  # the first lines that are not UTF-8
    bad_count = line_count = 0
    failure = ""
    try:
        for line_count, line in enumerate(raw_lines(path), start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                bad_count += 1
                if len(bad) < _BAD_LINES_SHOWN:
                    bad.append(f"{path}:{line_count}")
    except FileNotFoundError:
        failure = f"{path}: not found"
    except OSError as error:
        failure = f"{path}: {error.strerror or error}"
    problems: list[str] = []
    if bad:
        lines = "line" if bad_count == 1 else "lines"
        more = bad_count - len(bad)
        locations = ", ".join(bad) + (f" … and {more} more" if more else "")
        problems = [f"{bad_count} {lines} not UTF-8 ({locations}); convert with iconv"]
    if failure:
        return None, [*problems, failure]
    return line_count, problems if line_count else [f"{path}: empty"]
