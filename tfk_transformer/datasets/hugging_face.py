"""The rows of `hf:NAME`, a data set of the Hugging Face hub or a folder of `save_to_disk`."""

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tfk_transformer.config.small_files import one_line_error
from tfk_transformer.datasets.pairs import USUAL_SPLITS, NoPair, Pair
from tfk_transformer.datasets.rows import Columns, Rows, pairs_of
from tfk_transformer.datasets.tables import BATCH_ROWS, arrow_rows
from tfk_transformer.runtime_environment import require


def is_saved(path: Path) -> bool:
    """Return whether `save_to_disk` of `datasets` wrote a folder."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def hub_rows(text: str, columns: Columns | None, config: str | None) -> tuple[dict[str, Rows], str]:
    """Return the rows by split of a folder or of "NAME" or "NAME:SPLIT", and a hash of them."""
    datasets = require("datasets")
    path = Path(text).expanduser()
    name, _, split = text.partition(":")
    with one_line_error(f"data: expected a data set that `datasets` opens, got '{text}': ", "."):
        if is_saved(path):
            data = datasets.load_from_disk(os.fspath(path))
        else:
            data = datasets.load_dataset(name, config, split=split or None)
    if not isinstance(data, Mapping):
        data = {split if split in USUAL_SPLITS else "train": data}
    # The attribute has no public name. It is a hash of the data and of its split.
    prints = "-".join(f"{part}:{table._fingerprint}" for part, table in sorted(data.items()))
    return {part: partial(_pairs, table, part, columns) for part, table in data.items()}, prints


def _pairs(table: Any, split: str, columns: Columns | None) -> Iterator[Pair | NoPair]:
    rows = arrow_rows(table.with_format("arrow").iter(BATCH_ROWS))
    return pairs_of(((f"{split}:{number}", row) for number, row in rows), split, columns)
