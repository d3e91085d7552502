"""Files of Marian with random weights, and SentencePiece models with the ids that Marian gives
them.
"""

import struct

import numpy as np
from marian_folder import trained
from sentencepiece import SentencePieceProcessor

D, H, F, LAYERS, DECODER_LAYERS = 22, 11, 29, 1, 2
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
# The options of Firefox's students that differ from these.
STUDENT = {
    "transformer-decoder-autoreg": "rnn",
    "dec-cell": "ssru",
    "layer-normalization": "false",
    "transformer-ffn-activation": "relu",
    "transformer-guided-alignment-layer": "last",
    "transformer-rnn-projection": "false",
    "transformer-decoder-dim-ffn": 0,
    "transformer-decoder-ffn-depth": 0,
    "transformer-tied-layers": "[]",
    "input-types": "[]",
    "output-omit-bias": "false",
}
TYPES = {"float32": 0x404, "float16": 0x402, "int8": 0x4101, "int16": 0x4102, "options": 0x101}


def arrays_of(rows, tables, options, seed=1, spread=0.3):
    """Return random arrays by Marian's names. Probabilities differ clearly, and a bias makes
    hypotheses end.
    """
    random = np.random.default_rng(seed)
    shapes = {}
    for stack, count in (("encoder", LAYERS), ("decoder", DECODER_LAYERS)):
        for layer in (f"{stack}_l{i + 1}" for i in range(count)):
            shapes |= layer_shapes(layer, options)
    arrays = {
        name: random.normal(float(name.endswith("scale")), spread, shape)
        for name, shape in shapes.items()
    }
    arrays |= {name: random.normal(0, 3 * D**-0.5, shape) for name, shape in tables.items()}
    arrays["decoder_ff_logit_out_b"] = random.normal(0, 0.3, (1, rows[-1]))
    arrays["decoder_ff_logit_out_b"][0, 0] += 3.0
    return {name: array.astype("float32") for name, array in arrays.items()}


def layer_shapes(layer, options):
    """Return the shapes of the arrays of a layer."""
    shapes = {}
    is_decoder = layer.startswith("decoder")
    is_recurrent = is_decoder and options["transformer-decoder-autoreg"] == "rnn"
    roles = "qkv" if options["transformer-no-projection"] == "true" else "qkvo"
    for attention in ["self"] * (not is_recurrent) + ["context"] * is_decoder:
        for role in roles:
            shapes |= {
                f"{layer}_{attention}_W{role}": (D, D),
                f"{layer}_{attention}_b{role}": (1, D),
            }
        shapes |= norm_shapes(f"{layer}_{attention}_Wo")
    if is_recurrent:
        shapes |= {f"{layer}_rnn_W": (D, D), f"{layer}_rnn_Wf": (D, D), f"{layer}_rnn_bf": (1, D)}
        shapes |= norm_shapes(f"{layer}_rnn_ffn")
    width = (is_decoder and options.get("transformer-decoder-dim-ffn")) or F
    shapes |= {
        f"{layer}_ffn_W1": (D, width),
        f"{layer}_ffn_b1": (1, width),
        f"{layer}_ffn_W2": (width, D),
        f"{layer}_ffn_b2": (1, D),
    }
    return shapes | norm_shapes(f"{layer}_ffn_ffn")


def norm_shapes(name):
    return {f"{name}_ln_scale": (1, D), f"{name}_ln_bias": (1, D)}


