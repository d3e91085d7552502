"""Describe files of models without running them."""

import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import onnx_ir as ir

from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.config.small_files import (
    first_line,
    one_line_error,
    parse_json_object,
    read_json_object,
)
from tfk_transformer.export import file_names
from tfk_transformer.export.runtime.opening import MODEL_PATHS, model_kind, unexpected_path
from tfk_transformer.export.runtime.sessions import METADATA, MODEL_CARD, parse_metadata
from tfk_transformer.export.to_onnx.conversion import quietly
from tfk_transformer.inference.signatures import PREFIX, PREFIX_IDS

if TYPE_CHECKING:
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, TensorInfo

Description: TypeAlias = dict[str, Any]  # JSON values, of which each kind of file has others

WEIGHT_DTYPES = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "INT8", "UINT8")


def inspect(path: str | os.PathLike[str]) -> Description:
    """Describe a bundle, a SavedModel folder, an exported ONNX file, a web folder or an exported
    folder of another library.

    Only bundles and SavedModels load TensorFlow.

    Args:
        path: path of the file or folder.

    Returns:
        Values that JSON can hold: `kind` ("bundle", "SavedModel", "ONNX", "web", "CTranslate2" or
        "Hugging Face"), `path`, `files` (bytes by name) and `parameters`.
        Depending on the kind, there are also `signatures`, `facts`, `model_card`, `config`,
        `settings` (the rules of each search setting) and `parity`.

    Raises:
        ValueError: if `path` does not exist, is broken, or was not written by this project.
    """
    path = Path(path)
    kind = model_kind(path)
    if kind not in _DESCRIBE or not path.exists():
        raise unexpected_path("FILE", path)
    try:
        return {"path": str(path), "kind": kind, **_DESCRIBE[kind](path)}
    except (AttributeError, LookupError, OverflowError, TypeError) as error:
        # Parts are missing or of another type: onnx-ir opens graphs whose values lack shapes.
        raise ValueError(
            f"FILE: expected {MODEL_PATHS}, got {path}, which is incomplete: {first_line(error)}"
        ) from None


def _onnx(path: Path) -> Description:
    """Describe an ONNX file with onnx-ir, which does not read external weights."""
    refusal = f"FILE: expected {MODEL_PATHS}, got {path}, which does not load: "
    with one_line_error(refusal), quietly("onnx_ir.serde"):  # as in `onnx_file`
        model = ir.load(path)
    if METADATA not in model.metadata_props:
        raise ValueError(
            f"FILE: expected an ONNX file that tfk-transformer exported, got {path}, which has no "
            "metadata of tfk-transformer."
        )
    return _describe_onnx(path, model, parse_metadata(model.metadata_props[METADATA], path))


def _describe_onnx(path: Path, model: ir.Model, metadata: Description) -> Description:
    graph = model.graph
    by_graph = (part.initializers.values() for part in (graph, *graph.subgraphs()))
    constants = itertools.chain.from_iterable(by_graph)
    tensors = [value.const_value for value in constants if not value.is_graph_input()]
    loops = (node for node in graph.all_nodes() if node.op_type == "Loop")
    bodies = (loop.attributes["body"].as_graph() for loop in loops)
    op_types = [[node.op_type for node in body.all_nodes()] for body in bodies]  # with branches
    signature = {
        "inputs": [_onnx_tensor(value) for value in graph.inputs],
        "outputs": [_onnx_tensor(value) for value in graph.outputs],
    }
    card = model.metadata_props.get(MODEL_CARD)  # earlier versions wrote none
    card_name = f"FILE: the model card of {path}"
    return {
        "files": _onnx_files(path, tensors),
        "parameters": sum(tensor.size for tensor in tensors if tensor.dtype.name in WEIGHT_DTYPES),
        "signatures": {graph.name: signature},
        "facts": {
            "library_version": metadata.get("version"),
            "opsets": {
                domain or "ai.onnx": version for domain, version in model.opset_imports.items()
            },
            "ir_version": model.ir_version,
            "nodes": sum(1 for _ in graph.all_nodes()),
            "nodes_in_the_innermost_loop": max(
                (len(names) for names in op_types if "Loop" not in names), default=None
            ),
            "special_ids": metadata.get("ids"),
            **{name: metadata[name] for name in sorted(set(metadata) - _SEPARATE)},
        },
        "model_card": None if card is None else parse_json_object(card, card_name),
        "config": metadata["config"],
        "settings": metadata.get("search"),
        "parity": metadata.get("parity"),
    }


