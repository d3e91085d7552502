"""The sources for `files:SOURCE,TARGET` and `folder:DIR:de-en`."""

import re
from collections.abc import Iterator
from pathlib import Path

from tfk_transformer.datasets.pairs import USUAL_SPLITS, Pair, Source, usual_first
from tfk_transformer.datasets.spelling import malformed, name_and_languages
from tfk_transformer.datasets.text_files import check_parallel, check_presence, lines

FilePair = tuple[Path, Path]


class ParallelText(Source):
    """Two files for each split; a line of one and the same line of the other make a pair. Files are
    checked once, before they are read.

    Args:
        name: the data spec.
        files: for each split, the source and the target file.
        source_language: language code, or "" if unknown.
        target_language: language code, or "" if unknown.
    """

    def __init__(
        self,
        name: str,
        files: dict[str, FilePair],
        source_language: str = "",
        target_language: str = "",
    ):
        super().__init__(name, source_language, target_language)
        self._files = files
        self._checked: set[FilePair] = set()

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return usual_first(self._files)

    def _check(self, split: str) -> None:
        files = self._files[split]
        if files not in self._checked:
            check_parallel(*files)
            self._checked.add(files)

    def _read(self, split: str) -> Iterator[Pair]:
        source_path, target_path = self._files[split]
        names = _short_names(source_path, target_path)
        for number, (source, target) in enumerate(
            zip(lines(source_path), lines(target_path), strict=True), start=1
        ):
            # The location of a pair with an empty side is that in the file with the empty line.
            yield Pair(
                source,
                target,
                f"{names[1 if source.strip() and not target.strip() else 0]}:{number}",
            )


def files_source(spec: str, rest: str) -> ParallelText:
    """Return the source for `files:` and two paths. Each of the usual splits has the same pairs.

    Raises:
        ValueError: unless there are two paths separated by a comma, or if a file is missing.
    """
    paths = [part.strip() for part in rest.split(",")]
    if len(paths) != 2 or not all(paths):
        raise malformed(spec, "expected two paths with one comma between them.")
    files = (Path(paths[0]).expanduser(), Path(paths[1]).expanduser())
    check_presence(*files)
    return ParallelText(spec, dict.fromkeys(USUAL_SPLITS, files))


def folder_source(spec: str, rest: str) -> ParallelText:
    """Return the source for `folder:`, a folder and two languages. A file in either language makes
    a split.

    A split that has a file in only one language is refused when its pairs are read.

    Raises:
        ValueError: for a malformed spec, a missing folder, a language without files, or a file that
            is there both plain and as .gz.
    """
    name, source, target = name_and_languages(spec, rest)
    folder = Path(name).expanduser()
    found = _split_files(folder)
    missing = [language for language in (source, target) if language not in found]
    if missing:
        raise ValueError(
            f"folder {folder}: expected files such as {missing[0]}.train.txt or "
            f"{missing[0]}.train.txt.gz, "
            f"found none for {' and '.join(missing)}; languages there: "
            f"{', '.join(sorted(found)) or 'none'}."
        )
    files = {
        split: (_file(folder, found, source, split), _file(folder, found, target, split))
        for split in {*found[source], *found[target]}
    }
    return ParallelText(spec, files, source, target)


def _split_files(folder: Path) -> dict[str, dict[str, Path]]:
    """Return the files of a folder that are named LANGUAGE.SPLIT.txt or LANGUAGE.SPLIT.txt.gz, by
    language and split.
    """
    if not folder.is_dir():
        raise ValueError(
            f"folder {folder}: {'not a folder' if folder.exists() else 'not found'}; name a "
            "folder with files such as de.train.txt."
        )
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"([^.]+)\.([^.]+)\.txt(\.gz)?", path.name)
        if match and found.setdefault(match[1], {}).setdefault(match[2], path) != path:
            raise ValueError(
                f"folder {folder}: both {found[match[1]][match[2]].name} and {path.name} are "
                "there; keep one of them."
            )
    return found


def _file(folder: Path, found: dict[str, dict[str, Path]], language: str, split: str) -> Path:
    return found[language].get(split, folder / f"{language}.{split}.txt")


def _short_names(source: Path, target: Path) -> tuple[str, str]:
    """Return the names of both files, or their paths if the names are equal."""
    return (source.name, target.name) if source.name != target.name else (str(source), str(target))
