"""Rewrite converted graphs, with onnx-ir."""

import itertools

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common as passes
from onnxscript import optimizer

# The passes of `onnxscript.optimizer.optimize` without its rewriting rules, which take the longest
# time and match nothing here.
CLEAN_UP = ir.passes.Sequential(
    passes.RemoveUnusedNodesPass(),
    passes.RemoveUnusedOpsetsPass(),  # tf2onnx declares ai.onnx.ml in every file
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
    passes.LiftSubgraphInitializersToMainGraphPass(),
    passes.DeduplicateInitializersPass(),
    passes.CommonSubexpressionEliminationPass(),
    passes.OutputFixPass(),
    passes.NameFixPass(),
)
MAX_REPEATED_ELEMENTS = 64  # elements of constants that may be in a file more than once
MAX_FOLDED_ELEMENTS = 1024  # by which folding may enlarge a file
INT32_OPERATORS = ("Shape", "Size", "TopK", "ArgMax")  # operators whose integers fit into 32 bits
MAX_COPIED_ELEMENTS = 2**24  # of matrices that several graphs read and onnxruntime prepacks
MIN_LARGE_ELEMENTS = 2**25  # of all weights of a model whose memory counts more than a step's time
PRODUCTS = ("MatMul", "MatMulIntegerToFloat", "Gemm")  # their second input is a matrix of weights
COMPARISONS = ("Less", "Greater", "LessOrEqual", "GreaterOrEqual")
# Operators whose results have the type of an input: the second of Where, the first of others.
KEEP_TYPE = ("Add", "Identity", "Pad", "ReduceSum", "Sub", "Unsqueeze", "Where")
COMPARABLE = (int, float, str, tuple)  # types of attributes that can be compared
MIN_OPEN_END = 10**9  # tf2onnx writes a larger number if a slice has no end


def optimize(model: ir.Model) -> ir.Model:
    """Move invariants out of loops, fold constants and remove unused nodes."""
    for loop in [node for node in model.graph.all_nodes() if node.op_type == "Loop"]:
        # onnxruntime requires that the iteration and the condition are scalars, and the conversion
        # loses their shapes in nested loops.
        for value in loop.attributes["body"].as_graph().inputs[:2]:
            value.shape = ir.Shape(())
        _hoist_invariants(loop)
    _fold_constants(model)
    simplify(model)
    _hoist_nodes(model.graph)
    share(model.graph)
    _fold_constants(model)
    _move_into_branches(model.graph)
    _copy_constants_into_branches(model.graph)
    elements = sum(value.const_value.size for value in model.graph.initializers.values())
    _place_matrices(model.graph, model.graph, is_large=elements >= MIN_LARGE_ELEMENTS)
    share(model.graph)  # one copy of a matrix in each graph
    # Remove constants that are no longer read, because onnxruntime warns about them.
    passes.RemoveUnusedNodesPass()(model)
    _copy_outputs_that_branches_read(model.graph)
    _shorten_names(model.graph)
    return model


def _fold_constants(model: ir.Model) -> None:
    optimizer.fold_constants(
        model,
        onnx_shape_inference=False,
        input_size_limit=2**40,
        output_size_limit=MAX_FOLDED_ELEMENTS,
        should_fold=lambda node: False if _repeats_weights(node) else None,
    )
    CLEAN_UP(model)


def _repeats_weights(node: ir.Node) -> bool:
    """Return whether a node only reorders weights that the file also has as they are."""
    if node.op_type not in ("Transpose", "Unsqueeze"):
        return False
    weights = node.inputs[0]
    if weights is None or weights.const_value is None:
        return False
    if weights.const_value.dtype == ir.DataType.INT8:
        return node.op_type == "Transpose"
    return len(weights.uses()) > 1 and len(weights.const_value.shape) > 1


