"""Export models to SavedModel and ONNX files, compare the files with the Keras model, and run them.

The package, which is installed as `tfk_transformer.export`, can be called.
`tfk_transformer.export(fitted, out, formats=None, node_modules=None, shortlist=None,
calibrate=None, int8_regret=0.01, int8_same=0.0)` writes the files of a translator or a classifier.
`help(tfk_transformer.export.exporting.export)` describes the arguments.

Imports all of the library except `cli`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from tfk_transformer.export.parity import Figures
    from tfk_transformer.pipelines.text_classifier import TextClassifier
    from tfk_transformer.pipelines.translator import Translator

if __name__ != "tfk_transformer.export":
    # In the repository, `import export` would load the same files under a second name.
    raise ImportError("import this package as 'tfk_transformer.export', not 'export'.")


# Importing a module of the package would replace a function `export` in the parent package.
class _CallablePackage(ModuleType):
    """A package that is also a function: Python looks for `__call__` in the class of a module."""

    def __call__(
        self,
        fitted: Translator | TextClassifier,
        out: str | os.PathLike[str],
        formats: Sequence[str] | None = None,
        node_modules: str | os.PathLike[str] | None = None,
        shortlist: str | None = None,
        calibrate: str | None = None,
        int8_regret: float = 0.01,
        int8_same: float = 0.0,
    ) -> Figures:
        """Write a translator or a classifier as files; see `exporting.export`."""
        from tfk_transformer.export.exporting import export  # loads TensorFlow

        return export(
            fitted, out, formats, node_modules, shortlist, calibrate, int8_regret, int8_same
        )


sys.modules[__name__].__class__ = _CallablePackage
