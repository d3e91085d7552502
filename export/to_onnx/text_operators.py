"""The operators between texts and ids, and between probabilities and labels, with those of
onnxruntime-extensions.
"""

import string
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import tape

TEXT_OPERATORS = "ai.onnx.contrib"  # the domain of onnxruntime-extensions


def write_tokenizer(op: tape.Tape, text: ir.Value, tokenizer: bytes) -> ir.Value:
    """Tokenize texts (N,) to int32 ids (N, S): tokens, end token, padding."""
    zero, one, last = (
        _constant(op, name, [value]) for name, value in (("zero", 0), ("one", 1), ("last", -1))
    )
    no, yes = _constant(op, "no", [False]), _constant(op, "yes", [True])
    alpha = _constant(op, "alpha", np.zeros(1, "float32"))
    tokens, starts, _ = op.op_multi_out(
        "SentencepieceTokenizer",
        # nbest_size, alpha, add_bos, add_eos, reverse, fairseq.
        [text, zero, alpha, no, yes, no, no],
        attributes={"model": ir.Attr("model", ir.AttributeType.STRING, tokenizer)},
        num_outputs=3,
        domain=TEXT_OPERATORS,
    )
    # starts: the index of each text's first token in `tokens`, and then the number of tokens.
    first = op.op("Unsqueeze", [op.op("Slice", [starts, zero, last]), one])  # (N, 1)
    # (N, 1)
    after = op.op(
        "Unsqueeze", [op.op("Slice", [starts, one, _constant(op, "to_the_end", [2**62])]), one]
    )
    # One, if N is 0.
    lengths = op.op(
        "Concat", [op.op("Sub", [after, first]), _constant(op, "no_tokens", [[0]])], {"axis": 0}
    )
    longest = op.op("ReduceMax", [lengths], {"keepdims": 0})
    steps = op.op(
        "Range", [_constant(op, "zero_scalar", 0), longest, _constant(op, "one_scalar", 1)]
    )
    places = op.op("Add", [first, steps])  # (N, S)
    # Its last element is padding.
    padded = op.op("Concat", [tokens, _constant(op, "padding", np.zeros(1, "int32"))], {"axis": 0})
    return op.op("Gather", [padded, op.op("Where", [op.op("Less", [places, after]), places, last])])


def write_detokenizer(op: tape.Tape, ids: ir.Value, pieces: Sequence[str]) -> ir.Value:
    """Join the pieces of ids (N, n_best, T) to texts (N, n_best). The pieces of the end token and
    of padding are empty.
    """
    # StringJoin crashes the process on an empty tensor: add one sentence, and one blank piece to
    # all.
    longer = op.op("Pad", [ids, _constant(op, "one_more", [0, 0, 0, 1, 0, 1])])
    # StringStrip does not strip a text that has only blanks: such a text gets no pieces. Id 0 is
    # padding.
    blank = _constant(
        op,
        "blank_pieces",
        np.array([not piece.strip(string.whitespace) for piece in pieces], "int32"),
    )
    # (N+1, n_best, 1)
    nothing = op.op(
        "ReduceMin", [op.op("Gather", [blank, longer]), _constant(op, "last_axis", [2])]
    )
    longer = op.op(
        "Mul", [longer, op.op("Sub", [_constant(op, "one_id", np.array(1, "int32")), nothing])]
    )
    texts = op.op("Gather", [_constant(op, "pieces", np.array(pieces, object)), longer])
    joined = op.op(
        "StringJoin",
        [
            texts,
            _constant(op, "no_separator", np.array([""], object)),
            _constant(op, "last_axis", [2]),
        ],
        domain=TEXT_OPERATORS,
    )
    stripped = op.op("StringStrip", [joined], domain=TEXT_OPERATORS)
    return op.op("Slice", [stripped, _constant(op, "from", [0]), _constant(op, "to", [-1])])


def write_best_label(
    op: tape.Tape, probabilities: ir.Value, labels: Sequence[str]
) -> tuple[ir.Value, ir.Value]:
    """Return the labels (N,) of the highest probabilities (N, C), and these (N,). The label is
    empty where no probability is above 0.
    """
    one, none = _constant(op, "next", [1]), _constant(op, "no_label", [0])
    best = op.op("ArgMax", [probabilities], {"axis": 1})  # (N, 1)
    highest = op.op("GatherElements", [probabilities, best], {"axis": 1})  # (N, 1)
    above = op.op("Greater", [highest, _constant(op, "nothing", np.zeros(1, "float32"))])
    named = op.op("Where", [above, op.op("Add", [best, one]), none])
    names = _constant(op, "labels", np.array(["", *labels], object))
    return op.op("Gather", [names, op.op("Squeeze", [named, one])]), op.op(
        "Squeeze", [highest, one]
    )


def _constant(op: tape.Tape, name: str, value: np.ndarray | Sequence[object] | int) -> ir.Value:
    """Return the constant of this name; two tokenizers share the constants that both need."""
    array = np.asarray(value)
    if array.dtype == object:
        tensor = ir.StringTensor(
            np.vectorize(str.encode, otypes=[object])(array), shape=ir.Shape(array.shape)
        )
    else:
        tensor = ir.tensor(array)
    known = op.graph_like.initializers.get(f"text/{name}")
    return known or op.initializer(tensor, name=f"text/{name}")
