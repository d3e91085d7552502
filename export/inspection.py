"""What a bundle, a SavedModel or an ONNX file is: signatures, sizes, configuration and parity, without running it."""

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
from rich.markup import escape
from rich.table import Table

from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.export.runtime.sessions import METADATA
from tfk_transformer.export.signatures import PREFIX, PREFIX_IDS
from tfk_transformer.export.to_onnx.conversion import quietly

EXPECTED = "a bundle (with config.json), a SavedModel folder (with saved_model.pb) or an .onnx file"
PARITY = "parity.json"  # as in `exporting`, which loads TensorFlow
WEIGHT_DTYPES = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "INT8", "UINT8")


def inspect(path) -> dict:
    """Describe a bundle, a SavedModel folder or an exported ONNX file; only the first two load TensorFlow.

    Args:
        path: of the file or folder.

    Returns:
        What JSON can hold: `kind` ("bundle", "SavedModel" or "ONNX"), `path`, `files` (bytes by name), `parameters`, and as
        far as the kind has them `signatures`, `facts`, `config` and `parity`.

    Raises:
        ValueError: if there is nothing at `path`, nothing of this project, or it is broken.
    """
    path = Path(path)
    if path.is_file():
        found = {"kind": "ONNX", **_onnx(path)}
    elif (path / "saved_model.pb").is_file():
        found = {"kind": "SavedModel", **_saved_model(path)}
    elif (path / "config.json").is_file():
        found = {"kind": "bundle", **_bundle(path)}
    else:
        got = f"a folder without any of these files ({path})" if path.is_dir() else f"{path}, which is not there"
        raise ValueError(f"FILE: expected {EXPECTED}, got {got}.")
    return {"path": str(path), **found}


def _onnx(path: Path) -> dict:
    """Describe an ONNX file with onnx-ir alone: nothing is run, and weights are not read."""
    model = _read_onnx(path)
    graph = model.graph
    metadata = json.loads(model.metadata_props[METADATA])
    parts = (graph, *graph.subgraphs())
    tensors = [value.const_value for part in parts for value in part.initializers.values() if not value.is_graph_input()]
    signature = {side: [_onnx_tensor(value) for value in values] for side, values in (("inputs", graph.inputs), ("outputs", graph.outputs))}
    return {
        "files": _onnx_files(path, tensors),
        "parameters": sum(tensor.size for tensor in tensors if tensor.dtype.name in WEIGHT_DTYPES),
        "signatures": {graph.name: signature},
        "facts": {
            "library_version": metadata["version"],
            "opsets": {domain or "ai.onnx": version for domain, version in model.opset_imports.items()},
            "ir_version": model.ir_version,
            "nodes": sum(1 for _ in graph.all_nodes()),
            "nodes_in_the_innermost_loop": _nodes_in_a_step(graph),
            "special_ids": metadata["ids"],
            **{name: metadata[name] for name in sorted(set(metadata) - _SHOWN_APART)},
        },
        "config": metadata["config"],
        "parity": metadata.get("parity"),
    }


_SHOWN_APART = {"version", "opset", "ids", "config", "parity", "search"}  # `search` says what the defaults of the inputs do


def _read_onnx(path: Path):
    try:
        with quietly("onnx_ir.serde"):  # as in `save_onnx`
            model = ir.load(path)
    except Exception as error:  # protobuf's, onnx's and onnx-ir's exceptions share no base but Exception
        raise ValueError(f"FILE: expected {EXPECTED}, got {path}, which does not load: {str(error).splitlines()[0]}") from None
    if METADATA not in model.metadata_props:
        raise ValueError(f"FILE: expected an ONNX file that tfk-transformer exported, got {path}, which has no metadata of it.")
    return model


def _onnx_tensor(value) -> dict:
    shape = [size if isinstance(size, int) else size.value for size in value.shape]
    tensor = {"name": value.name, "dtype": _numpy_name(value.dtype), "shape": shape}
    return tensor if value.const_value is None else {**tensor, "default": _plain(value.const_value.numpy())}


def _numpy_name(dtype) -> str:
    return "string" if dtype.name == "STRING" else dtype.numpy().name


def _plain(array: np.ndarray):
    """Return a scalar or a list as JSON has it: 0.6, and not what float32 makes of it; texts decoded."""
    if array.dtype.kind == "f":
        return float(str(array))
    return [text.decode() for text in array] if array.dtype.kind in "OS" else array.tolist()


def _onnx_files(path: Path, tensors) -> dict[str, int]:
    """Return the bytes of the file and of those beside it that hold its weights.

    Raises:
        ValueError: if one is missing or cut.
    """
    ends = {path.name: 0}
    for tensor in tensors:
        if isinstance(tensor, ir.ExternalTensor):
            ends[tensor.location] = max(ends.get(tensor.location, 0), tensor.offset + tensor.length)
    sizes = {name: (path.parent / name).stat().st_size for name in ends if (path.parent / name).is_file()}
    if broken := [name for name, end in ends.items() if sizes.get(name, -1) < end]:
        raise ValueError(
            f"FILE: expected weights of {path} in {', '.join(broken)} beside it, got no such file or a cut one; move them together."
        )
    return sizes


