import math

import keras
import numpy as np
import pytest
from layer_contract import run_layer_test

from tfk_transformer.layers.positions import Positions, position_table, sinusoids

# D is twice a prime, since sinusoids come in pairs.
B, T, M, D, LONGEST = 2, 3, 5, 14, 11
KINDS = ["sinusoidal", "sinusoidal_halves", "sinusoidal_paper_halves", "learned"]


def inputs(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def layer(kind, **options):
    made = Positions(kind, LONGEST, **options)
    made.build((None, None, D))
    if kind == "learned":
        made.set_weights([inputs(LONGEST, D, seed=7)])
    return made


def reference(length, model_dim):
    """The paper's formula, number by number."""
    table = np.zeros((length, model_dim))
    for position in range(length):
        for i in range(model_dim // 2):
            angle = position / 10000 ** (2 * i / model_dim)
            table[position, 2 * i] = math.sin(angle)
            table[position, 2 * i + 1] = math.cos(angle)
    return table


def test_sinusoids_equal_the_paper():
    table = sinusoids(257, D)
    assert table.dtype == np.float32
    np.testing.assert_allclose(table, reference(257, D), atol=1e-6)


def test_sinusoids_by_hand():
    # D = 4: angles p and p / 100.
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.84147098, 0.54030231, 0.00999983, 0.99995000],
        [0.90929743, -0.41614684, 0.01999867, 0.99980001],
    ]
    np.testing.assert_allclose(sinusoids(3, 4), expected, atol=1e-7)


def halves(length, model_dim):
    """tensor2tensor's formula, number by number: the last of its frequencies is 1 / 10000, the
    paper's is above that.
    """
    pairs = model_dim // 2
    waves = [
        [p / math.exp(i * math.log(10000) / (pairs - 1)) for i in range(pairs)]
        for p in range(length)
    ]
    return np.array([[*map(math.sin, row), *map(math.cos, row)] for row in waves])


def test_halves_are_sine_then_cosine():
    np.testing.assert_allclose(sinusoids(257, D, halves=True), halves(257, D), atol=1e-6)


def test_odd_widths_of_sinusoids():
    table = np.zeros((7, 5))
    table[:, :4] = reference(7, 5)[:, :4]
    table[:, 4] = [math.sin(p / 10000**0.8) for p in range(7)]
    np.testing.assert_allclose(sinusoids(7, 5), table, atol=1e-6)
    np.testing.assert_allclose(
        sinusoids(7, 5, halves=True), np.pad(halves(7, 4), [(0, 0), (0, 1)]), atol=1e-6
    )


def test_scale_and_dropout_apply():
    x = inputs(B, T, D)
    scaled = layer("sinusoidal", scale=True)
    np.testing.assert_allclose(scaled(x), x * D**0.5 + reference(T, D), atol=1e-5)
    np.testing.assert_allclose(scaled.at(x, 2), x * D**0.5 + reference(T, D)[2], atol=1e-5)
    wide = inputs(101, T, D)
    whole, dropped = (
        layer("sinusoidal", dropout=0.5)(wide),
        np.array(layer("sinusoidal", dropout=0.5)(wide, training=True)),
    )
    assert 0.4 < np.mean(dropped == 0) < 0.6
    np.testing.assert_allclose(dropped[dropped != 0], 2 * np.array(whole)[dropped != 0], rtol=1e-5)


