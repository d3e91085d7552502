"""Write the operators between texts and ids, and between probabilities and labels."""

import functools
import itertools
import string
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import Value, tape

from tfk_transformer.export.runtime.text_session import TEXT_OPERATORS

SURROGATE_ESCAPE = 0xDC00  # a byte from 0x80 on is this code point plus its value (PEP 383)
# UTF-8: the first bytes of sequences from these values on, and the length of the sequences.
FIRST_BYTES = ((0xF5, 0), (0xF0, 4), (0xE0, 3), (0xC2, 2), (0x80, 0), (0, 1))
# The bounds of the second byte, where not all continuation bytes are valid after a first byte.
SECOND_BYTES = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}


def write_tokenizer(op: tape.Tape, texts: Sequence[Value], tokenizer: bytes) -> list[Value]:
    """Tokenize inputs of texts (N,) with one operator.

    Returns:
        For each input int32 ids (N, S): tokens, end token, padding.
    """
    zero, one, last = (
        _constant(op, name, [value]) for name, value in (("zero", 0), ("one", 1), ("last", -1))
    )
    no = _constant(op, "no", [False])
    yes = _constant(op, "yes", [True])
    alpha = _constant(op, "alpha", np.zeros(1, "float32"))
    joined = texts[0] if len(texts) == 1 else op.op("Concat", texts, {"axis": 0})
    tokens, starts, _ = op.op_multi_out(
        "SentencepieceTokenizer",
        # nbest_size, alpha, add_bos, add_eos, reverse, fairseq.
        [joined, zero, alpha, no, yes, no, no],
        attributes={"model": ir.Attr("model", ir.AttributeType.STRING, tokenizer)},
        num_outputs=3,
        domain=TEXT_OPERATORS,
    )
    # The last element is padding.
    padded = op.op("Concat", [tokens, _constant(op, "padding", np.zeros(1, "int32"))], {"axis": 0})
    # starts: the index of each text's first token in `tokens`, and then the number of tokens.
    following = op.op("Slice", [starts, one, _constant(op, "to_the_end", [2**62])])
    ids, begin = [], zero
    for text in texts:
        stop = last if len(texts) == 1 else op.op("Add", [begin, op.op("Shape", [text])])
        first = op.op("Unsqueeze", [op.op("Slice", [starts, begin, stop]), one])  # (N, 1)
        end = following if len(texts) == 1 else op.op("Slice", [following, begin, stop])
        end = op.op("Unsqueeze", [end, one])  # (N, 1)
        # A length of 0 is appended, so that ReduceMax has an input if N is 0.
        lengths = [op.op("Sub", [end, first]), _constant(op, "no_tokens", [[0]])]
        longest = op.op("ReduceMax", [op.op("Concat", lengths, {"axis": 0})], {"keepdims": 0})
        range_inputs = [_constant(op, "zero_scalar", 0), longest, _constant(op, "one_scalar", 1)]
        indices = op.op("Add", [first, op.op("Range", range_inputs)])  # (N, S)
        indices = op.op("Where", [op.op("Less", [indices, end]), indices, last])
        ids.append(op.op("Gather", [padded, indices]))
        begin = stop
    return ids


def write_detokenizer(op: tape.Tape, ids: Value, pieces: Sequence[str]) -> Value:
    """Join the pieces of ids (N, n_best, T) to texts (N, n_best).

    The pieces of the end token and of padding are empty. An invalid byte of UTF-8 becomes U+FFFD.
    """
    # StringJoin crashes the process on an empty tensor: add one sentence, and one blank piece to
    # every sentence.
    padded = op.op("Pad", [ids, _constant(op, "one_more", [0, 0, 0, 1, 0, 1])])
    # StringStrip does not strip a text that has only blanks: its ids become 0, which is padding.
    are_visible = np.array([bool(piece.strip(string.whitespace)) for piece in pieces], "uint8")
    pieces_seen = op.op("Gather", [_constant(op, "visible_pieces", are_visible), padded])
    # (N+1, n_best, 1)
    is_visible = op.op("ReduceMax", [pieces_seen, _constant(op, "last_axis", [2])])
    visible_ids = op.op("Mul", [padded, op.op("Cast", [is_visible], {"to": ir.DataType.INT32})])
    if any(map(_byte, pieces)):
        visible_ids = _without_invalid_bytes(op, visible_ids, pieces)
        pieces = [*pieces, "\ufffd"]
    texts = op.op("Gather", [_constant(op, "pieces", np.array(pieces, object)), visible_ids])
    separator = _constant(op, "no_separator", np.array([""], object))
    join_inputs = [texts, separator, _constant(op, "last_axis", [2])]
    joined = op.op("StringJoin", join_inputs, domain=TEXT_OPERATORS)
    stripped = op.op("StringStrip", [joined], domain=TEXT_OPERATORS)
    return op.op("Slice", [stripped, _constant(op, "from", [0]), _constant(op, "to", [-1])])


