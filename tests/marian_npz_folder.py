"""Files of Marian with random weights, and SentencePiece models with the ids that Marian gives
them.
"""

import numpy as np
from marian_folder import trained

D, H, F, LAYERS, DECODER_LAYERS = 22, 11, 29, 2, 3
IDS = {"bos_id": -1, "eos_id": 0, "unk_id": 1, "pad_id": -1}  # which Marian trains with
OPTIONS = {
    "type": "transformer",
    "dim-emb": D,
    "enc-depth": LAYERS,
    "dec-depth": DECODER_LAYERS,
    "transformer-heads": H,
    "transformer-dim-ffn": F,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": '""',
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": "false",
    "tied-embeddings-all": "true",
    "version": "v1.12.0",
}


def arrays_of(rows, tables, seed=1, spread=0.3):
    """Return random arrays by Marian's names. Probabilities differ clearly, and a bias makes
    hypotheses end.
    """
    random = np.random.default_rng(seed)
    shapes = {}
    for stack, count, attentions in (
        ("encoder", LAYERS, ["self"]),
        ("decoder", DECODER_LAYERS, ["self", "context"]),
    ):
        for layer in (f"{stack}_l{i + 1}" for i in range(count)):
            for attention in attentions:
                for role in "qkvo":
                    shapes |= {
                        f"{layer}_{attention}_W{role}": (D, D),
                        f"{layer}_{attention}_b{role}": (1, D),
                    }
                shapes |= {
                    f"{layer}_{attention}_Wo_ln_scale": (1, D),
                    f"{layer}_{attention}_Wo_ln_bias": (1, D),
                }
            shapes |= {
                f"{layer}_ffn_W1": (D, F),
                f"{layer}_ffn_b1": (1, F),
                f"{layer}_ffn_W2": (F, D),
                f"{layer}_ffn_b2": (1, D),
            }
            shapes |= {f"{layer}_ffn_ffn_ln_scale": (1, D), f"{layer}_ffn_ffn_ln_bias": (1, D)}
    arrays = {
        name: random.normal(float(name.endswith("scale")), spread, shape)
        for name, shape in shapes.items()
    }
    arrays |= {name: random.normal(0, 3 * D**-0.5, shape) for name, shape in tables.items()}
    arrays["decoder_ff_logit_out_b"] = random.normal(0, 0.3, (1, rows[-1]))
    arrays["decoder_ff_logit_out_b"][0, 0] += 3.0
    return {name: array.astype("float32") for name, array in arrays.items()}


def write_file(folder, spare=0, separate=False, tables=None, **changes):
    """Write `model.npz`, `source.spm` and `target.spm`, and return the path of the first.

    Args:
        folder: an existing folder.
        spare: rows of the tables that no piece has.
        separate: whether the sides have vocabularies and tables of their own.
        tables: names of the tables and their sizes as texts of "source" and "target" rows, where
            they are not the usual ones.
        **changes: other options.
    """
    models = (
        [trained("source", 71, **IDS), trained("target", 67, **IDS)]
        if separate
        else [trained("source", **IDS)] * 2
    )
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    rows = (71 + spare, 67 + spare) if separate else (67 + spare,) * 2
    options = {**OPTIONS, "dim-vocabs": f"[{rows[0]}, {rows[1]}]", **changes}
    if tables is None:
        tables = (
            {"encoder_Wemb": (rows[0], D), "decoder_Wemb": (rows[1], D)}
            if separate
            else {"Wemb": (rows[0], D)}
        )
    else:
        tables = {
            name: tuple({"source": rows[0], "target": rows[1]}.get(size, D) for size in sizes)
            for name, sizes in tables.items()
        }
    text = "".join(f"{name}: {value}\n" for name, value in options.items())
    np.savez(
        folder / "model.npz",
        **arrays_of(rows, tables),
        **{"special:model.yml": np.frombuffer(text.encode() + b"\0", "int8")},
    )
    return folder / "model.npz"
