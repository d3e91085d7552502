"""The sources for `files:SOURCE,TARGET` and `folder:DIR:de-en`."""

import re
from collections.abc import Iterator
from pathlib import Path

from tfk_transformer.datasets.pairs import USUAL_SPLITS, Pair, Source, order_splits
from tfk_transformer.datasets.spelling import name_and_languages, spec_error
from tfk_transformer.datasets.text_files import check_parallel, check_presence, lines

FilePair = tuple[Path, Path]


class ParallelText(Source):
    """Two files for each split: line N of both files is pair N.

    Files are checked once, before they are read.

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
        return order_splits(self._files)

    def _check(self, split: str) -> None:
        files = self._files[split]
        if files not in self._checked:
            check_parallel(*files)
            self._checked.add(files)

    def _read(self, split: str) -> Iterator[Pair]:
        source_path, target_path = self._files[split]
        same_name = source_path.name == target_path.name
        line_pairs = zip(lines(source_path), lines(target_path), strict=True)
        for number, (source, target) in enumerate(line_pairs, start=1):
            # If only the target is empty, the location is in the target file.
            path = target_path if source.strip() and not target.strip() else source_path
            yield Pair(source, target, f"{path if same_name else path.name}:{number}")


def files_source(spec: str, rest: str) -> ParallelText:
    """Return the source for `files:` and two paths. Each of the usual splits has the same pairs.

    Raises:
        ValueError: unless there are two paths separated by a comma, or if a file is missing.
    """
    paths = [part.strip() for part in rest.split(",")]
    if len(paths) != 2 or not all(paths):
        raise spec_error(spec, "expected two paths with one comma between them.")
    files = (Path(paths[0]).expanduser(), Path(paths[1]).expanduser())
    check_presence(*files)
    return ParallelText(spec, dict.fromkeys(USUAL_SPLITS, files))


def folder_source(spec: str, rest: str) -> ParallelText:
    """Return the source for `folder:`, a folder and two languages.

    A file in either language makes a split. A split that has a file in only one language is refused
    when its pairs are read.

    Raises:
        ValueError: for a malformed spec, a missing folder, a language without files, or a file that
            exists both plain and as .gz.
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
    """Return the files LANGUAGE.SPLIT.txt or LANGUAGE.SPLIT.txt.gz by language and split."""
    if not folder.is_dir():
        raise ValueError(
            f"folder {folder}: {'not a folder' if folder.exists() else 'not found'}; name a "
            "folder with files such as de.train.txt."
        )
    files: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"([^.]+)\.([^.]+)\.txt(\.gz)?", path.name)
        if match and files.setdefault(match[1], {}).setdefault(match[2], path) != path:
            raise ValueError(
                f"folder {folder}: both {files[match[1]][match[2]].name} and {path.name} are "
                "there; keep one of them."
            )
    return files
