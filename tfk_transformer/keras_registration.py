"""Registration with Keras: `.keras` files load after `import keras, tfk_transformer`.

Importing the package imports no module with a registered class. They are imported with Keras, whose
import then shows no start-up notes of TensorFlow. Triton is imported before TensorFlow.
"""

import contextlib
import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from tfk_transformer.runtime_environment import without_start_up_notes

PACKAGE = __name__.partition(".")[0]
# These modules import every module with a class that is registered with Keras.
REGISTERING = (
    "models.ensemble",
    "models.language_model",
    "models.classifier",
    "metrics",
    "optimizers",
    "schedules",
)
# The modules above and the modules that they import.
_KERAS_MODULES = ("layers.", "models.", "losses", "metrics", "optimizers", "schedules")


def register_with_keras() -> None:
    """Import all modules that register classes, if Keras is already imported."""
    if "keras" not in sys.modules:
        return
    # Without an optional package that the modules need, a program with Keras can still run exported
    # files. The error is raised when one of the classes is used.
    with contextlib.suppress(ImportError):
        for name in REGISTERING:
            importlib.import_module(f"{PACKAGE}.{name}")


class _Finder(MetaPathFinder):
    """Find Keras and TensorFlow, with loaders that do more; see `_LOADS`."""

    def __init__(self) -> None:
        self.searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the other finders' spec of one of these packages, with another loader."""
        if fullname not in _LOADS or self.searching:
            return None
        self.searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            load = functools.partial(_LOADS[fullname], spec.loader.exec_module)
            spec.loader.exec_module = load  # type: ignore[method-assign]
        return spec


def _load_keras(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Execute the module of Keras, then run `register_with_keras`."""
    with without_start_up_notes():
        execute(module)
    # If a module of this package imports Keras, the module is not complete yet, but other modules
    # may need its names. Then `tfk_transformer.__getattr__` registers.
    prefixes = tuple(f"{PACKAGE}.{name}" for name in _KERAS_MODULES)
    if not any(name.startswith(prefixes) for name in sys.modules):
        register_with_keras()


def _load_tensorflow(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Import Triton if it is installed, then execute the module of TensorFlow.

    PyTorch's builds for GPUs import Triton when they first need it. After TensorFlow 2.20 or 2.21,
    this crashes the process (https://github.com/tensorflow/tensorflow/issues/124205).
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("triton")
    execute(module)


_LOADS = {"keras": _load_keras, "tensorflow": _load_tensorflow}


def watch_imports() -> None:
    """Watch for TensorFlow and Keras, and register now if Keras is already imported."""
    sys.meta_path.insert(0, _Finder())
    register_with_keras()
