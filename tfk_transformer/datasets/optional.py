"""Import packages that only some sources need."""

import importlib
from types import ModuleType


def require(module: str, package: str) -> ModuleType:
    """Import a module.

    Args:
        module: import name, such as "tensorflow_datasets".
        package: name on PyPI, such as "tensorflow-datasets".

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
        ImportError: with the `pip install` line, if it or one of its dependencies cannot be imported.
    """
    # TFDS 4.9 needs importlib_resources, but does not declare it (tensorflow/datasets issue 11212).
    require("importlib_resources", "importlib_resources")
    return require("tensorflow_datasets", "tensorflow-datasets")
