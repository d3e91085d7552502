"""The five presets of published descriptions, compared with their formulas in NumPy, and the errors
in those descriptions.
"""

import functools
import re

import numpy as np
import pytest
import tensorflow as tf
from seed_references import (
    PROBABILITIES,
    REFERENCES,
    loss,
    paper_sinusoids,
    softmax,
    transformer_details,
    yet_another_classifier,
    yet_another_decoder,
)
from tiers import with_long

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.models.registry import CONFIGS, make_model
from tfk_transformer.models.transformer import Transformer

# Each size is a prime of its own, so that swapped axes cannot pass; two layers below, three above.
B, H, S, T, D, K, V, F = 2, 3, 5, 7, 11, 13, 17, 19
SOURCE_VOCAB_SIZE, TARGET_VOCAB_SIZE, MAX_LENGTH = 23, 29, 31
SIZES = {
    "source_vocab_size": SOURCE_VOCAB_SIZE,
    "target_vocab_size": TARGET_VOCAB_SIZE,
    "max_length": MAX_LENGTH,
    "model_dim": D,
    "num_heads": H,
    "key_dim": K,
    "value_dim": V,
    "ff_dim": F,
    "encoder_layers": 2,
    "decoder_layers": 3,
}
CASES = {
    "yet_another_explanation": ("yet_another_explanation", {}),
    "from_zero": ("from_zero", {"key_dim": V}),  # its values are its keys
    "step_by_step": ("step_by_step", {}),
    "step_by_step_pre": ("step_by_step", {"norm": "pre"}),
    "step_by_step_halves": ("step_by_step", {"positions": "sinusoidal_halves"}),
    "transformer_details": ("transformer_details", {}),
    # Each head reads a slice, D wide.
    "from_scratch_pytorch": ("from_scratch_pytorch", {"model_dim": H * D}),
}
every_case = pytest.mark.parametrize("name", CASES)


def padded_ids(vocab_size, length, kept, seed):
    made = np.random.default_rng(seed).integers(1, vocab_size, (B, length)).astype("int32")
    made[1, kept:] = 0
    return made


SOURCE = padded_ids(SOURCE_VOCAB_SIZE, S, 3, seed=0)
TARGET = padded_ids(TARGET_VOCAB_SIZE, T, 4, seed=1)
LABELS = padded_ids(TARGET_VOCAB_SIZE, T, 4, seed=2)
INPUTS = {"source": SOURCE, "target": TARGET}


def draw(path, shape):
    """Draw a weight that keeps values near 1 in size; the path is the seed, so the order of weights
    is free.
    """
    noise = np.random.default_rng(list(path.encode())).normal(size=shape)
    name = path.split("/")[-1]
    if name in ("embeddings", "table"):
        return 0.5 * noise * np.where(np.arange(shape[0]) % 2, 0.04, 1.0)[:, None]
    # Small rows above, and a small input of the second layers' last norm below: there the norm's
    # epsilon shows.
    size = (
        0.05
        if re.search("layer_1/(attention_residual|cross_residual|feed_forward/outer)", path)
        else 1.0
    )
    if name == "gamma":
        return size * (1 + 0.2 * noise)
    return size * noise * (0.3 if name == "beta" or name.endswith("bias") else shape[-2] ** -0.5)


def short_path(weight):
    return weight.path.split("/", 1)[1]


@functools.cache
def built(name):
    preset, options = CASES[name]
    model = Transformer(TransformerConfig.preset(preset, **{**SIZES, **options}))
    model.build()
    model.set_weights([draw(short_path(weight), weight.shape) for weight in model.weights])
    return model


def weights_of(name):
    return {short_path(weight): np.array(weight, "float64") for weight in built(name).weights}


@functools.cache
def expected(name):
    return REFERENCES[name](weights_of(name), SOURCE, TARGET)


@functools.cache
def attention_maps(name):
    return built(name).attention_maps(INPUTS)