# Metadata that is not among the facts of a description.
_SEPARATE = {"version", "opset", "ids", "config", "parity", "search"}


def _onnx_tensor(value: ir.Value) -> Description:
    shape = [size if isinstance(size, int) else size.value for size in value.shape]
    dtype = "string" if value.dtype.name == "STRING" else value.dtype.numpy().name
    tensor: Description = {"name": value.name, "dtype": dtype, "shape": shape}
    if value.const_value is not None:
        default = value.const_value.numpy()
        if default.dtype.kind == "f":
            tensor["default"] = float(str(default))  # 0.6 for a float32, not 0.6000000238
        elif default.dtype.kind in "OS":
            tensor["default"] = [text.decode() for text in default]
        else:
            tensor["default"] = default.tolist()
    return tensor


def _onnx_files(path: Path, tensors: Iterable[ir.TensorProtocol]) -> dict[str, int]:
    """Return the bytes of the file and of the files with its external weights."""
    ends = {path.name: 0}
    for tensor in tensors:
        if isinstance(tensor, ir.ExternalTensor):
            ends[tensor.location] = max(ends.get(tensor.location, 0), tensor.offset + tensor.length)
    sizes = {
        name: (path.parent / name).stat().st_size for name in ends if (path.parent / name).is_file()
    }
    if broken := [name for name, end in ends.items() if sizes.get(name, -1) < end]:
        raise ValueError(
            f"FILE: expected the weights of {path} in {', '.join(broken)} next to it, got a "
            "missing or truncated file; move the files together."
        )
    return sizes


def _saved_model(path: Path) -> Description:
    """Describe a SavedModel from its protobuf and the index of its weights."""
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    with one_line_error(f"FILE: the SavedModel {path} does not load: "):
        saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
        (content,) = saved.meta_graphs
        config = _stored_config(content)
        weights = tf.train.load_checkpoint(str(path / "variables" / "variables"))
        dtypes = weights.get_variable_to_dtype_map()
        shapes = weights.get_variable_to_shape_map()
    figures = _read_parity(path)
    common = {name: value for name, value in figures.items() if not isinstance(value, dict)}
    return {
        "files": _sizes(path),
        "parameters": sum(
            math.prod(shape) for name, shape in shapes.items() if dtypes[name].is_floating
        ),
        "signatures": {
            name: {"inputs": _tf_tensors(value.inputs), "outputs": _tf_tensors(value.outputs)}
            for name, value in sorted(content.signature_def.items())
            if not name.startswith("__")
        },
        "facts": {
            "tensorflow_version": content.meta_info_def.tensorflow_version,
            "nodes": sum(len(function.node_def) for function in content.graph_def.library.function),
        },
        "config": config,
        "parity": {**common, **figures.get("saved_model", {})} or None,
    }


def _stored_config(content: "MetaGraphDef") -> Description | None:
    """Return the model's configuration in a SavedModel: the constant of its function `config`."""
    nodes = content.object_graph_def.nodes
    names = {
        name
        for child in (nodes[0].children if nodes else ())
        if child.local_name == "config"
        for name in nodes[child.node_id].function.concrete_functions
    }
    for function in content.graph_def.library.function:
        if function.signature.name in names:
            constants = [node for node in function.node_def if node.op == "Const"]
            text = constants[0].attr["value"].tensor.string_val[0]
            return parse_json_object(text, "the configuration")
    return None


