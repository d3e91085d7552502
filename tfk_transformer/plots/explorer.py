"""An HTML page to explore every layer and head of a sentence's attention.

The page is a single file and does not require matplotlib.
"""

import base64
import json
from importlib import resources

import numpy as np

from tfk_transformer.plots.attention_weights import TITLES, AttentionWeights, HeadMaps
from tfk_transformer.plots.labels import token_labels

DATA_MARK = "/*DATA*/"  # in explorer.html


def attention_page(attention: AttentionWeights) -> str:
    """Return an HTML page with the attention of every layer and head.

    The page shows one heat map at a time, whose cells can be read one by one. Weights are rounded
    to multiples of 1/255.

    Args:
        attention: the result of `attention_of`.
    """
    data = {
        "source": attention.source,
        "translation": attention.translation,
        "score": attention.score,
        "missing": attention.missing,
        "kinds": [
            {"title": TITLES[name], **_as_json(maps)} for name, maps in attention.kinds().items()
        ],
    }
    # "</script" would end the element that contains the data.
    text = json.dumps(data, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")
    page = resources.files("tfk_transformer.plots").joinpath("explorer.html")
    return page.read_text(encoding="utf-8").replace(DATA_MARK, text)


def _as_json(maps: HeadMaps) -> dict[str, object]:
    layers, heads = maps.weights.shape[:2]
    weights = np.rint(np.clip(maps.weights, 0, 1) * 255).astype("uint8")
    return {
        "layers": layers,
        "heads": heads,
        "rows": token_labels(maps.rows),
        "columns": token_labels(maps.columns),
        "weights": base64.b64encode(weights.tobytes()).decode("ascii"),
    }