def assert_same_rows(ours, theirs, ids):
    """Compare what stands at real tokens; the axis of the sequence comes second."""
    np.testing.assert_allclose(
        np.array(ours)[ids != 0], np.array(theirs)[ids != 0], rtol=0, atol=1e-5
    )


def by_token(attention, axis):
    return np.moveaxis(np.array(attention), axis, 1)


@every_case
def test_encoder_equals_formula(name):
    assert_same_rows(built(name).encode(SOURCE).output, expected(name).encoder_output, SOURCE)


@every_case
@pytest.mark.parametrize(
    ("part", "ids"),
    [("encoder", SOURCE), ("decoder", TARGET), ("cross", TARGET)],
    ids=["encoder", "decoder", "cross"],
)
def test_heads_equal_the_formula(name, part, ids):
    theirs = getattr(expected(name), f"{part}_weights")
    assert len(theirs) == SIZES["encoder_layers" if part == "encoder" else "decoder_layers"]
    for ours, layer in zip(getattr(attention_maps(name), part), theirs, strict=True):
        assert_same_rows(by_token(ours, 2), by_token(layer, 2), ids)  # (B, T, H, S)


@every_case
def test_no_head_attends_to_padding(name):
    maps = attention_maps(name)
    for layer in [*maps.encoder, *maps.cross]:
        np.testing.assert_array_equal(by_token(layer, 3)[SOURCE == 0], 0.0)


@every_case
def test_decoder_equals_formula(name):
    assert_same_rows(built(name).decode(INPUTS).output, expected(name).decoder_output, TARGET)


@every_case
def test_output_equals_formula(name):
    assert_same_rows(built(name)(INPUTS), expected(name).output, TARGET)
    assert (built(name).config.output == "probabilities") == (name in PROBABILITIES)


@every_case
def test_future_changes_no_past_output(name):
    target = TARGET.copy()
    target[:, 3] = target[:, 3] % (TARGET_VOCAB_SIZE - 1) + 1
    plain, changed = (
        np.array(built(name)({"source": SOURCE, "target": ids})) for ids in (TARGET, target)
    )
    np.testing.assert_allclose(changed[:, :3], plain[:, :3], rtol=0, atol=1e-6)
    assert np.abs(changed[:, 3] - plain[:, 3]).max() > 1e-3


@every_case
def test_padding_sentence_is_finite(name):
    # "Yet another explanation" hides with minus infinity, of which the softmax of a row without any
    # token makes NaN.
    padded = np.array(
        built(name)({key: np.pad(ids, [(0, 1), (0, 0)]) for key, ids in INPUTS.items()})
    )
    assert np.isfinite(padded).all()
    np.testing.assert_allclose(padded[:B], built(name)(INPUTS), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("architecture", "own_sizes", "reference", "rows"),
    [
        ("decoder", {"vocab_size": TARGET_VOCAB_SIZE}, yet_another_decoder, TARGET),
        (
            "encoder",
            {"vocab_size": SOURCE_VOCAB_SIZE, "num_classes": 37},
            yet_another_classifier,
            SOURCE,
        ),
    ],
)
def test_single_stacks_equal_formulas(architecture, own_sizes, reference, rows):
    config = CONFIGS[architecture]
    sizes = {name: size for name, size in SIZES.items() if name in config.model_fields}
    model = make_model(config.preset("yet_another_explanation", **sizes, **own_sizes))
    model.set_weights([draw(short_path(weight), weight.shape) for weight in model.weights])
    theirs = reference(
        {short_path(weight): np.array(weight, "float64") for weight in model.weights}, rows
    )
    real = rows != 0 if architecture == "decoder" else slice(None)
    np.testing.assert_allclose(np.array(model(rows))[real], theirs[real], rtol=0, atol=1e-5)


# Gradients.


def gradients_of(model):
    """Return the gradient of the training loss by path."""
    crossentropy = LabelSmoothedCrossentropy(
        0.0, from_logits=model.config.output != "probabilities"
    )
    with tf.GradientTape() as tape:
        value = crossentropy(LABELS, model(INPUTS))
    gradients = tape.gradient(value, [weight.value for weight in model.trainable_weights])
    return {
        short_path(w): np.array(tf.convert_to_tensor(g))
        for w, g in zip(model.trainable_weights, gradients, strict=True)
    }