def _hoist_nodes(graph: ir.Graph) -> None:
    """Move operators that read no value of a loop's body before the loop.

    They also leave branches that the usual settings take. Operators of rare branches would then run
    in every search, where they are not needed. Inner loops come before outer loops.
    """
    for loop in list(graph):
        for body in bodies(loop):
            _hoist_nodes(body)
        if loop.op_type == "Loop":
            body = loop.attributes["body"].as_graph()
            graphs = [body, *body.subgraphs()]
            for node in _usual_nodes(body):
                if bodies(node) or node.outputs[0].is_graph_output() or _repeats_weights(node):
                    continue
                if not any(value is not None and value.graph in graphs for value in node.inputs):
                    node.graph.remove(node)
                    graph.insert_before(loop, node)


def _usual_nodes(graph: ir.Graph) -> list[ir.Node]:
    """Return the nodes of a graph and of the branches that the usual settings take."""
    nodes = []
    for node in graph:
        nodes.append(node)
        if node.op_type == "If":  # the condition says whether rare settings are used
            nodes += _usual_nodes(node.attributes["else_branch"].as_graph())
    return nodes


def _move_into_branches(graph: ir.Graph) -> None:
    """Move operators whose results only one branch reads into that branch, which may not run."""
    branch_of: dict[int, ir.Graph] = {}  # by the identity of the branch and of the graphs in it
    for node in graph:
        for branch in bodies(node) if node.op_type == "If" else ():
            branch_of |= {id(part): branch for part in (branch, *branch.subgraphs())}
    for node in reversed(list(graph)):  # readers before the nodes that they read
        if bodies(node) or any(value.is_graph_output() for value in node.outputs):
            continue
        uses = itertools.chain.from_iterable(value.uses() for value in node.outputs)
        readers = {id(reader.graph) for reader, _ in uses}
        branches = {id(branch_of[i]): branch_of[i] for i in readers if i in branch_of}
        if len(branches) == 1 and readers <= branch_of.keys():
            (branch,) = branches.values()
            graph.remove(node)
            branch.insert_before(branch[0], node)
    for node in list(graph):
        for body in bodies(node):
            _move_into_branches(body)


def _place_matrices(main: ir.Graph, graph: ir.Graph, is_large: bool) -> None:
    """Let products in loops multiply by copies of matrices, which onnxruntime prepacks.

    It prepacks constants of a product's own graph and of the graph around it, and folds the copies
    to such constants. It keeps a constant of a loop in memory next to the prepacked matrix, which
    all products share. So a large model has one copy of each matrix, around its loops. Others have
    a copy in each loop: onnxruntime plans the memory of a step ahead only if all values from around
    the loop exist, which prepacked matrices do not.
    """
    for node in list(graph):
        for body in bodies(node):
            _place_matrices(main, body, is_large)
            for product in list(body) if graph is not main else ():
                copy = _copy_of_matrix(main, product)
                if copy is not None:
                    reader = node if is_large else product
                    reader.graph.insert_before(reader, copy)
                    product.replace_input_with(1, copy.outputs[0])


def _copy_of_matrix(main: ir.Graph, product: ir.Node) -> ir.Node | None:
    """Return a node that transposes or copies the matrix of the file that a product reads."""
    if product.op_type not in PRODUCTS:
        return None
    factor = product.inputs[1]
    node = factor.producer()
    if node is not None and node.op_type == "Transpose" and node.inputs[0].is_initializer():
        return ir.Node("", "Transpose", node.inputs, node.attributes.values())
    if not factor.is_initializer():
        return None
    readers = {id(reader.graph) for reader, _ in factor.uses()}
    if len(readers) > 1 and factor.const_value.size > MAX_COPIED_ELEMENTS:
        return None
    name = f"{factor.name}/shape"
    if name not in main.initializers:
        shape = ir.tensor([*factor.const_value.shape], ir.DataType.INT64)
        main.register_initializer(ir.Value(name=name, const_value=shape))
    return ir.node("Reshape", [factor, main.initializers[name]])


