import keras
import numpy as np
import tensorflow as tf
from layer_contract import run_layer_test
from stack_weights import CONFIG, CROSS, stack_weights

from tfk_transformer.layers.decoder import Decoder
from tfk_transformer.layers.masks import beam_mask
from tfk_transformer.layers.ssru import SSRU

B, T, M, D, LONGEST = 2, 7, 3, 5, 17
SHAPES = {"kernel": (D, D), "forget_kernel": (D, D), "forget_bias": (D,)}


def inputs(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def layer(**options):
    made = SSRU(LONGEST, **options)
    made.build((None, None, D))
    random = np.random.default_rng(0)
    made.set_weights([random.normal(size=weight.shape) for weight in made.get_weights()])
    return made


def reference(ssru, x):
    """The formula in float64, position by position."""
    kernel, forget_kernel, forget_bias = (w.astype("float64") for w in ssru.get_weights())
    state, outputs = np.zeros((len(x), D)), []
    for h in np.moveaxis(x.astype("float64"), 1, 0):
        forget = 1 / (1 + np.exp(-(h @ forget_kernel + forget_bias)))
        state = forget * state + (1 - forget) * (h @ kernel)
        outputs.append(np.maximum(state, 0))
    return np.stack(outputs, axis=1)


def test_output_equals_the_recurrence():
    ssru = layer()
    traced = tf.function(ssru.call, input_signature=[tf.TensorSpec((None, None, D))])
    for length in (1, 2, 7, 8, LONGEST):
        x = inputs(B, length, D)
        expected = reference(ssru, x)
        np.testing.assert_allclose(ssru(x), expected, atol=1e-5)
        np.testing.assert_allclose(traced(x), expected, atol=1e-5)


def test_gradient_equals_that_of_steps():
    ssru, x = layer(), inputs(B, T, D)

    def loss(whole):
        if whole:
            return keras.ops.sum(ssru(x) ** 2)
        past, total = np.zeros((B, 1, 0, D), "float32"), 0.0
        for t in range(T):
            output, past = ssru.step(x[:, t : t + 1], past)
            total += keras.ops.sum(output**2)
        return total

    actual = []
    for whole in (True, False):
        with tf.GradientTape() as tape:
            value = loss(whole)
        actual.append(tape.gradient(value, [weight.value for weight in ssru.weights]))
    for one, other in zip(*actual, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_xla_compiles_unknown_lengths():
    ssru, x = layer(), inputs(B, T, D)
    spec = tf.TensorSpec((None, None, D))

    def gradient(x):
        with tf.GradientTape() as tape:
            loss = keras.ops.sum(ssru(x) ** 2)
        return tape.gradient(loss, ssru.kernel.value)

    compiled = tf.function(gradient, input_signature=[spec], jit_compile=True)
    np.testing.assert_allclose(compiled(x), gradient(tf.constant(x)), rtol=1e-4, atol=1e-4)


def test_beams_continue_their_parents():
    ssru, own = layer(), np.array(beam_mask(M))
    x = inputs(3, B, M, D)
    _, first = ssru.step(x[0], np.zeros((B, 1, 0, D), "float32"), own)
    parents = [np.array([2, 0, 2]), np.array([1, 1, 0])]
    lineage = np.concatenate([own[:, :, parents[0]], own], axis=3)
    _, second = ssru.step(x[1], first, lineage)
    lineage = np.concatenate([lineage[:, :, parents[1]], own], axis=3)
    third, state = ssru.step(x[2], second, lineage)
    assert tuple(state.shape) == (B, 1, M, D)
    for beam in range(M):
        before = parents[1][beam]
        rows = np.stack([x[0][:, parents[0][before]], x[1][:, before], x[2][:, beam]], axis=1)
        np.testing.assert_allclose(third[:, beam], reference(ssru, rows)[:, -1], atol=1e-5)


def test_half_precision_state_is_float32():
    ssru, x = layer(dtype="mixed_float16"), inputs(B, T, D)
    past = np.zeros((B, 1, 0, D), "float32")
    for t in range(T):
        output, past = ssru.step(x[:, t : t + 1], past)
        assert (output.dtype, past.dtype) == ("float16", "float32")
        np.testing.assert_allclose(output[:, 0], ssru(x)[:, t], atol=2e-3)


def test_ssru_contract():
    run_layer_test(SSRU, {"max_length": T}, {"x": inputs(B, T, D)}, (B, T, D), SHAPES)


def test_decoder_of_ssrus_contract():
    width = CONFIG.model_dim
    weights = {f"layer_0/ssru/{name}": (width,) * len(shape) for name, shape in SHAPES.items()}
    for name, shape in stack_weights(1, *CROSS).items():
        if "self_attention" not in name:
            weights[name] = shape
    run_layer_test(
        Decoder,
        {
            "options": CONFIG.layer_options(attention_bias=["query"], norm="post"),
            "num_layers": 1,
            "final_norm": True,
            "ssru_max_length": T,
        },
        {"x": inputs(B, T, width), "encoded": inputs(B, 11, width, seed=2)},
        (B, T, width),
        weights,
        {"cross_attention_mask": inputs(B, T, 11, seed=5) > 0},
    )