def write_file(
    folder,
    spare=0,
    separate=False,
    tables=None,
    dtype=None,
    student=False,
    byte_fallback=False,
    models=None,
    **changes,
):
    """Write `model.npz` or `model.bin`, `source.spm` and `target.spm`, and return the path of the
    first. The weights that a reader of it must find are in `weights`, an archive of NumPy.

    Args:
        folder: an existing folder.
        spare: rows of the tables that no piece has.
        separate: whether the sides have vocabularies and tables of their own.
        tables: names of the tables and their sizes as texts of "source" and "target" rows, where
            they are not the usual ones.
        dtype: the type of the matrices in `model.bin`; None: write `model.npz`.
        student: whether the options are those of Firefox's students.
        byte_fallback: whether the vocabularies have all bytes.
        models: the SentencePiece models of both sides; None: those of made-up words.
        **changes: other options.
    """
    if models is None:
        extra = 256 if byte_fallback else 0
        sizes = [71 + extra, 67 + extra] if separate else [67 + extra] * 2
        sides = ("source", "target" if separate else "source")
        models = [
            trained(side, size, byte_fallback=byte_fallback, **IDS)
            for side, size in zip(sides, sizes, strict=True)
        ]
    sizes = [SentencePieceProcessor(model_proto=model).vocab_size() for model in models]
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    rows = [size + spare for size in sizes]
    options = {
        **OPTIONS,
        **(STUDENT if student else {}),
        "dim-vocabs": f"[{rows[0]}, {rows[1]}]",
        **changes,
    }
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
    arrays = arrays_of(rows, tables, options)
    text = "".join(f"{name}: {value}\n" for name, value in options.items()).encode() + b"\0"
    if dtype is None:
        path = folder / "model.npz"
        np.savez(path, **arrays, **{"special:model.yml": np.frombuffer(text, "int8")})
    else:
        path = folder / "model.bin"
        arrays = write_binary(path, arrays, text, dtype)
    with (folder / "weights").open("wb") as file:
        np.savez(file, **arrays)
    return path


def write_firefox(folder, separate=False, **options):
    """Write a folder with the files of a model of Firefox from German to English, unpacked."""
    folder.mkdir(parents=True, exist_ok=True)
    if separate:
        options = {"tied-embeddings-all": "false", "tied-embeddings": "true", **options}
    path = write_file(folder, separate=separate, dtype="int8", student=True, **options)
    path.rename(folder / "model.deen.intgemm.alphas.bin")
    (folder / "source.spm").rename(folder / f"{'srcvocab' if separate else 'vocab'}.deen.spm")
    if separate:
        (folder / "target.spm").rename(folder / "trgvocab.deen.spm")
    else:
        (folder / "target.spm").unlink()
    return folder


def write_binary(path, arrays, options, dtype):
    """Write a .bin file as Marian's converter does, and return the arrays that it stands for.

    It quantizes matrices, stores them transposed except for tables of embeddings, and adds the
    scales of the inputs of products.
    """
    items, expected = {}, {}
    for name, array in arrays.items():
        items[name], expected[name] = stored(name, array, dtype)
    if dtype == "int8":
        scale = np.array([[7.5]], "float32")
        for name in ("encoder_l1_ffn_W1", "Wemb", "none"):
            items[f"{name}_QuantMultA"] = stored(f"{name}_QuantMultA", scale, dtype)[0]
    items["special:model.yml"] = ("options", (len(options),), options)
    path.write_bytes(binary_file(items))
    return expected


def stored(name, array, dtype):
    """Return the type, shape and bytes of an array in a file, and the array that they stand for."""
    is_matrix = name.find("_W") in (len(name) - 2, len(name) - 3) or "Wemb" in name
    if dtype in ("float32", "float16") or not is_matrix:
        dtype = dtype if dtype in ("float32", "float16") else "float32"
        array = array.astype(dtype)
        return (dtype, array.shape, aligned(array.tobytes())), array.astype("float32")
    factor = np.float32(127 / np.abs(array).max() if dtype == "int8" else 1024)
    integers = np.rint(array * factor).astype(dtype)
    layout = integers if "Wemb" in name else integers.T
    content = aligned(layout.tobytes() + factor.tobytes())
    return (dtype, array.shape, content), integers.astype("float32") * (np.float32(1) / factor)


def aligned(content):
    return content + bytes(-len(content) % 256)


def binary_file(items):
    """Return a .bin file of items, each a type, a shape and bytes."""
    names = [name.encode() + b"\0" for name in items]
    header = struct.pack("<2Q", 1, len(items))
    for name, (dtype, shape, content) in zip(names, items.values(), strict=True):
        header += struct.pack("<4Q", len(name), TYPES[dtype], len(shape), len(content))
    header += b"".join(names)
    header += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, shape, _ in items.values())
    gap = 256 - (len(header) + 8) % 256
    header += struct.pack("<Q", gap) + bytes(gap)
    return header + b"".join(content for _, _, content in items.values())