def slope(name, weights, path, index, step=1e-6):
    """Return how fast the reference's loss grows with one element: a central difference."""
    losses = []
    for sign in (1, -1):
        moved = weights[path].copy()
        moved[index] += sign * step
        losses.append(loss(name, {**weights, path: moved}, SOURCE, TARGET, LABELS))
    return (losses[0] - losses[1]) / (2 * step)


def rows_in_use(path, shape):
    """Return the first indices that the inputs touch: of a vocabulary, the ids; of a table of
    positions, the longest sentence.
    """
    side = SOURCE if path.startswith("source") else TARGET
    if path.endswith("embeddings"):
        return np.unique(side[side != 0])
    return np.arange(side.shape[1] if path.endswith("table") else shape[0])


def kind_of(path):
    return re.sub(r"layer_\d+", "layer", path)


def sampled(weights, count=6):
    """Pick elements of every kind of weight, a kind being a path without its layer's number."""
    kinds = {}
    for path in sorted(weights):
        kinds.setdefault(kind_of(path), []).append(path)
    for kind, paths in kinds.items():
        random = np.random.default_rng(list(kind.encode()))
        for _ in range(count):
            path = str(random.choice(paths))
            shape = weights[path].shape
            yield (
                path,
                (
                    int(random.choice(rows_in_use(path, shape))),
                    *(int(random.integers(size)) for size in shape[1:]),
                ),
            )


# A difference quotient of many weights each. The short cases have a norm before the sublayers, and
# one after them.
SHORT = {"yet_another_explanation", "step_by_step"}


@pytest.mark.parametrize("name", with_long({name: name for name in CASES}, {*CASES} - SHORT))
def test_gradients_equal_formulas(name):
    weights, gradients = weights_of(name), gradients_of(built(name))
    elements = list(sampled(weights))
    ours = np.array([gradients[path][index] for path, index in elements])
    theirs = np.array([slope(name, weights, path, index) for path, index in elements])
    # The difference quotient is good to about 1e-9, so what remains is float32: gradients are sums
    # of a few dozen terms below 1, each off by 1e-7 of itself. A key bias has the gradient 0, for a
    # softmax does not change when all scores of a row move alike.
    wrong = ~np.isclose(ours, theirs, rtol=1e-3, atol=1e-6)
    assert [(*elements[i], ours[i], theirs[i]) for i in np.flatnonzero(wrong)] == []
    alive = {
        kind_of(path)
        for (path, _), value in zip(elements, theirs, strict=True)
        if abs(value) > 1e-5
    }
    assert {kind for kind in map(kind_of, weights) if not kind.endswith("key_bias")} == alive


# Masks that the caller gives.


@every_case
def test_equal_mask_changes_nothing(name):
    given = built(name)({**INPUTS, "source_mask": (SOURCE != 0).astype("int32")})
    np.testing.assert_allclose(given, built(name)(INPUTS), rtol=0, atol=1e-6)


def test_mask_can_hide_a_token():
    seen = (SOURCE != 0).astype("int32")
    seen[0, 2] = 0
    hidden = transformer_details(
        weights_of("transformer_details"), SOURCE, TARGET, source_mask=seen
    )
    assert_same_rows(
        built("transformer_details")({**INPUTS, "source_mask": seen}), hidden.output, TARGET
    )
    assert np.abs(hidden.output - expected("transformer_details").output)[0].max() > 0.01


# What the descriptions get wrong, or leave open.


def test_multiplied_mask_leaks_future():
    # "From zero" hides with softmax(M S / sqrt(l)): a hidden score becomes 0, and exp(0) = 1 is a
    # share like any other. Here every score of the first token is 0, so its output is a third of
    # each value, the last one included.
    def first_output(x):
        return (softmax(np.tri(3) * (x @ x.T) / np.sqrt(2)) @ x)[0]

    x = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(first_output(x), [2.0, 0.0])
    x[2] = [0.0, 9.0]
    np.testing.assert_allclose(first_output(x), [2.0, 3.0])


