"""Import packages that only some sources need."""

import importlib
from types import ModuleType

from tfk_transformer.runtime_environment import with_install_line


def require(module: str) -> ModuleType:
    """Import a module, such as "tensorflow_datasets".

    Raises:
        ImportError: with the `pip install` line, if the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise with_install_line(error) from error


def require_tfds() -> ModuleType:
    """Import tensorflow_datasets.

    Raises:
        ImportError: with the `pip install` line, if it or one of its dependencies is not installed.
    """
    # TFDS 4.9 needs importlib_resources, but does not declare it (tensorflow/datasets issue 11212).
    require("importlib_resources")
    return require("tensorflow_datasets")