def _copy_constants_into_branches(graph: ir.Graph) -> None:
    """Copy small constants, except defaults of inputs, into the branches that read them.

    Each value from outside of a branch takes onnxruntime time whenever it enters the branch.
    """
    small = {
        value
        for value in graph.initializers.values()
        if not value.is_graph_input() and value.const_value.size <= MAX_REPEATED_ELEMENTS
    }
    ifs = [node for node in graph.all_nodes() if node.op_type == "If"]
    for number, branch in enumerate(itertools.chain.from_iterable(map(bodies, ifs))):
        for node in branch:
            for i, value in enumerate(node.inputs):
                if value in small:
                    name = f"{value.name}/branch_{number}"
                    if name not in branch.initializers:
                        copy = ir.Value(name=name, const_value=value.const_value)
                        branch.register_initializer(copy)
                    node.replace_input_with(i, branch.initializers[name])


def _copy_outputs_that_branches_read(graph: ir.Graph) -> None:
    """Copy each output of a loop's body that a branch in the body reads, too.

    OpenVINO takes such a value for an output of the branch if it reads the file itself.
    """
    for loop in [node for node in graph.all_nodes() if node.op_type == "Loop"]:
        body = loop.attributes["body"].as_graph()
        for i, value in enumerate(body.outputs):
            if any(reader.graph is not body for reader, _ in value.uses()):
                copy = ir.Value(name=f"{value.name}/copy", type=value.type, shape=value.shape)
                body.append(ir.node("Identity", [value], outputs=[copy]))
                body.outputs[i] = copy


def _shorten_names(graph: ir.Graph) -> None:
    """Remove the suffixes of TensorFlow's inlining, which are a fifth of a small file."""
    declared = (*graph.inputs, *graph.outputs)
    used_names = {value.name for value in declared}
    done = {id(value) for value in declared}
    graphs = (graph, *graph.subgraphs())
    values = list(itertools.chain.from_iterable(part.initializers.values() for part in graphs))
    for node in graph.all_nodes():
        values += itertools.chain(node.outputs, *(body.inputs for body in bodies(node)))
    for value in values:
        if value.name and id(value) not in done:
            short = value.name.partition("_tfg_")[0]
            numbered = (f"{short}.{number}" for number in itertools.count(1))
            names = itertools.chain([short], numbered)
            value.name = next(name for name in names if name not in used_names)
            used_names.add(value.name)
            done.add(id(value))
    for node in graph.all_nodes():
        node.name = None


def _hoist_invariants(loop: ir.Node) -> None:
    """Remove loop state that does not change; the body reads it from the outer graph.

    tf2onnx makes weights and the source's keys and values part of the state, which onnxruntime
    passes through every iteration.
    """
    body = loop.attributes["body"].as_graph()
    # Inputs of a loop: (count, condition, state…); of its body: (iteration, condition, state…)
    state = range(len(loop.inputs) - 2)
    fixed = [i for i in state if body.outputs[i + 1] is body.inputs[i + 2]]
    changing = [i for i in state if i not in fixed]
    fixed_inputs = {i: body.inputs[i + 2] for i in fixed}
    for values, offset in ((body.inputs, 2), (body.outputs, 1)):
        scans = values[len(state) + offset :]
        values[:] = [*values[:offset], *(values[i + offset] for i in changing), *scans]
    for i in fixed:
        ir.convenience.replace_all_uses_with(fixed_inputs[i], loop.inputs[i + 2])
        ir.convenience.replace_all_uses_with(loop.outputs[i], loop.inputs[i + 2])
    inputs = [*loop.inputs[:2], *(loop.inputs[i + 2] for i in changing)]
    outputs = [*(loop.outputs[i] for i in changing), *loop.outputs[len(state) :]]
    attributes = list(loop.attributes.values())
    changed = ir.Node("", "Loop", inputs, attributes, num_outputs=len(outputs))
    ir.convenience.replace_nodes_and_values(
        loop.graph, loop, [loop], [changed], outputs, changed.outputs
    )


def bodies(node: ir.Node) -> list[ir.Graph]:
    """Return the bodies of a loop or the branches of an If, in the order of their names."""
    attributes = [attribute for _, attribute in sorted(node.attributes.items())]
    return [
        attribute.as_graph() for attribute in attributes if attribute.type == ir.AttributeType.GRAPH
    ]


