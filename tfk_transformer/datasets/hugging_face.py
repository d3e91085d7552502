"""The source for `hf:NAME`, of the Hugging Face hub or a folder of `save_to_disk`.

Only this source needs the package `datasets`.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tfk_transformer.config.small_files import one_line_error
from tfk_transformer.datasets.pairs import USUAL_SPLITS, NoPair, Pair
from tfk_transformer.datasets.rows import NESTED, Columns, RowSource, choose_columns, pairs_of
from tfk_transformer.datasets.tables import BATCH_ROWS, table_rows
from tfk_transformer.formats.output_file import content_digest
from tfk_transformer.runtime_environment import require


def is_saved(path: Path) -> bool:
    """Return whether `save_to_disk` of `datasets` wrote a folder."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def hub_source(
    spec: str, rest: str, columns: Columns | None, languages: Columns, config: str | None
) -> RowSource:
    """Return the source for a folder, or for the name and possibly a split of a data set."""
    datasets = require("datasets")
    path = Path(rest).expanduser()
    name, _, split = ("", "", "") if is_saved(path) else rest.partition(":")
    with one_line_error(f"hf: expected a data set that `datasets` opens, got '{rest}': ", "."):
        data = (
            datasets.load_dataset(name, config, split=split or None)
            if name
            else datasets.load_from_disk(os.fspath(path))
        )
    only = split if split in USUAL_SPLITS else "train"
    parts = data if isinstance(data, Mapping) else {only: data}
    rows: dict[str, Callable[[], Iterator[Pair | NoPair]]] = {
        part: partial(_pairs, table, f"{rest} {part}", columns) for part, table in parts.items()
    }
    # The attribute has no public name. It is a hash of the downloaded data and of its split.
    fingerprint = "-".join(f"{part}:{table._fingerprint}" for part, table in sorted(parts.items()))
    content = (lambda: fingerprint) if name else partial(content_digest, path)
    return RowSource(spec, rows, content, languages)


def _pairs(table: Any, what: str, columns: Columns | None) -> Iterator[Pair | NoPair]:
    names = table.column_names
    used = [NESTED] if NESTED in names else list(choose_columns(what, names, columns))
    batches = table.select_columns(used).with_format("arrow").iter(BATCH_ROWS)
    return pairs_of(table_rows(batches), what, columns)
