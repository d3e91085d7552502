"""Packages that only some sources need, imported at the first use."""

import importlib
from types import ModuleType


def require(module: str, package: str) -> ModuleType:
    """Import a module, or say how to install it.

    Args:
        module: its import name, such as "tensorflow_datasets".
        package: its name on PyPI, such as "tensorflow-datasets".

    Raises:
        ImportError: with the `pip install` line, if the module cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{module} cannot be imported ({error}); install it with: pip install {package}") from error


def require_tfds() -> ModuleType:
    """Import tensorflow_datasets.

    Raises:
        ImportError: with the `pip install` line, if it or what it needs cannot be imported.
    """
    # TFDS 4.9 imports it late and does not declare it (tensorflow/datasets issue 11212).
    require("importlib_resources", "importlib_resources")
    return require("tensorflow_datasets", "tensorflow-datasets")
