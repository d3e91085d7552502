"""Write the operators between texts and ids, and between probabilities and labels.

Some of them are operators of onnxruntime-extensions.
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
    no = _constant(op, "no", [False])
    yes = _constant(op, "yes", [True])
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
    ends = op.op("Slice", [starts, one, _constant(op, "to_the_end", [2**62])])
    end = op.op("Unsqueeze", [ends, one])  # (N, 1)
    lengths = op.op("Sub", [end, first])
    # A length of 0 is appended, so that ReduceMax has an input if N is 0.
    lengths = op.op("Concat", [lengths, _constant(op, "no_tokens", [[0]])], {"axis": 0})
    longest = op.op("ReduceMax", [lengths], {"keepdims": 0})
    range_inputs = [_constant(op, "zero_scalar", 0), longest, _constant(op, "one_scalar", 1)]
    indices = op.op("Add", [first, op.op("Range", range_inputs)])  # (N, S)
    # The last element is padding.
    padded = op.op("Concat", [tokens, _constant(op, "padding", np.zeros(1, "int32"))], {"axis": 0})
    indices = op.op("Where", [op.op("Less", [indices, end]), indices, last])
    return op.op("Gather", [padded, indices])


def write_detokenizer(op: tape.Tape, ids: ir.Value, pieces: Sequence[str]) -> ir.Value:
    """Join the pieces of ids (N, n_best, T) to texts (N, n_best).

    The pieces of the end token and of padding are empty.
    """
    # StringJoin crashes the process on an empty tensor: add one sentence, and one blank piece to
    # every sentence.
    padded = op.op("Pad", [ids, _constant(op, "one_more", [0, 0, 0, 1, 0, 1])])
    # StringStrip does not strip a text that has only blanks: its ids become 0, which is padding.
    are_blank = np.array([not piece.strip(string.whitespace) for piece in pieces], "int32")
    blank_ids = op.op("Gather", [_constant(op, "blank_pieces", are_blank), padded])
    # (N+1, n_best, 1)
    is_blank = op.op("ReduceMin", [blank_ids, _constant(op, "last_axis", [2])])
    is_visible = op.op("Sub", [_constant(op, "one_id", np.array(1, "int32")), is_blank])
    visible_ids = op.op("Mul", [padded, is_visible])
    texts = op.op("Gather", [_constant(op, "pieces", np.array(pieces, object)), visible_ids])
    separator = _constant(op, "no_separator", np.array([""], object))
    join_inputs = [texts, separator, _constant(op, "last_axis", [2])]
    joined = op.op("StringJoin", join_inputs, domain=TEXT_OPERATORS)
    stripped = op.op("StringStrip", [joined], domain=TEXT_OPERATORS)
    return op.op("Slice", [stripped, _constant(op, "from", [0]), _constant(op, "to", [-1])])


def write_best_label(
    op: tape.Tape, probabilities: ir.Value, labels: Sequence[str]
) -> tuple[ir.Value, ir.Value]:
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


def _constant(op: tape.Tape, name: str, value: np.ndarray | Sequence[object] | int) -> ir.Value:
    """Return the constant of this name; two tokenizers share the constants that both need."""
    array = np.asarray(value)
    if array.dtype == object:
        encoded = np.vectorize(str.encode, otypes=[object])(array)
        tensor = ir.StringTensor(encoded, shape=ir.Shape(array.shape))
    else:
        tensor = ir.tensor(array)
    existing = op.graph_like.initializers.get(f"text/{name}")
    return existing or op.initializer(tensor, name=f"text/{name}")
