"""Registration with Keras: `.keras` files load after `import keras, tfk_transformer`.

Importing the package imports no module with a registered class. They are imported with Keras, whose
import then shows no start-up notes of TensorFlow.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Sequence
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


class _KerasFinder(MetaPathFinder):
    """Run `register_with_keras` after Keras has been imported."""

    def __init__(self) -> None:
        self.searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the other finders' spec of Keras, with a loader that also registers classes."""
        if fullname != "keras" or self.searching:
            return None
        self.searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.searching = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            with without_start_up_notes():
                execute(module)
            # If a module of this package imports Keras, the module is not complete yet, but other
            # modules may need its names. Then `tfk_transformer.__getattr__` registers.
            prefixes = tuple(f"{PACKAGE}.{name}" for name in _KERAS_MODULES)
            if not any(name.startswith(prefixes) for name in sys.modules):
                register_with_keras()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def watch_for_keras() -> None:
    """Register now if Keras is already imported, otherwise as soon as it is."""
    if "keras" in sys.modules:
        register_with_keras()
    else:
        sys.meta_path.insert(0, _KerasFinder())
