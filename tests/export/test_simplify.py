import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import parser
from onnx_ir import tape

from tfk_transformer.export.to_onnx import optimize as optimize_module
from tfk_transformer.export.to_onnx.optimize import optimize, share, simplify


@pytest.fixture
def op():
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n", 2]))
    return tape.Tape(ir.Graph([x], [], nodes=[], opset_imports={"": 18}))


def constant(op, name, *values):
    return op.initializer(ir.tensor(np.array(values, "int64")), name=name)


def finished(op, *outputs):
    for number, value in enumerate(outputs):
        value.name = f"output_{number}"
        op.graph_like.outputs.append(value)
    return ir.Model(op.graph_like, ir_version=8)


def operators(model):
    return [node.op_type for node in model.graph]


@pytest.mark.parametrize(
    ("starts", "ends", "left"),
    [((0, 0), (10**9, 10**9), 0), ((0, 1), (10**9, 10**9), 1), ((0, 0), (10**9, 3), 1)],
)
def test_simplify_drops_full_slice(op, starts, ends, left):
    places = (
        constant(op, "starts", *starts),
        constant(op, "ends", *ends),
        constant(op, "axes", 0, 1),
        constant(op, "steps", 1, 1),
    )
    model = finished(op, op.op("Neg", [op.op("Slice", [op.graph_like.inputs[0], *places])]))
    simplify(model)
    assert operators(model) == ["Slice"] * left + ["Neg"]


@pytest.mark.parametrize(
    ("removed", "restored", "left"), [(1, 1, None), (-1, -1, None), (1, 0, "Unsqueeze")]
)
def test_simplify_drops_axes_that_are_removed_and_restored(op, removed, restored, left):
    value = op.op("Squeeze", [op.graph_like.inputs[0], constant(op, "removed", removed)])
    value = op.op("Unsqueeze", [value, constant(op, "restored", restored)])
    model = finished(op, op.op("Neg", [value]))
    simplify(model)
    node = model.graph.node(-1).inputs[0].producer()
    assert (node and node.op_type) == left


@pytest.mark.parametrize("types", [[ir.DataType.INT32, ir.DataType.INT64], [ir.DataType.INT64]])
def test_simplify_drops_casts_of_sizes(op, types):
    size = op.op("Shape", [op.graph_like.inputs[0]])
    for dtype in types:
        size = op.op("Cast", [size], {"to": dtype})
    model = finished(op, op.op("Neg", [size]))
    simplify(model)
    assert model.graph.node(-1).inputs[0].producer().op_type == "Shape"


@pytest.mark.parametrize(
    ("dtype", "compared"), [(ir.DataType.INT32, ["Add", "Cast"]), (ir.DataType.INT64, ["Cast"] * 2)]
)
def test_simplify_compares_integers(op, dtype, compared):
    """tf2onnx casts compared integers to float32."""
    size = op.op("Cast", [op.op("Shape", [op.graph_like.inputs[0]])], {"to": dtype})
    sides = [
        op.op("Cast", [integers], {"to": ir.DataType.FLOAT})
        for integers in (op.op("Add", [size, size]), size)
    ]
    model = finished(op, op.op("Less", sides))
    simplify(model)
    read = [value.producer() for value in model.graph.outputs[0].producer().inputs]
    assert [node.op_type for node in read] == compared
    assert read[1].attributes["to"].as_int() == (dtype if compared[0] == "Add" else 1)


def test_share_merges_equal_nodes(op):
    x = op.graph_like.inputs[0]
    alike = [op.op("ReduceSum", [x], {"keepdims": 0}) for _ in range(2)]
    model = finished(
        op, op.op("Add", [*alike]), op.op("Neg", [op.op("ReduceSum", [x], {"keepdims": 1})])
    )
    share(model.graph)
    assert sorted(operators(model)) == ["Add", "Neg", "ReduceSum", "ReduceSum"]
    (add,) = [node for node in model.graph if node.op_type == "Add"]
    assert add.inputs[0] is add.inputs[1]


def test_loop_invariants_are_hoisted(op):
    """The loop negates x again each time, and adds it n times."""
    x, body = (
        op.graph_like.inputs[0],
        tape.Tape(ir.Graph([], [], nodes=[], opset_imports={"": 18}, name="body")),
    )
    iteration = ir.Value(
        name="iteration", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(())
    )
    going, total = (
        ir.Value(name=name, type=ir.TensorType(kind))
        for name, kind in (("going", ir.DataType.BOOL), ("total", ir.DataType.FLOAT))
    )
    body.graph_like.inputs.extend([iteration, going, total])
    body.graph_like.outputs.extend(
        [body.op("Identity", [going]), body.op("Add", [total, body.op("Neg", [x])])]
    )
    count = op.initializer(ir.tensor(np.array(3)), name="count")
    loop = op.op("Loop", [count, None, x], {"body": body.graph_like})
    model = optimize(finished(op, loop))
    assert operators(model) == ["Neg", "Loop"]
    assert [
        node.op_type
        for node in loop.producer().attributes["body"].as_graph()
        if node.op_type != "Identity"
    ] == ["Add"]


@pytest.mark.parametrize(("count", "left"), [(1_000, ["Mul"]), (5_000, ["Range", "Cast", "Mul"])])
def test_folding_does_not_enlarge_files(op, count, left):
    limits = [op.initializer(ir.tensor(limit), name=f"limit_{limit}") for limit in (0, count, 1)]
    numbers = op.op("Cast", [op.op("Range", limits)], {"to": ir.DataType.FLOAT})
    rows = op.op("Unsqueeze", [numbers, constant(op, "axis", 1)])
    model = optimize(finished(op, op.op("Mul", [op.graph_like.inputs[0], rows])))
    names = [name for name in operators(model) if name != "Unsqueeze"]
    assert names == left


@pytest.mark.parametrize("min_large_elements", [0, 2**25])
def test_matrix_and_its_transpose_stay_two_factors(min_large_elements, monkeypatch):
    """A layer may multiply by a matrix as it is and transposed, in a loop of a loop."""
    monkeypatch.setattr(optimize_module, "MIN_LARGE_ELEMENTS", min_large_elements)
    body = """(int64 i_{0}, bool c_{0}, float[2, 2] s_{0}) => (bool d_{0}, float[2, 2] t_{0}) {{
      d_{0} = Identity(c_{0})
      {1}
    }}"""
    inner = body.format(
        "inner",
        "transposed = Transpose <perm = [1, 0]> (matrix)"
        "product = MatMul(s_inner, matrix)"
        "t_inner = MatMul(product, transposed)",
    )
    outer = body.format("outer", f"t_outer = Loop(once, , s_outer) <body = inner {inner}>")
    text = f"""<ir_version: 8, opset_import: ["": 18]>
      main (float[2, 2] x) => (float[2, 2] y)
      <int64 once = {{1}}, float[2, 2] matrix = {{1, 2, 3, 4}}> {{
        y = Loop(once, , x) <body = outer {outer}>
      }}"""
    model = optimize(ir.from_proto(parser.parse_model(text)))
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    x = np.array([[1, 2], [5, 7]], "float32")
    matrix = np.array([[1, 2], [3, 4]], "float32")
    (y,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, x @ matrix @ matrix.T)