def test_transposed_softmax_looks_ahead():
    # "From zero" normalizes rows and then takes softmax(S)^T V: the weights of one output are a
    # column, and do not sum to 1; under the mask that hides later columns they are those of the
    # token itself and all later ones.
    scores = np.random.default_rng(0).normal(size=(4, 4)) + (1 - np.tri(4)) * -1e9
    transposed = softmax(scores).T
    assert np.abs(transposed.sum(-1) - 1).min() > 0.1
    np.testing.assert_array_equal(np.tril(transposed, -1), 0.0)
    assert transposed[0].min() > 0.05


def test_untransposed_heads_scramble():
    # "Yet another explanation", section 2.2, views (B, H, S, K) as (B, S, H*K); its listing in
    # section 4 transposes first.
    heads = np.arange(B * H * S * K).reshape(B, H, S, K)
    joined = np.concatenate([heads[:, h] for h in range(H)], axis=-1)  # (B, S, H*K)
    np.testing.assert_array_equal(heads.transpose(0, 2, 1, 3).reshape(B, S, H * K), joined)
    assert (heads.reshape(B, S, H * K) == joined).all(axis=(0, 2)).sum() == 0


def doubled_sinusoids(length, width):
    """Compute the table of "From scratch using Pytorch", whose i already counts columns and is
    doubled all the same.
    """
    pos, table = np.arange(length), np.zeros((length, width))
    for i in range(0, width, 2):
        table[:, i] = np.sin(pos / 10000 ** (2 * i / width))
        table[:, i + 1] = np.cos(pos / 10000 ** (2 * (i + 1) / width))
    return table


def test_doubled_exponents_differ():
    difference = np.abs(doubled_sinusoids(MAX_LENGTH, 10) - paper_sinusoids(MAX_LENGTH, 10)).max(
        axis=0
    )
    assert difference[0] == 0
    assert difference[1:].min() > 1e-4


def test_last_token_alone_forgets():
    # The loop of "From scratch using Pytorch" feeds each new token alone, always at position 0.
    weights, reference = weights_of("from_scratch_pytorch"), REFERENCES["from_scratch_pytorch"]
    whole, alone = (
        reference(weights, SOURCE[:1], ids).output[0, -1] for ids in (TARGET[:1], TARGET[:1, -1:])
    )
    assert np.abs(whole - alone).max() > 0.02


def test_batch_softmax_predicts_zero():
    # PyTorch's softmax without `dim` takes axis 0 of three: of a batch of one, every "probability"
    # is 1, hence the printed zeros.
    output = softmax(np.log(expected("from_scratch_pytorch").output[:1]), axis=0)
    np.testing.assert_array_equal(output, 1.0)
    np.testing.assert_array_equal(output.argmax(-1), 0)


@pytest.mark.parametrize(
    ("decoder_layers", "lowest", "highest"), [(1, 0.0, 1e-12), (2, 0.01, np.inf), (3, 0.01, np.inf)]
)
def test_inference_needs_causal_mask(decoder_layers, lowest, highest):
    # "Transformer Details", section 1.5, says it does not, for only the last row is used. True of
    # one layer; in a stack, earlier rows are the next layer's keys and values, and without the mask
    # they have seen tokens that came after them.
    dropped = tuple(
        f"decoder/layer_{layer}/" for layer in range(decoder_layers, SIZES["decoder_layers"])
    )
    weights = {
        path: array
        for path, array in weights_of("transformer_details").items()
        if not path.startswith(dropped)
    }
    masked, open_ = (
        transformer_details(weights, SOURCE[:1], TARGET[:1], look_ahead=look).output[0, -1]
        for look in (True, False)
    )
    assert lowest <= np.abs(masked - open_).max() <= highest
