"""Run ONNX files over texts without onnxruntime-extensions.

Its operators, tokenizers at the inputs and a detokenizer at the outputs, are cut off and computed
with SentencePiece.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.constants import END_ID
from tfk_transformer.export.runtime.protobuf import (
    BYTES,
    read_bytes,
    read_fields,
    write_bytes,
    write_number,
)
from tfk_transformer.inference.signatures import GENERATE, PREFIX, TEXT, TRANSLATE
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

TEXT_OPERATORS = "ai.onnx.contrib"  # the domain of onnxruntime-extensions
TOKENIZER = b"SentencepieceTokenizer"  # an operator of this domain
IDS = GENERATE.outputs[0].name  # the value that the detokenizer of a file reads
TRANSLATIONS = TRANSLATE.outputs[0].name  # the output of the detokenizer

# Numbers of fields in onnx.proto.
GRAPH = 7  # of ModelProto
NODE, INITIALIZER, INPUT, OUTPUT = 1, 5, 11, 12  # of GraphProto
NODE_INPUT, NODE_OUTPUT, OPERATOR, ATTRIBUTE, DOMAIN = 1, 2, 4, 5, 7  # of NodeProto
NODE_ENDS = (NODE_INPUT, NODE_OUTPUT)
STRING_VALUE = 4  # of AttributeProto
TENSOR_NAME = 8  # of TensorProto
INT32, INT64 = 6, 7  # numbers of dtypes


class TextInput(NamedTuple):
    """An input of texts (N,), and the two inputs that replace it in the graph."""

    name: str
    tokens: str  # int32 (sum of lengths,), the tokens of all texts, each with its end token
    starts: str  # int64 (N+1,), the index of the first token of each text, and their number
    model: bytes  # the SentencePiece model


def without_text_operators(model: bytes) -> tuple[bytes, list[TextInput]]:
    """Return an ONNX model without operators of onnxruntime-extensions, and its inputs of texts.

    Other inputs replace these inputs in the model, and the output `IDS` replaces translations.
    """
    parts = []
    text_inputs: list[TextInput] = []
    for field in read_fields(model, 0, len(model)):
        part = model[field.start : field.end]
        if (field.number, field.wire_type) == (GRAPH, BYTES):
            graph = model[field.value : field.end]
            for node in read_bytes(graph, NODE):
                if read_bytes(node, OPERATOR) == [TOKENIZER]:
                    name = read_bytes(node, NODE_INPUT)[0].decode()
                    tokens, starts, *_ = (item.decode() for item in read_bytes(node, NODE_OUTPUT))
                    (pieces,) = read_bytes(read_bytes(node, ATTRIBUTE)[0], STRING_VALUE)
                    text_inputs.append(TextInput(name, tokens, starts, pieces))
            part = write_bytes(GRAPH, _cut(graph, text_inputs))
        parts.append(part)
    return b"".join(parts), text_inputs


def _cut(graph: bytes, text_inputs: Sequence[TextInput]) -> bytes:
    names = {text_input.name.encode() for text_input in text_inputs}
    parts = []
    for field in read_fields(graph, 0, len(graph)):
        part, value = graph[field.start : field.end], graph[field.value : field.end]
        if field.number == NODE and read_bytes(value, DOMAIN) == [TEXT_OPERATORS.encode()]:
            part = b""
            if read_bytes(value, OPERATOR) != [TOKENIZER]:
                # A part of the detokenizer, whose result is no longer an output.
                ends = [write_bytes(key, read_bytes(value, key)[0]) for key in NODE_ENDS]
                part = write_bytes(NODE, b"".join([*ends, write_bytes(OPERATOR, b"Identity")]))
        elif field.number == INPUT and read_bytes(value, 1)[0] in names:
            part = b""
        elif field.number == INITIALIZER and read_bytes(value, TENSOR_NAME)[0] in names:
            part = b""  # the default of the input
        elif field.number == OUTPUT and read_bytes(value, 1)[0] == TRANSLATIONS.encode():
            part = _declaration(OUTPUT, IDS, INT32)
        parts.append(part)
    for _, tokens, starts, _ in text_inputs:
        parts += [_declaration(INPUT, tokens, INT32), _declaration(INPUT, starts, INT64)]
    return b"".join(parts)


def _declaration(number: int, name: str, dtype: int) -> bytes:
    """Return the field of a graph that declares an input or an output of any shape."""
    value_type = write_bytes(1, write_number(1, dtype))
    return write_bytes(number, write_bytes(1, name.encode()) + write_bytes(2, value_type))


class TextSession:
    """A session of a model without text operators, with the inputs and outputs of the file."""

    def __init__(self, session: Any, text_inputs: Sequence[TextInput]):
        self._session = session
        self._text_inputs = text_inputs
        self._tokenizers = {
            text_input.name: SubwordTokenizer(text_input.model) for text_input in text_inputs
        }

    def run(self, names: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any]:
        """Run the model; see `onnxruntime.InferenceSession.run`."""
        names = names or [output.name for output in self.get_outputs()]
        feeds = dict(inputs)
        if PREFIX.name in self._tokenizers:
            feeds.setdefault(PREFIX.name, [""])
        for name, tokens, starts, _ in self._text_inputs:
            texts = [str(text) for text in feeds.pop(name)]
            rows = [[*row, END_ID] for row in self._tokenizers[name].encode(texts)]
            feeds[tokens] = np.array([id_ for row in rows for id_ in row], "int32")
            feeds[starts] = np.cumsum([0, *map(len, rows)], dtype="int64")
        graph_names = [IDS if name == TRANSLATIONS else name for name in names]
        outputs = self._session.run(graph_names, feeds)
        if TRANSLATIONS in names:
            index = names.index(TRANSLATIONS)
            ids = outputs[index]  # (N, n_best, T)
            texts = self._tokenizers[PREFIX.name].decode(ids.reshape(-1, ids.shape[2]).tolist())
            outputs[index] = np.array(texts, object).reshape(ids.shape[:2])
        return outputs

    def get_inputs(self) -> list[Any]:
        """Return objects with the name and the shape of each input of the file."""
        texts = [TEXT._replace(name=name) for name in self._tokenizers]
        replaced = {name for _, tokens, starts, _ in self._text_inputs for name in (tokens, starts)}
        others = [value for value in self._session.get_inputs() if value.name not in replaced]
        return [*texts, *others]

    def get_outputs(self) -> list[Any]:
        """Return objects with the name and the shape of each output of the file."""
        outputs = self._session.get_outputs()
        return [TRANSLATE.outputs[0] if value.name == IDS else value for value in outputs]

    def get_modelmeta(self) -> Any:
        """Return the metadata of the file."""
        return self._session.get_modelmeta()
