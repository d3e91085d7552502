"""Pictures of attention, alignments, training runs, schedules, positions and models.

All are matplotlib figures, except an HTML page. The public names load on first use, so that the
page does not require matplotlib.

Imports `inference` and `text`.
"""

import importlib
from typing import TYPE_CHECKING

from tfk_transformer.runtime_environment import with_install_line

if TYPE_CHECKING:
    from tfk_transformer.plots.attention import alignment, attention_figure, attention_map
    from tfk_transformer.plots.attention_weights import (
        AttentionWeights,
        HeadMaps,
        attention_of,
        attention_page,
    )
    from tfk_transformer.plots.model import model_layers, position_encodings, positions_of
    from tfk_transformer.plots.training import learning_rates, training_curve, training_curves

_NAMES = {  # by module
    "attention": ("alignment", "attention_figure", "attention_map"),
    "attention_weights": ("AttentionWeights", "HeadMaps", "attention_of", "attention_page"),
    "model": ("model_layers", "position_encodings", "positions_of"),
    "training": ("learning_rates", "training_curve", "training_curves"),
}
__all__ = [  # noqa: F822 (they load on first use)
    "AttentionWeights",
    "HeadMaps",
    "alignment",
    "attention_figure",
    "attention_map",
    "attention_of",
    "attention_page",
    "learning_rates",
    "model_layers",
    "position_encodings",
    "positions_of",
    "training_curve",
    "training_curves",
]


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use (PEP 562).

    Raises:
        AttributeError: if the name does not exist.
        ImportError: if matplotlib is not installed, with the command that installs it.
    """
    home = next((module for module, names in _NAMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    except ImportError as error:
        raise with_install_line(error) from error
