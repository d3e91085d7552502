"""One HTML page to explore every layer and head of a sentence's attention. It needs no matplotlib,
and no file beside it.
"""

import base64
import json
from importlib import resources

import numpy as np

from tfk_transformer.plots.attention_weights import TITLES, AttentionWeights, HeadMaps
from tfk_transformer.plots.labels import token_labels

PLACE = "/*DATA*/"


def attention_page(found: AttentionWeights) -> str:
    """Return an HTML page with the attention of every layer and head, as a heat map to choose and
    to read cell by cell.

    Weights are rounded to multiples of 1/255.

    Args:
        found: the result of `attention_of`.
    """
    data = {
        "source": found.source,
        "translation": found.translation,
        "score": found.score,
        "missing": found.missing,
        "kinds": [{"title": TITLES[name], **_as_json(maps)} for name, maps in found.kinds()],
    }
    # "<" would end the element that holds the data if "/script" followed.
    text = json.dumps(data, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")
    return (
        resources.files("tfk_transformer.plots")
        .joinpath("explorer.html")
        .read_text(encoding="utf-8")
        .replace(PLACE, text)
    )


def _as_json(maps: HeadMaps) -> dict[str, object]:
    layers, heads = maps.weights.shape[:2]
    data = base64.b64encode(
        np.rint(np.clip(maps.weights, 0, 1) * 255).astype("uint8").tobytes()
    ).decode("ascii")
    return {
        "layers": layers,
        "heads": heads,
        "rows": token_labels(maps.rows),
        "columns": token_labels(maps.columns),
        "weights": data,
    }