def _nodes_in_a_step(graph) -> int | None:
    """Return the number of nodes in the largest loop that has none inside: what each step of a search runs, branches included."""
    bodies = [node.attributes["body"].as_graph() for node in graph.all_nodes() if node.op_type == "Loop"]
    sizes = [[node.op_type for node in body.all_nodes()] for body in bodies]
    return max((len(names) for names in sizes if "Loop" not in names), default=None)


def _saved_model(path: Path) -> dict:
    """Describe a SavedModel from its protobuf and the index of its weights; it is not loaded."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        (content,) = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs
        weights = tf.train.load_checkpoint(str(path / "variables" / "variables"))
    except (DecodeError, ValueError, tf.errors.OpError) as error:
        raise ValueError(f"FILE: the SavedModel {path} does not load: {str(error).splitlines()[0]}") from None
    dtypes = weights.get_variable_to_dtype_map()
    signatures = {name: value for name, value in sorted(content.signature_def.items()) if not name.startswith("__")}
    return {
        "files": _sizes(path),
        "parameters": sum(int(np.prod(shape)) for name, shape in weights.get_variable_to_shape_map().items() if dtypes[name].is_floating),
        "signatures": {
            name: {"inputs": _tf_tensors(value.inputs), "outputs": _tf_tensors(value.outputs)} for name, value in signatures.items()
        },
        "facts": {
            "tensorflow_version": content.meta_info_def.tensorflow_version,
            "nodes": sum(len(function.node_def) for function in content.graph_def.library.function),
        },
        "parity": _parity_beside(path),
    }


def _parity_beside(saved_model: Path) -> dict | None:
    """Return the figures that the export wrote beside its files, without those of the others."""
    file = saved_model.parent / PARITY
    figures = json.loads(file.read_text()) if file.is_file() else {}
    common = {name: value for name, value in figures.items() if not isinstance(value, dict)}
    return {**common, **figures.get("saved_model", {})} or None


def _tf_tensors(tensors) -> list[dict]:
    """Describe the tensors of a signature, which has no order: texts and ids first, then prefixes and settings in theirs."""
    import tensorflow as tf

    order = [PREFIX.name, PREFIX_IDS.name, *SETTING_DTYPES]
    found = [
        {
            "name": name,
            "dtype": tf.as_dtype(info.dtype).name,
            "shape": [None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim],
        }
        for name, info in tensors.items()
    ]
    return sorted(found, key=lambda tensor: (order.index(tensor["name"]) if tensor["name"] in order else -1, tensor["name"]))


def _bundle(path: Path) -> dict:
    """Describe a bundle, which is opened: so it is whole."""
    from tfk_transformer.export.runtime.opening import open_bundle

    model = open_bundle(path).model
    file = path / "metrics.json"
    metrics = json.loads(file.read_text()) if file.is_file() else {}
    return {
        "files": _sizes(path),
        "parameters": model.count_params(),
        "facts": {name: value for name, value in metrics.items() if name != "parameters"},
        "config": model.config.model_dump(mode="json"),
    }


def tables(found: dict) -> list[Table]:
    """Return what `inspect` found as tables for people."""
    facts = {
        "kind": found["kind"],
        **{name: f"{size:,} bytes" for name, size in found["files"].items()},
        "parameters": f"{found['parameters']:,}",
    }
    facts |= found["facts"]
    signatures = [_signature_table(name, signature) for name, signature in found.get("signatures", {}).items()]
    named = ((found["path"], facts), ("configuration", found.get("config")), ("agreement with the Keras model", found.get("parity")))
    first, *others = [_table_of(title, values) for title, values in named if values]
    return [first, *signatures, *others]


def _table_of(title: str, values: dict) -> Table:
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in values.items():
        table.add_row(escape(name), escape(_readable(value)))
    return table


def _readable(value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def _signature_table(name: str, signature: dict) -> Table:
    table = Table("", "name", "dtype", "shape", "default", title=f"signature {name}", title_justify="left")
    for side in ("inputs", "outputs"):
        for tensor in signature[side]:
            shape = ", ".join("?" if size is None else str(size) for size in tensor["shape"])
            table.add_row(side[:-1], tensor["name"], tensor["dtype"], f"\\[{shape}]", str(tensor.get("default", "")))
    return table


def _sizes(folder: Path) -> dict[str, int]:
    return {str(file.relative_to(folder)): file.stat().st_size for file in sorted(folder.rglob("*")) if file.is_file()}
