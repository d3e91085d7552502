"""The messages of TensorFlow Serving's gRPC interface, with the fields that the server uses.

The classes of `tensorflow-serving-api` import TensorFlow: seconds, and hundreds of megabytes.
"""

import math
import re
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tfk_transformer.apps.server.bodies import InvalidValue, check_maximum
from tfk_transformer.apps.server.protocols.tf_serving import DTYPES
from tfk_transformer.config.words import shorten
from tfk_transformer.inference.signatures import TensorSignature

PACKAGE = "tensorflow.serving"
# The fields of each message: name=number:type. "*": repeated, "{}": a map from strings.
FIELDS = {
    "Any": "type_url=1:string value=2:bytes",
    "Int64Value": "value=1:int64",
    "Dim": "size=1:int64 name=2:string",
    "TensorShapeProto": "dim=2:Dim* unknown_rank=3:bool",
    "TensorProto": (
        "dtype=1:DataType tensor_shape=2:TensorShapeProto tensor_content=4:bytes "
        "float_val=5:float* int_val=7:int32* string_val=8:bytes*"
    ),
    "TensorInfo": "name=1:string dtype=2:DataType tensor_shape=3:TensorShapeProto",
    "SignatureDef": (
        "inputs=1:TensorInfo{} outputs=2:TensorInfo{} method_name=3:string defaults=4:TensorProto{}"
    ),
    "SignatureDefMap": "signature_def=1:SignatureDef{}",
    "ModelSpec": (
        "name=1:string version=2:Int64Value signature_name=3:string version_label=4:string"
    ),
    "PredictRequest": "model_spec=1:ModelSpec inputs=2:TensorProto{} output_filter=3:string*",
    "PredictResponse": "outputs=1:TensorProto{} model_spec=2:ModelSpec",
    "GetModelMetadataRequest": "model_spec=1:ModelSpec metadata_field=2:string*",
    "GetModelMetadataResponse": "model_spec=1:ModelSpec metadata=2:Any{}",
}
# The data types, from number 0.
DATA_TYPES = (
    *("DT_INVALID", "DT_FLOAT", "DT_DOUBLE", "DT_INT32", "DT_UINT8", "DT_INT16", "DT_INT8"),
    *("DT_STRING", "DT_COMPLEX64", "DT_INT64", "DT_BOOL"),
)
# The field of a TensorProto with the values of a dtype.
VALUE_FIELDS = {"string": "string_val", "int32": "int_val", "float32": "float_val"}

_FieldProto = descriptor_pb2.FieldDescriptorProto


def _add_field(message: Any, description: str) -> None:
    """Add a field of FIELDS to the descriptor of a message."""
    match = re.fullmatch(r"(\w+)=(\d+):(\w+)(.*)", description)
    assert match is not None
    name, number, type_name, label = match.groups()
    if label == "{}":  # a map is a list of entries, messages whose class has a prescribed name
        entry_name = f"{name.title().replace('_', '')}Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _add_field(entry, "key=1:string")
        _add_field(entry, f"value=2:{type_name}")
        type_name = f"{message.name}.{entry_name}"
    field = message.field.add(name=name, number=int(number))
    field.label = _FieldProto.LABEL_REPEATED if label else _FieldProto.LABEL_OPTIONAL
    if type_name.islower():  # a scalar
        field.type = _FieldProto.Type.Value(f"TYPE_{type_name.upper()}")
        return
    field.type = _FieldProto.TYPE_ENUM if type_name == "DataType" else _FieldProto.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{type_name}"


def _message_classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="prediction.proto", package=PACKAGE)
    file.syntax = "proto3"
    enum = file.enum_type.add(name="DataType")
    for number, name in enumerate(DATA_TYPES):
        enum.value.add(name=name, number=number)
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field in fields.split():
            _add_field(message, field)
    # A pool of its own: TensorFlow's messages, which a SavedModel loads, are in the default pool.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in FIELDS
    }


MESSAGES = _message_classes()


def read_tensor(tensor: Any, spec: TensorSignature, max_values: int) -> Any:
    """Return the value of a TensorProto for the input `spec`: a number, or a list of texts."""
    data_type = DTYPES[spec.dtype]
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if (
        tensor.dtype != DATA_TYPES.index(data_type)
        or tensor.tensor_shape.unknown_rank
        or len(shape) != len(spec.shape)
        or min(shape, default=0) < 0
    ):
        received = dict(enumerate(DATA_TYPES)).get(tensor.dtype, f"data type {tensor.dtype}")
        raise InvalidValue(
            f"{spec.name}: expected {data_type} of rank {len(spec.shape)}, got {received} of shape "
            f"{shorten(str(shape))}; correct this input."
        )
    count = math.prod(shape)
    check_maximum(spec.name, count, max_values, "send several requests", " values")
    values = _values(tensor, spec, count)
    if spec.dtype == "string":
        try:
            return [text.decode() for text in values]
        except UnicodeDecodeError as error:
            received = shorten(repr(error.object))
            raise InvalidValue(
                f"{spec.name}: expected UTF-8, got {received}; correct the encoding."
            ) from None
    # The shortest decimal number, as REST's clients write it, so that both can share a batch.
    return float(str(np.float32(values[0]))) if spec.dtype == "float32" else values[0]


def _values(tensor: Any, spec: TensorSignature, count: int) -> list[Any]:
    """Return the `count` values of a tensor, which may omit repetitions of its last value."""
    field = VALUE_FIELDS[spec.dtype]
    content = tensor.tensor_content
    values = list(getattr(tensor, field))
    if content and (spec.dtype == "string" or values or len(content) != 4 * count):
        raise InvalidValue(
            f"{spec.name}: expected {count} values in {field}, got {len(content)} bytes in "
            f"tensor_content; send the values in {field}."
        )
    if content:
        return np.frombuffer(content, np.dtype(spec.dtype).newbyteorder("<")).tolist()
    if len(values) > count:
        raise InvalidValue(
            f"{spec.name}: expected {count} values, as the shape says, got {len(values)}; correct "
            "the shape."
        )
    last = values[-1:] or [b"" if spec.dtype == "string" else 0]
    return values + last * (count - len(values))


def write_tensor(tensor: Any, values: Any, spec: TensorSignature) -> None:
    """Set a TensorProto to a scalar, or to a list of values or of lists of equal lengths."""
    tensor.dtype = DATA_TYPES.index(DTYPES[spec.dtype])
    tensor.tensor_shape.SetInParent()  # a scalar has a shape, without axes
    flat = [values]
    for _ in spec.shape:
        tensor.tensor_shape.dim.add(size=len(flat[0]) if flat else 0)
        flat = [value for row in flat for value in row]
    encoded = [value.encode() for value in flat] if spec.dtype == "string" else flat
    getattr(tensor, VALUE_FIELDS[spec.dtype]).extend(encoded)
