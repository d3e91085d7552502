"""Run ONNX files over texts without onnxruntime-extensions.

Its operators, tokenizers at the inputs and a detokenizer at the outputs, are cut off and computed
with SentencePiece.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
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


class TextInputs(NamedTuple):
    """Inputs of texts (N,) with one tokenizer, and the inputs that replace them in the graph.

    The texts of all inputs are tokenized one after the other.
    """

    names: list[str]
    counts: list[str]  # int64 (1,), the number of texts of each input; none of a single input
    tokens: str  # int32 (sum of lengths,), the tokens of all texts, each with its end token
    starts: str  # int64 (N+1,), the index of the first token of each text, and their number
    model: bytes  # the SentencePiece model


def without_text_operators(model: bytes) -> tuple[bytes, list[TextInputs]]:
    """Return an ONNX model without operators of onnxruntime-extensions, and its inputs of texts.

    Other inputs replace these inputs in the model, and the output `IDS` replaces translations.
    """
    parts = []
    text_inputs: list[TextInputs] = []
    for field in read_fields(model, 0, len(model)):
        part = model[field.start : field.end]
        if (field.number, field.wire_type) == (GRAPH, BYTES):
            graph = model[field.value : field.end]
            text_inputs += _text_inputs(graph)
            part = write_bytes(GRAPH, _cut(graph, text_inputs))
        parts.append(part)
    return b"".join(parts), text_inputs


def _text_inputs(graph: bytes) -> Iterator[TextInputs]:
    nodes = read_bytes(graph, NODE)
    joined, counts = (
        {
            end: [name.decode() for name in read_bytes(node, other_end)]
            for node in nodes
            if read_bytes(node, OPERATOR) == [operator]
            for end in read_bytes(node, this_end)
        }
        for operator, this_end, other_end in (
            (b"Concat", NODE_OUTPUT, NODE_INPUT),
            (b"Shape", NODE_INPUT, NODE_OUTPUT),
        )
    )
    for node in nodes:
        if read_bytes(node, OPERATOR) == [TOKENIZER]:
            texts = read_bytes(node, NODE_INPUT)[0]
            names = joined.get(texts, [texts.decode()])
            tokens, starts, *_ = (item.decode() for item in read_bytes(node, NODE_OUTPUT))
            (pieces,) = read_bytes(read_bytes(node, ATTRIBUTE)[0], STRING_VALUE)
            sizes = [size for name in names for size in counts.get(name.encode(), ())]
            yield TextInputs(names, sizes, tokens, starts, pieces)


def _cut(graph: bytes, text_inputs: Sequence[TextInputs]) -> bytes:
    names = {name.encode() for inputs in text_inputs for name in inputs.names}
    parts = []
    for field in read_fields(graph, 0, len(graph)):
        part, value = graph[field.start : field.end], graph[field.value : field.end]
        if field.number == NODE and read_bytes(value, DOMAIN) == [TEXT_OPERATORS.encode()]:
            part = b""
            if read_bytes(value, OPERATOR) != [TOKENIZER]:
                # A part of the detokenizer, whose result is no longer an output.
                ends = [write_bytes(key, read_bytes(value, key)[0]) for key in NODE_ENDS]
                part = write_bytes(NODE, b"".join([*ends, write_bytes(OPERATOR, b"Identity")]))
        elif field.number == NODE and names.intersection(read_bytes(value, NODE_INPUT)):
            part = b""  # it joins or counts texts
        elif field.number == INPUT and read_bytes(value, 1)[0] in names:
            part = b""
        elif field.number == INITIALIZER and read_bytes(value, TENSOR_NAME)[0] in names:
            part = b""  # the default of the input
        elif field.number == OUTPUT and read_bytes(value, 1)[0] == TRANSLATIONS.encode():
            part = _declaration(OUTPUT, IDS, INT32)
        parts.append(part)
    for inputs in text_inputs:
        parts.append(_declaration(INPUT, inputs.tokens, INT32))
        parts += [_declaration(INPUT, name, INT64) for name in (*inputs.counts, inputs.starts)]
    return b"".join(parts)


def _declaration(number: int, name: str, dtype: int) -> bytes:
    """Return the field of a graph that declares an input or an output of any shape."""
    value_type = write_bytes(1, write_number(1, dtype))
    return write_bytes(number, write_bytes(1, name.encode()) + write_bytes(2, value_type))


class TextSession:
    """A session of a model without text operators, with the inputs and outputs of the file."""

    def __init__(self, session: Any, text_inputs: Sequence[TextInputs]):
        self._session = session
        self._text_inputs = text_inputs
        self._tokenizers: dict[str, SubwordTokenizer] = {}
        for inputs in text_inputs:
            self._tokenizers |= dict.fromkeys(inputs.names, SubwordTokenizer(inputs.model))

    def run(self, names: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any]:
        """Run the model; see `onnxruntime.InferenceSession.run`."""
        names = names or [output.name for output in self.get_outputs()]
        feeds = dict(inputs)
        if PREFIX.name in self._tokenizers:
            feeds.setdefault(PREFIX.name, [""])
        for replaced in self._text_inputs:
            groups = [[str(text) for text in feeds.pop(name)] for name in replaced.names]
            tokenizer = self._tokenizers[replaced.names[0]]
            rows = [[*row, END_ID] for row in tokenizer.encode([*itertools.chain(*groups)])]
            feeds[replaced.tokens] = np.array([*itertools.chain(*rows)], "int32")
            feeds[replaced.starts] = np.cumsum([0, *map(len, rows)], dtype="int64")
            for count, group in zip(replaced.counts, groups, strict=False):
                feeds[count] = np.array([len(group)])
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
        names = {
            name
            for replaced in self._text_inputs
            for name in (*replaced.counts, replaced.tokens, replaced.starts)
        }
        others = [value for value in self._session.get_inputs() if value.name not in names]
        return [*texts, *others]

    def get_outputs(self) -> list[Any]:
        """Return objects with the name and the shape of each output of the file."""
        outputs = self._session.get_outputs()
        return [TRANSLATE.outputs[0] if value.name == IDS else value for value in outputs]

    def get_modelmeta(self) -> Any:
        """Return the metadata of the file."""
        return self._session.get_modelmeta()