@pytest.mark.parametrize("width", [2, 5, 14])
def test_paper_halves_frequencies(width):
    """Number by number; an odd width has one sine more."""
    sines, cosines = -(-width // 2), width // 2
    angles = [[p / 10000 ** (2 * i / width) for i in range(sines)] for p in range(257)]
    expected = [[*map(math.sin, row), *map(math.cos, row[:cosines])] for row in angles]
    np.testing.assert_allclose(
        position_table("sinusoidal_paper_halves", 257, width), expected, atol=1e-6
    )


def test_positions_may_be_offset():
    x = inputs(B, T, D)
    np.testing.assert_allclose(
        layer("sinusoidal", offset=2)(x), x + reference(T + 2, D)[2:], atol=1e-6
    )
    np.testing.assert_allclose(
        layer("sinusoidal_halves", offset=2).at(x, 3), x + halves(6, D)[5], atol=1e-6
    )


def test_the_sum_can_be_normalized():
    x = inputs(B, T, D)
    positions = layer("sinusoidal", norm=True, epsilon=1e-3)
    gamma, beta = inputs(2, D, seed=4)
    positions.set_weights([gamma, beta])
    total = x + reference(T, D)
    centered = total - total.mean(axis=-1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-3) * gamma + beta
    np.testing.assert_allclose(positions(x), expected, atol=1e-5)
    np.testing.assert_allclose(positions.at(x[:, 1:2], 1), expected[:, 1:2], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_prefix_extends_the_table(kind):
    positions, x = Positions(kind, LONGEST, prefix=2), inputs(B, LONGEST + 2, D)
    output = positions(x)
    assert positions.table.shape == (LONGEST + 2, D)
    np.testing.assert_allclose(output, x + np.array(positions.table), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_refusal_counts_no_prefix(kind):
    positions = Positions(kind, LONGEST, prefix=2)
    with pytest.raises(ValueError, match="expected at most max_length=11 tokens, got 12"):
        positions(inputs(B, LONGEST + 3, D))


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("sinusoidal", [0.0, 1.0] * (D // 2)),
        ("sinusoidal_halves", [0.0] * (D // 2) + [1.0] * (D // 2)),
        ("sinusoidal_paper_halves", [0.0] * (D // 2) + [1.0] * (D // 2)),
    ],
)
def test_position_zero_by_kind(kind, row):
    np.testing.assert_array_equal(layer(kind)(np.zeros((1, 1, D), "float32"))[0, 0], row)


@pytest.mark.parametrize("length", [T, LONGEST])
def test_call_adds_the_first_rows(length):
    x = inputs(B, length, D)
    np.testing.assert_allclose(layer("sinusoidal")(x), x + reference(length, D), atol=1e-6)
    np.testing.assert_allclose(layer("sinusoidal_halves")(x), x + halves(length, D), atol=1e-6)
    learned = layer("learned")
    np.testing.assert_array_equal(learned(x), x + learned.get_weights()[0][:length])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_single_position_equals_call(kind, dtype):
    positions = layer(kind, dtype=dtype)
    x = keras.ops.cast(inputs(B, M, D), positions.compute_dtype)
    for position in range(LONGEST):
        sequence = np.zeros((B, LONGEST, D), "float32")
        sequence[:, position] = keras.ops.cast(x[:, 2], "float32")
        row = positions(keras.ops.cast(sequence, positions.compute_dtype))[:, position]
        np.testing.assert_array_equal(
            keras.ops.cast(positions.at(x, position)[:, 2], "float32"),
            keras.ops.cast(row, "float32"),
        )


@pytest.mark.parametrize("kind", KINDS)
def test_all_beams_share_a_position(kind):
    positions, x = layer(kind), inputs(B, M, D)
    row = np.array(positions(np.zeros((1, LONGEST, D), "float32")))[0, 7]
    np.testing.assert_allclose(positions.at(x, np.int32(7)), x + row, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_mixed_precision_dtype(kind):
    output = layer(kind, dtype="mixed_bfloat16")(inputs(B, T, D))
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"


def test_only_learned_table_is_weight():
    assert [(w.name, tuple(w.shape), w.trainable) for w in layer("learned").weights] == [
        ("table", (LONGEST, D), True)
    ]
    assert layer("sinusoidal").weights == layer("sinusoidal_halves").weights == []


def test_learned_table_starts_small():
    keras.utils.set_random_seed(0)
    positions = Positions("learned", 401)
    positions.build((None, None, 64))
    assert np.std(positions.get_weights()[0]) == pytest.approx(64**-0.5, rel=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_longer_sequence_is_refused(kind):
    positions = layer(kind)
    with pytest.raises(
        ValueError,
        match=(
            "sequence length: expected at most max_length=11 tokens, got 12; shorten it or "
            "raise max_length."
        ),
    ):
        positions(inputs(B, LONGEST + 1, D))


def test_lengths_may_be_unknown():
    sequence = keras.Input((None, D))
    model = keras.Model(sequence, layer("sinusoidal")(sequence))
    assert model.output_shape == (None, None, D)
    np.testing.assert_allclose(model(np.zeros((B, T, D), "float32"))[1], reference(T, D), atol=1e-6)


NORM = {"table": (LONGEST + 2, D), "norm/gamma": (D,), "norm/beta": (D,)}


@pytest.mark.parametrize(
    ("kind", "options", "weights"),
    [
        ("sinusoidal_halves", {"offset": 2}, {}),
        ("learned", {"norm": True, "epsilon": 1e-5, "prefix": 2}, NORM),
    ],
)
def test_positions_layer_contract(kind, options, weights):
    arguments = {"kind": kind, "max_length": LONGEST, "scale": True, "dropout": 0.1, **options}
    run_layer_test(Positions, arguments, {"embedded": inputs(B, T, D)}, (B, T, D), weights)
