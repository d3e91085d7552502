"""The source behind `tfds:NAME:pt-en`, which alone needs TFDS and TensorFlow."""

import os
import textwrap
from collections.abc import Iterator
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING

from tfk_transformer.config.words import nearest
from tfk_transformer.datasets.pairs import Pair, Source, name_and_languages, order_splits
from tfk_transformer.runtime_environment import require

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


class TfdsSource(Source):
    """A TFDS translation dataset, downloaded when its splits or pairs are first used."""

    def __init__(self, spec: str, rest: str):
        self._dataset, source, target = name_and_languages(spec, rest)
        super().__init__(spec, source, target)
        self._builder = _open_builder(self._dataset)
        features = self._builder.info.features
        if not isinstance(features, require_tfds().features.Translation):
            raise ValueError(
                f"tfds: '{self._dataset}' is not a translation dataset: expected "
                f"tfds.features.Translation, got {type(features).__name__}."
            )
        missing = [language for language in (source, target) if language not in features.languages]
        if missing:
            raise ValueError(
                f"tfds: '{self._dataset}' has the languages {', '.join(features.languages)}, not "
                f"{' and '.join(missing)}."
            )

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits. TFDS prepares the dataset, unless it has done so before."""
        try:
            self._builder.download_and_prepare()
        except (OSError, AssertionError, require_tfds().download.DownloadError) as error:
            raise ValueError(
                f"tfds: '{self._dataset}' could not be downloaded and prepared: {_one_line(error)}"
            ) from error
        return order_splits(self._builder.info.splits)

    def _read(self, split: str) -> Iterator[Pair]:
        tfds = require_tfds()
        options = require("tensorflow").data.Options()
        # With the autotuner, the end of an iteration waits for its period, up to a minute.
        options.autotune.enabled = False
        # The order is fixed, and examples are not cached in RAM.
        config = tfds.ReadConfig(options=options, try_autocache=False)
        examples = tfds.as_numpy(self._builder.as_dataset(split=split, read_config=config))
        for number, example in enumerate(examples, start=1):
            yield Pair(
                example[self.source_language].decode("utf-8"),
                example[self.target_language].decode("utf-8"),
                f"{self._dataset} {split} {number}",
            )


def require_tfds() -> ModuleType:
    """Import tensorflow_datasets; raise an ImportError with its install command without it."""
    # TFDS 4.9 needs importlib_resources, but does not declare it (tensorflow/datasets issue 11212).
    require("importlib_resources")
    return require("tensorflow_datasets")


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


def _one_line(error: Exception) -> str:
    return textwrap.shorten(str(error), width=400, placeholder=" …") or type(error).__name__
