"""8-bit products: the same sums on every processor, and for every row of a batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx_ir import tape
from random_translators import (
    OPTIONS,
    SIZES,
    V,
    found_by,
    of_transformer,
    opened,
    source_ids,
    translator_of,
)
from tiers import with_long

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.to_onnx.calibration import observe_rows
from tfk_transformer.export.to_onnx.layer_operators.onnx_matmul import CONTRIB
from tfk_transformer.export.to_onnx.layer_operators.operator_writer import OperatorWriter
from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import (
    LARGEST_PAIR,
    RowStatistics,
    WeightRounding,
    rounded_columns,
    row_rounding,
)
from tfk_transformer.export.to_onnx.onnx_models import generate_graph
from tfk_transformer.layers.positions import SINUSOIDS, position_table
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RUN = """
import json, sys
import numpy, onnxruntime
path, inputs = json.load(sys.stdin)
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
arrays = {name: numpy.array(values, dtype) for name, (values, dtype) in inputs.items()}
first = session.run(None, arrays)[0]
print(json.dumps(first.tolist()))
"""


def exact_sums(rows, zero, weights):
    """Return the sums of processors with VNNI, which add in 32 bits.

    The factors are uint8 rows minus their zero, and int8 weights.
    """
    return (rows.astype("int64") - int(zero)) @ weights.astype("int64")


def saturated_sums(rows, zero, weights):
    """Return the sums of other x86 processors, which add pairs of products in 16 bits and cut them.

    This is the instruction VPMADDUBSW of Intel's Software Developer's Manual, volume 2: "adds the
    pairs of signed words and writes the saturated sums". The zero is subtracted afterwards, in 32
    bits.
    """
    products = rows.astype("int64")[:, :, None] * weights.astype("int64")  # (R, rows, columns)
    pairs = (
        np.pad(products, [(0, 0), (0, products.shape[1] % 2), (0, 0)])
        .reshape(len(rows), -1, 2, products.shape[2])
        .sum(axis=2)
    )
    return np.clip(pairs, -(2**15), 2**15 - 1).sum(axis=1) - int(zero) * weights.astype(
        "int64"
    ).sum(axis=0)


def sums_of_onnxruntime(rows, zero, weights, path):
    rows_input = ir.Value(
        name="rows", shape=ir.Shape([None, rows.shape[1]]), type=ir.TensorType(ir.DataType.UINT8)
    )
    graph = ir.Graph([rows_input], [], nodes=[], opset_imports={"": 18}, name="product")
    arrays = {"weights": weights, "zero": np.array(zero, "uint8")}
    constants = [
        ir.Value(name=name, const_value=ir.tensor(array, name=name))
        for name, array in arrays.items()
    ]
    for constant in constants:
        graph.register_initializer(constant)
    sums = tape.Tape(graph).op("MatMulInteger", [rows_input, *constants])
    sums.name, sums.dtype = "sums", ir.DataType.INT32
    graph.outputs.append(sums)
    return opened(ir.Model(graph, ir_version=8), path).run(None, {"rows": rows})[0]


def has_vnni():
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.is_file() and "vnni" in cpuinfo.read_text()


def rows_and_weights(largest=127):
    random = np.random.default_rng(4)
    return random.integers(0, 256, (5, 37)).astype("uint8"), random.integers(
        -largest, largest + 1, (37, 11)
    ).astype("int8")


def test_emulation_matches_onnxruntime(tmp_path):
    rows, weights = rows_and_weights()
    emulated = (exact_sums if has_vnni() else saturated_sums)(rows, 100, weights)
    np.testing.assert_array_equal(
        sums_of_onnxruntime(rows, 100, weights, tmp_path / "product.onnx"), emulated
    )
    assert not np.array_equal(exact_sums(rows, 100, weights), saturated_sums(rows, 100, weights))


def test_large_product_pair_saturates():
    rows, weights = np.array([[255, 255, 1]], "uint8"), np.array([[127], [127], [127]], "int8")
    assert exact_sums(rows, 0, weights) == 255 * 254 + 127
    assert saturated_sums(rows, 0, weights) == 32767 + 127
    assert saturated_sums(rows, 2, weights) == 32767 + 127 - 2 * 381


@pytest.mark.parametrize("rows", [2, 7, 64])
def test_rounded_columns_never_saturate(rows):
    random = np.random.default_rng(rows)
    matrix = (random.normal(size=(rows, 13)) ** 3).astype("float32")
    matrix[:, 5] = 0
    matrix[:2, 6] = 1.0, 1.0  # the pair with the largest sum
    rounded, scale = rounded_columns(matrix, np.eye(rows))
    # The row that makes the sums of each column as large as they can be.
    largest = np.where(rounded > 0, 255, 0).astype("uint8").T
    for extreme in (largest, 255 - largest, np.full_like(largest, 255)):
        np.testing.assert_array_equal(
            saturated_sums(extreme, 128, rounded), exact_sums(extreme, 128, rounded)
        )
    assert (np.abs(rounded * scale - matrix) <= scale / 2 * 1.001).all()
    assert not rounded[:, 5].any()


def test_opposite_signs_keep_8_bits():
    rounded, scale = rounded_columns(np.array([[2.0, 2.0], [-2.0, 2.0]], "float32"), np.eye(2))
    np.testing.assert_array_equal(rounded, [[127, 64], [-127, 64]])
    np.testing.assert_allclose(scale, [2 / 127, 4 / 128])


def test_later_weights_absorb_rounding():
    random = np.random.default_rng(0)
    # Of few directions.
    rows = random.normal(size=(500, 4)) @ random.normal(size=(4, 24)) + 0.1 * random.normal(
        size=(500, 24)
    )
    matrix = random.normal(size=(24, 13)).astype("float32")
    errors = [
        np.abs(rows @ (rounded * scale - matrix)).mean()
        for rounded, scale in (
            rounded_columns(matrix, moments) for moments in (np.eye(24), rows.T @ rows)
        )
    ]
    assert errors[1] < 0.5 * errors[0]
    # Of a product that no sentence reaches.
    rounded, _ = rounded_columns(matrix, np.zeros((24, 24)))
    np.testing.assert_array_equal(rounded, rounded_columns(matrix, np.eye(24))[0])


def gptq(matrix, moments, scale):
    """Algorithm 1 of arXiv:2210.17323 without its blocks, and with the sums of pairs that
    `rounded_columns` allows.
    """
    damped = moments + np.eye(len(moments)) * 0.01 * np.trace(moments) / len(moments)
    factor = np.linalg.cholesky(np.linalg.inv(damped)).T
    left, rounded = matrix / scale.astype("float64"), np.zeros(matrix.shape)
    for row in range(len(left)):
        before = rounded[row - 1] if row % 2 else 0
        lowest, highest = (
            np.maximum(-127, -128 - np.minimum(before, 0)),
            np.minimum(127, 128 - np.maximum(before, 0)),
        )
        rounded[row] = np.clip(np.round(left[row]), lowest, highest)
        left[row + 1 :] -= np.outer(
            factor[row, row + 1 :], (left[row] - rounded[row]) / factor[row, row]
        )
    return rounded


def test_rounded_columns_match_gptq():
    random = np.random.default_rng(1)
    rows = random.normal(size=(500, 7)) @ random.normal(size=(7, 83)) + 0.1 * random.normal(
        size=(500, 83)
    )
    matrix = random.normal(size=(83, 13)).astype("float32")
    rounded, scale = rounded_columns(matrix, rows.T @ rows)
    expected = gptq(matrix, rows.T @ rows, scale)
    # Where float32 and float64 round to different integers, and what follows from it.
    assert np.mean(rounded != expected) < 0.01
    assert np.mean(rounded != np.round(matrix / scale)) > 0.05


def test_row_rounding_uses_whole_range():
    scale, zero = row_rounding(-1.0, 4.1)
    assert (float(scale), int(zero)) == (pytest.approx(0.02), 50)
    assert row_rounding(0.0, 0.0) == (1.0, 0)  # a product of zeros


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)


def int8_graph(translator, kept=()):
    targets = np.random.default_rng(2).integers(3, V, (5, 6)).astype("int32")
    rows = observe_rows(translator.model, source_ids(), targets)
    return generate_graph(translator, rounding=WeightRounding(rows, kept))


@pytest.mark.parametrize("kind", ["mbart", "decoder"])
def test_observed_rows_skip_padding(kind, tokenizer):
    """A batch gives the same rows as its sentences one by one."""
    if kind == "decoder":
        sizes = {name: size for name, size in SIZES.items() if name != "encoder_layers"}
        model = translator_of(tokenizer, LanguageModel, **sizes, vocab_size=V).model
    else:
        model = of_transformer(tokenizer, **OPTIONS[kind]).model
    targets = np.random.default_rng(2).integers(3, V, (5, 6)).astype("int32")
    for target, length in zip(targets, (3, 6, 2, 1, 5), strict=True):
        target[length:] = 0
    together = observe_rows(model, source_ids(), targets)
    sources = [source[None, : np.count_nonzero(source)] for source in source_ids()]
    assert len({source.shape for source in sources}) > 1
    alone = [observe_rows(model, sources[row], targets[[row]]) for row in range(5)]
    for name, actual in together.items():
        low, high, moments = zip(*(sentence[name] for sentence in alone), strict=True)
        assert (actual.low, actual.high) == (
            pytest.approx(min(low), abs=1e-4),
            pytest.approx(max(high), abs=1e-4),
        )
        np.testing.assert_allclose(actual.moments, sum(moments), rtol=1e-4, atol=1e-3)


def weights_of(graph):
    """The int8 weights of every product of integers, in all loop bodies."""
    products = [
        node
        for node in graph.all_nodes()
        if "Integer" in node.op_type or "Quantize" in node.op_type
    ]
    assert {(node.domain, node.op_type) for node in products} == {
        ("", "QuantizeLinear"),
        (CONTRIB, "MatMulIntegerToFloat"),
    }
    return [
        int8_weights(node.inputs[1]) for node in products if node.op_type == "MatMulIntegerToFloat"
    ]


def int8_weights(value):
    """Return the weights of a product; a table is transposed when the file is loaded."""
    producer = value.producer()
    if producer is None:
        return value.const_value.numpy()
    assert producer.op_type in ("Transpose", "Reshape")
    weights = producer.inputs[0].const_value.numpy()
    return weights.T if producer.op_type == "Transpose" else weights


PRODUCTS = {name: OPTIONS[name] for name in ("post", "t5", "umt5", "ssru", "keys_are_values")}


@pytest.mark.parametrize("options", with_long(PRODUCTS, {"umt5", "keys_are_values"}))
def test_int8_weights_never_saturate(options, tokenizer):
    actual = weights_of(int8_graph(of_transformer(tokenizer, **options)).graph)
    encoder_layers = options.get("encoder_layers", 1)
    decoder_layer = 5 if options.get("decoder_mixer") == "ssru" else 6
    gates = encoder_layers + 2 * 2 if options.get("ff_gated") else 0
    # Of the encoder, of the memory, and in both loops of two decoder layers and the output.
    assert len(actual) == encoder_layers * 4 + 2 + 2 * (2 * decoder_layer + 1) + gates
    for weights in actual:
        assert weights.dtype == np.int8
        even = np.pad(weights.astype(int), [(0, len(weights) % 2), (0, 0)])
        for sign in (1, -1):
            assert (
                np.maximum(sign * even[0::2], 0) + np.maximum(sign * even[1::2], 0)
            ).max() <= LARGEST_PAIR
    assert LARGEST_PAIR * 255 <= 2**15 - 1


def test_tied_table_is_in_the_file_once(tokenizer, tmp_path):
    graph = int8_graph(of_transformer(tokenizer, tie_embeddings="all")).graph
    tables = [
        value.name
        for part in (graph, *graph.subgraphs())
        for value in part.initializers.values()
        if value.const_value.dtype == ir.DataType.INT8 and V in value.const_value.shape
    ]
    assert tables == ["source_embedding/embeddings_int8"]
    # onnxruntime prepacks no weights of the main graph for loops in a loop, so the table of a small
    # model is transposed in the loop for greedy search and in the loop for all settings.
    transposed = [
        node
        for node in graph.all_nodes()
        if node.op_type == "Transpose" and node.inputs[0].name == tables[0]
    ]
    assert len(transposed) == 2
    for node in transposed:
        assert {reader.graph for reader, _ in node.outputs[0].uses()} == {node.graph}


def operator_writer(rows=(), **options):
    sizes = SIZES | {"model_dim": 14, "num_heads": 2, "max_length": 200}
    config = TransformerConfig(**sizes, source_vocab_size=V, target_vocab_size=V, **options)
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 18}, name="operators")
    return OperatorWriter(graph, config, config.decoder_options(), {}, WeightRounding(dict(rows)))


@pytest.mark.parametrize("encoding", SINUSOIDS)
def test_sinusoids_are_computed_as_in_keras(encoding, tmp_path):
    writer = operator_writer(positions=encoding, position_offset=2)
    graph = writer.graph
    graph.outputs.append(writer.positions("source"))
    graph.extend(writer.op.nodes)
    (actual,) = opened(ir.Model(graph, ir_version=8), tmp_path / "positions.onnx").run(None, {})
    np.testing.assert_allclose(actual, position_table(encoding, len(actual), 14, 2), atol=1e-7)
    assert len(actual) >= 200
    sizes = [value.const_value.size for value in graph.initializers.values()]
    assert sum(sizes) <= len(actual) + 2 * 14


def test_look_ups_and_products_share_scales():
    writer = operator_writer({"output/table": RowStatistics(-1.0, 1.0, np.eye(14))})
    table = np.random.default_rng(3).normal(size=(6000, 14)).astype("float32")
    writer.matmul.multiply_by_table(ir.Value(name="rows"), "table", table)
    writer.matmul.look_up("table", table, ir.Value(name="ids"), factor=14**0.5)
    constants = writer.graph.initializers.items()
    vectors = [name for name, value in constants if value.const_value.size == len(table)]
    assert vectors == ["output/table_scale"]


def test_int8_of_decoder_only_model(tokenizer, tmp_path):
    sizes = {name: size for name, size in SIZES.items() if name != "encoder_layers"}
    translator = translator_of(
        tokenizer, LanguageModel, **sizes, vocab_size=V, tie_embeddings="all"
    )
    graph = int8_graph(translator)
    assert len(weights_of(graph.graph)) == 2 * 4 + 1
    assert np.isfinite(found_by(opened(graph, tmp_path / "int8.onnx"), {"beam_size": 1})[1]).all()


@pytest.fixture(scope="module")
def int8_file(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("int8") / "int8.onnx"
    ir.save(int8_graph(of_transformer(tokenizer)), path)
    return path


@pytest.mark.parametrize("beam_size", [1, 3])
def test_int8_rows_are_independent(beam_size, int8_file):
    session = open_session(int8_file)
    settings = {"beam_size": np.array(beam_size, "int32")}
    ids, scores = session.run(["ids", "scores"], {"source_ids": source_ids(), **settings})
    for row, source in enumerate(source_ids()):
        alone, score = session.run(
            ["ids", "scores"], {"source_ids": source[None, : np.count_nonzero(source)], **settings}
        )
        np.testing.assert_array_equal(alone[0, 0], ids[row, 0, : alone.shape[2]])
        np.testing.assert_array_equal(score[0], scores[row])


@pytest.mark.parametrize(
    "additions",
    [
        {},
        *(
            pytest.param(additions, marks=pytest.mark.long)  # 16,000 searches each
            for additions in ({"source_prefix": (5,)}, {"source_suffix": (5, 6)})
        ),
    ],
)
def test_int8_scores_ignore_padding(additions, tokenizer, tmp_path):
    """onnxruntime adds the products of 4k + 3 numbers in another order than of 4k + 5."""
    sizes = {"model_dim": 64, "num_heads": 2, "max_length": 12}
    session = opened(
        int8_graph(of_transformer(tokenizer, **sizes, **additions)), tmp_path / "int8.onnx"
    )
    length = 11 - sum(map(len, additions.values()))
    sources = np.random.default_rng(length).integers(4, V, (8000, length)).astype("int32")
    padded = np.pad(sources, [(0, 0), (0, 2)])
    settings = {"beam_size": np.array(1, "int32"), "max_length": np.array(4, "int32")}
    scores, scores_of_padded = (
        session.run(["scores"], {"source_ids": rows, **settings})[0] for rows in (sources, padded)
    )
    np.testing.assert_array_equal(scores, scores_of_padded)


def test_int8_scores_stay_close(tokenizer, tmp_path):
    translator = of_transformer(tokenizer)
    settings = {"beam_size": 1, "max_length": 1}
    portable = generate_graph(translator)
    expected = found_by(opened(portable, tmp_path / "portable.onnx"), settings)[1]
    rounded, kept = (
        found_by(opened(int8_graph(translator, parts), tmp_path / f"{name}.onnx"), settings)[1]
        for name, parts in (("rounded", ()), ("kept", ("/",)))
    )
    assert 1e-5 < np.abs(expected - rounded).max() < 0.3  # the same on every processor
    np.testing.assert_allclose(kept, expected, atol=0.1)  # the table is looked up in int8


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The library that hides instructions, see `benchmarks/processors.c`."""
    path = tmp_path_factory.mktemp("processors") / "processors.so"
    try:
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", "-o", path, BENCHMARKS / "processors.c"],
            check=True,
            capture_output=True,
        )
        subprocess.run(
            [sys.executable, "-c", ""],
            env={**os.environ, "LD_PRELOAD": str(path), "HIDE": "vnni"},
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(
            f"needs Linux on x86-64, a C compiler, and a processor that can trap CPUID: {error}"
        )
    return path


def run_without(library, hidden, path, inputs):
    """The first output of an ONNX file in a process that does not find some instructions."""
    request = json.dumps(
        [str(path), {name: (array.tolist(), str(array.dtype)) for name, array in inputs.items()}]
    )
    environment = {**os.environ, "LD_PRELOAD": str(library), "HIDE": hidden}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=request,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return np.array(json.loads(done.stdout))


@pytest.mark.parametrize("hidden", ["vnni", "avx512"])
def test_sums_without_vnni_saturate(hidden, library, tmp_path):
    rows, weights = rows_and_weights()
    sums_of_onnxruntime(rows, 100, weights, tmp_path / "product.onnx")
    np.testing.assert_array_equal(
        run_without(library, hidden, tmp_path / "product.onnx", {"rows": rows}),
        saturated_sums(rows, 100, weights),
    )


@pytest.mark.parametrize("hidden", ["vnni", "avx512"])
def test_processors_give_same_ids(hidden, library, int8_file):
    session = open_session(int8_file)
    inputs = {
        "source_ids": source_ids(),
        "beam_size": np.array(3, "int32"),
        "n_best": np.array(3, "int32"),
    }
    np.testing.assert_array_equal(
        run_without(library, hidden, int8_file, inputs),
        session.run(["ids"], inputs)[0],
    )
