"""Pictures of attention, alignments, training runs, schedules, positions and models.

All are matplotlib figures, except an HTML page. The public names load on first use, so that the
page does not require matplotlib.

Imports `config`, `documents` and `inference`.
"""

import importlib
from typing import TYPE_CHECKING

from tfk_transformer.runtime_environment import with_install_line

if TYPE_CHECKING:
    from tfk_transformer.plots.alignments import alignment
    from tfk_transformer.plots.attention import attention_figure, attention_map
    from tfk_transformer.plots.attention_weights import AttentionWeights, HeadMaps, attention_of
    from tfk_transformer.plots.explorer import attention_page
    from tfk_transformer.plots.model import model_layers
    from tfk_transformer.plots.positions import position_encodings, positions_of
    from tfk_transformer.plots.schedule import learning_rates
    from tfk_transformer.plots.training import training_curve, training_curves

_HOME = {
    "AttentionWeights": "attention_weights",
    "HeadMaps": "attention_weights",
    "alignment": "alignments",
    "attention_figure": "attention",
    "attention_map": "attention",
    "attention_of": "attention_weights",
    "attention_page": "explorer",
    "learning_rates": "schedule",
    "model_layers": "model",
    "position_encodings": "positions",
    "positions_of": "positions",
    "training_curve": "training",
    "training_curves": "training",
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
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    except ImportError as error:
        raise with_install_line(error) from error