def _library(path: Path) -> Description:
    """Describe an exported folder for another library."""
    types = {"version": str, "parameters": int, "config": dict}
    description = _read_description(path / file_names.EXPORTED, **types)
    is_ctranslate2 = (path / "model.bin").is_file()
    format = file_names.CTRANSLATE2_FOLDER if is_ctranslate2 else file_names.HUGGINGFACE_FOLDER
    return {
        "kind": "CTranslate2" if is_ctranslate2 else "Hugging Face",
        "files": _sizes(path),
        "parameters": description["parameters"],
        "facts": {
            "library_version": description["version"],
            **{name: description[name] for name in ("shortlist", "search") if name in description},
        },
        "config": description["config"],
        "parity": _read_parity(path).get(format),
    }


def _web(path: Path) -> Description:
    """Describe a web folder from its description file."""
    types = {"version": str, "int8": bool, "parameters": int}
    dicts = dict.fromkeys(("files", "config", "parity"), dict)
    description = _read_description(path / file_names.PAGE_DESCRIPTION, **types, **dicts)
    return {
        "files": _sizes(path),
        "facts": {
            "library_version": description["version"],
            "int8": description["int8"],
            "files of the model": description["files"],
            **({"shortlist": description["shortlist"]} if "shortlist" in description else {}),
        },
        "parameters": description["parameters"],
        "config": description["config"],
        "parity": {**description["parity"], **_read_parity(path).get(path.name, {})},
    }


def _read_description(file: Path, **types: type) -> Description:
    """Return an exported folder's description, with values of these types."""
    description = read_json_object(file)
    if missing := [name for name in types if not isinstance(description.get(name), types[name])]:
        raise ValueError(
            f"FILE: expected the description of an exported folder in {file}, got one without "
            f"{', '.join(missing)}; export the model again."
        )
    return description


def _read_parity(folder: Path) -> Description:
    """Return the content of the `parity.json` next to an exported folder, if there is one."""
    file = folder.parent / file_names.PARITY_FILE
    return read_json_object(file) if file.is_file() else {}


def _tf_tensors(tensors: "Mapping[str, TensorInfo]") -> list[Description]:
    """Describe a signature's tensors, which have no order: texts and ids, prefixes, settings."""
    import tensorflow as tf

    order = [PREFIX.name, PREFIX_IDS.name, *SETTING_DTYPES]
    names = sorted(tensors, key=lambda name: (order.index(name) if name in order else -1, name))
    return [
        {
            "name": name,
            "dtype": tf.as_dtype(tensors[name].dtype).name,
            "shape": [None if dim.size < 0 else dim.size for dim in tensors[name].tensor_shape.dim],
        }
        for name in names
    ]


def _bundle(path: Path) -> Description:
    """Open a bundle, which checks that it is complete, and describe it."""
    from tfk_transformer.export.runtime.opening import open_bundle
    from tfk_transformer.pipelines.translator import Translator

    fitted = open_bundle(path)
    file = path / "metrics.json"
    metrics = read_json_object(file) if file.is_file() else {}
    return {
        "files": _sizes(path),
        "parameters": fitted.model.count_params(),
        "facts": {name: value for name, value in metrics.items() if name != "parameters"},
        "config": fitted.model.config.model_dump(mode="json"),
        "settings": dict(fitted.runtime.rules) if isinstance(fitted, Translator) else None,
    }


def _sizes(folder: Path) -> dict[str, int]:
    return {
        file.relative_to(folder).as_posix(): file.stat().st_size
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


# The function that describes each kind of `model_kind`.
_DESCRIBE: dict[str, Callable[[Path], Description]] = {
    "ONNX": _onnx,
    "SavedModel": _saved_model,
    "library": _library,
    "web": _web,
    "bundle": _bundle,
}
