"""The source behind `tfds:NAME:pt-en`."""

import os
import textwrap
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets.optional import require, require_tfds
from tfk_transformer.datasets.pairs import Pair, Source, order_splits
from tfk_transformer.datasets.spelling import name_and_languages

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


class TfdsSource(Source):
    """A TFDS translation dataset.

    TFDS downloads and prepares it when its splits or pairs are first used.
    """

    def __init__(self, spec: str, rest: str):
        self._dataset, source, target = name_and_languages(spec, rest)
        super().__init__(spec, source, target)
        self._builder = _open_builder(self._dataset)
        _check_languages(self._dataset, self._builder.info.features, (source, target))

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        _prepare(self._dataset, self._builder)
        return order_splits(self._builder.info.splits)

    def _read(self, split: str) -> Iterator[Pair]:
        tfds = require_tfds()
        examples = tfds.as_numpy(
            self._builder.as_dataset(split=split, read_config=_read_config(tfds))
        )
        for number, example in enumerate(examples, start=1):
            yield Pair(
                example[self.source_language].decode("utf-8"),
                example[self.target_language].decode("utf-8"),
                f"{self._dataset} {split} {number}",
            )


def _open_builder(dataset: str) -> "tfds.core.DatasetBuilder":
    """Return the TFDS builder of a dataset, without downloading anything."""
    tfds = require_tfds()
    try:
        # TFDS reads the variable only when it is imported. With this argument, later changes of the
        # variable are effective.
        return tfds.builder(dataset, data_dir=os.environ.get("TFDS_DATA_DIR"))
    except tfds.core.DatasetNotFoundError as error:
        datasets = tfds.list_builders(with_community_datasets=False)
        raise ValueError(
            f"tfds: no dataset '{dataset}'.{nearest(dataset.partition('/')[0], datasets)}"
        ) from error
    except (ValueError, TypeError, AssertionError) as error:
        raise ValueError(f"tfds: '{dataset}' cannot be opened: {_one_line(error)}") from error


def _check_languages(
    dataset: str, features: "tfds.features.FeatureConnector", languages: tuple[str, str]
) -> None:
    tfds = require_tfds()
    if not isinstance(features, tfds.features.Translation):
        raise ValueError(
            f"tfds: '{dataset}' is not a translation dataset: expected tfds.features.Translation, "
            f"got {type(features).__name__}."
        )
    missing = [language for language in languages if language not in features.languages]
    if missing:
        raise ValueError(
            f"tfds: '{dataset}' has the languages {', '.join(features.languages)}, not "
            f"{' and '.join(missing)}."
        )


def _prepare(dataset: str, builder: "tfds.core.DatasetBuilder") -> None:
    """Download and prepare a dataset, unless it is prepared already."""
    tfds = require_tfds()
    failures = (OSError, AssertionError, tfds.download.DownloadError)
    try:
        builder.download_and_prepare()
    except failures as error:
        raise ValueError(
            f"tfds: '{dataset}' could not be downloaded and prepared: {_one_line(error)}"
        ) from error


def _read_config(tfds: ModuleType) -> "tfds.ReadConfig":
    """Return settings for reading in a fixed order, without a cache in RAM and the autotuner."""
    options = require("tensorflow").data.Options()
    # With the autotuner, the end of an iteration waits for the autotuner's period, up to a minute.
    options.autotune.enabled = False
    return tfds.ReadConfig(options=options, try_autocache=False)


def _one_line(error: Exception) -> str:
    return textwrap.shorten(str(error), width=400, placeholder=" …") or type(error).__name__