def _byte(piece: str) -> int:
    """Return the value of a piece that is a byte of a longer UTF-8 sequence, or 0."""
    return ord(piece) - SURROGATE_ESCAPE if len(piece) == 1 and "\udc80" <= piece <= "\udcff" else 0


def _without_invalid_bytes(op: tape.Tape, ids: Value, pieces: Sequence[str]) -> Value:
    """Replace the ids (N, n_best, T) of bytes outside of valid UTF-8 sequences by len(pieces)."""
    values = np.array([*map(_byte, pieces)], "int32")
    # By the value of a piece: the length of its sequence, and the bounds of the next three bytes.
    table = np.array([_sequence_bounds(value) for value in range(256)], "int32")[values]
    shape = op.op("Shape", [ids])
    byte_values = op.op("Gather", [_constant(op, "byte_values", values), ids])
    lengths = op.op("Gather", [_constant(op, "byte_lengths", table[:, 0]), ids])
    one = _constant(op, "one_id", np.array(1, "int32"))
    axis = _constant(op, "last_axis", [2])
    for offset in (1, 2, 3):
        following = _shifted(op, byte_values, offset, shape, axis)
        low = _constant(op, f"lowest_{offset}", table[:, 2 * offset - 1])
        high = _constant(op, f"highest_{offset}", table[:, 2 * offset])
        at_least = op.op("GreaterOrEqual", [following, op.op("Gather", [low, ids])])
        at_most = op.op("LessOrEqual", [following, op.op("Gather", [high, ids])])
        fits = op.op("Cast", [op.op("And", [at_least, at_most])], {"to": ir.DataType.INT32})
        lengths = op.op("Mul", [lengths, fits])  # 0 where no sequence begins
    valid = op.op("GreaterOrEqual", [lengths, one])
    for offset in (1, 2, 3):
        preceding = _shifted(op, lengths, -offset, shape, axis)
        longer = _constant(op, f"length_{offset + 1}", np.array(offset + 1, "int32"))
        valid = op.op("Or", [valid, op.op("GreaterOrEqual", [preceding, longer])])
    replacement = _constant(op, "replacement", np.array(len(pieces), "int32"))
    return op.op("Where", [valid, ids, replacement])


def _shifted(op: tape.Tape, values: Value, offset: int, shape: Value, axis: Value) -> Value:
    """Return, at each index of the last axis, the value at index + offset, or 0."""
    before, after = max(0, -offset), max(0, offset)
    pads = _constant(op, f"shift_{offset}", [0, 0, before, 0, 0, after])
    padded = op.op("Pad", [values, pads])
    start = _constant(op, f"shift_from_{after}", [after])
    length = op.op("Gather", [shape, axis])
    return op.op("Slice", [padded, start, op.op("Add", [length, start]), axis])


def _sequence_bounds(value: int) -> tuple[int, ...]:
    """Return the length of the sequence of a first byte, or 0, and the bounds of the next bytes."""
    length = next((n for first, n in FIRST_BYTES if value >= first), 0)
    bounds = [(0x80, 0xBF) if offset < length else (0, 0xFF) for offset in (1, 2, 3)]
    if value in SECOND_BYTES:
        bounds[0] = SECOND_BYTES[value]
    return (length, *itertools.chain(*bounds))


def write_best_label(
    op: tape.Tape, probabilities: Value, labels: Sequence[str]
) -> tuple[Value, Value]:
    """Return the labels (N,) of the highest probabilities (N, C), and these probabilities (N,).

    The label is empty where no probability is above 0.
    """
    one = _constant(op, "next", [1])
    no_label = _constant(op, "no_label", [0])
    best = op.op("ArgMax", [probabilities], {"axis": 1})  # (N, 1)
    highest = op.op("GatherElements", [probabilities, best], {"axis": 1})  # (N, 1)
    has_label = op.op("Greater", [highest, _constant(op, "nothing", np.zeros(1, "float32"))])
    index = op.op("Where", [has_label, op.op("Add", [best, one]), no_label])
    names = _constant(op, "labels", np.array(["", *labels], object))
    label = op.op("Gather", [names, op.op("Squeeze", [index, one])])
    return label, op.op("Squeeze", [highest, one])


def _constant(op: tape.Tape, name: str, value: np.ndarray | Sequence[object] | int) -> Value:
    """Return the constant of this name; two tokenizers share the constants that both need."""
    array = np.asarray(value)
    if array.dtype == object:
        # The single bytes of `SubwordTokenizer.pieces` are not UTF-8.
        encode = functools.partial(str.encode, errors="surrogateescape")
        encoded = np.vectorize(encode, otypes=[object])(array)
        tensor = ir.StringTensor(encoded, shape=ir.Shape(array.shape))
    else:
        tensor = ir.tensor(array)
    existing = op.graph_like.initializers.get(f"text/{name}")
    return existing or op.initializer(tensor, name=f"text/{name}")