def simplify(model: ir.Model) -> None:
    """Remove slices of whole axes, axes that are removed and restored, and needless casts.

    Results do not change.
    """
    for node in list(model.graph.all_nodes()):
        if node.op_type in COMPARISONS:
            _compare_integers(node)
        if _is_cast_back(node):
            node.replace_input_with(0, _integers_of(node))
        elif _is_unsqueeze_back(node):
            node.replace_input_with(0, node.inputs[0].producer().inputs[0])
        elif not _is_whole_slice(node):
            continue
        if not node.outputs[0].is_graph_output():
            ir.convenience.replace_all_uses_with(node.outputs[0], node.inputs[0])
            node.graph.remove(node, safe=True)


def share(graph: ir.Graph) -> None:
    """Merge nodes of one graph, loop body or branch that compute the same from the same values."""
    first_nodes: dict[tuple[object, ...], ir.Node] = {}
    for node in list(graph):
        for body in bodies(node):
            share(body)
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        is_comparable = all(isinstance(value, COMPARABLE) for value in attributes.values())
        if not is_comparable or any(value.is_graph_output() for value in node.outputs):
            continue
        inputs = tuple(map(id, node.inputs))
        key = (node.domain, node.op_type, inputs, tuple(sorted(attributes.items())))
        first = first_nodes.setdefault(key, node)
        if first is not node:
            ir.convenience.replace_all_uses_with(node.outputs, first.outputs)
            graph.remove(node, safe=True)


def _is_whole_slice(node: ir.Node) -> bool:
    if node.op_type != "Slice":
        return False
    get = ir.convenience.get_const_tensor
    tensors = [None if value is None else get(value) for value in node.inputs[1:]]
    arrays = [None if tensor is None else tensor.numpy() for tensor in tensors]
    starts, ends, _, *steps = arrays
    if starts is None or ends is None:
        return False
    if not all(step is not None and np.all(step == 1) for step in steps):
        return False
    return bool(np.all(starts == 0) and np.all(ends >= MIN_OPEN_END))


def _is_unsqueeze_back(node: ir.Node) -> bool:
    """Whether a node restores the axes that the node before it removes."""
    value = node.inputs[0] if node.op_type == "Unsqueeze" else None
    producer = value.producer() if value is not None else None
    if producer is None or producer.op_type != "Squeeze":
        return False
    axes = [ir.convenience.get_const_tensor(each.inputs[1]) for each in (node, producer)]
    return None not in axes and np.array_equal(*(tensor.numpy() for tensor in axes))


def _compare_integers(node: ir.Node) -> None:
    """Let a comparison read 32-bit integers, which tf2onnx casts to float32 for old operators."""
    casts = [value.producer() for value in node.inputs if value is not None]
    integers = [cast.inputs[0] for cast in casts if cast is not None and cast.op_type == "Cast"]
    if [value and _type(value) for value in integers] == [ir.DataType.INT32] * 2:
        for i, value in enumerate(integers):
            node.replace_input_with(i, value)


def _type(value: ir.Value) -> ir.DataType | None:
    """Return the type of a value, from operators that keep it if the conversion lost it."""
    node = value.producer()
    if value.dtype is not None or node is None:
        return value.dtype
    if node.op_type == "Cast":
        return ir.DataType(node.attributes["to"].as_int())
    kept = node.inputs[1 if node.op_type == "Where" else 0]
    return _type(kept) if node.op_type in KEEP_TYPE and kept is not None else None


def _is_cast_back(node: ir.Node) -> bool:
    """Whether a node casts a size or an index to 64 bits, directly or from 32 bits."""
    if node.op_type != "Cast" or node.attributes["to"].as_int() != ir.DataType.INT64:
        return False
    producer = _integers_of(node).producer()
    return producer is not None and producer.op_type in INT32_OPERATORS


def _integers_of(cast: ir.Node) -> ir.Value:
    """Return what a cast to 64 bits reads, or what a cast to 32 bits before it reads."""
    value = cast.inputs[0]
    producer = value.producer()
    if producer is not None and producer.op_type == "Cast":
        if producer.attributes["to"].as_int() == ir.DataType.INT32:
            return producer.inputs[0]
    return value
