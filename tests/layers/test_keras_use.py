"""Layers in functional models and in `keras.Sequential`, and with the arguments of Keras's own."""

import keras
import numpy as np
import pytest
from keras import ops

from tfk_transformer.config.layer_options import LayerOptions
from tfk_transformer.layers.attention import MultiHeadAttention
from tfk_transformer.layers.decoder import Decoder, DecoderLayer
from tfk_transformer.layers.encoder import Encoder, EncoderLayer
from tfk_transformer.layers.masks import causal_mask, padding_mask

OPTIONS = LayerOptions(model_dim=10, num_heads=2, ff_dim=13, dropout=0.0)
IDS = np.array([[4, 5, 6], [7, 8, 0]], "int32")


def reloaded(model, path):
    model.save(path / "model.keras")
    return keras.saving.load_model(path / "model.keras")


def test_masks_of_ids():
    np.testing.assert_array_equal(causal_mask(IDS), causal_mask(3))
    np.testing.assert_array_equal(causal_mask(ops.convert_to_tensor(IDS)), causal_mask(3))
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, [causal_mask(ids), padding_mask(ids)])
    assert [(o.shape, o.dtype, o.sparse) for o in model.outputs] == [
        ((1, 1, None, None), "float32", False),
        ((None, 1, 1, None), "float32", False),
    ]
    causal, padding = model(IDS)
    np.testing.assert_array_equal(causal, causal_mask(3))
    np.testing.assert_array_equal(padding, padding_mask(IDS))


def test_length_of_an_input_is_unknown():
    message = r"^length: .*, got None; pass the ids themselves: causal_mask\(ids\)\.$"
    with pytest.raises(ValueError, match=message):
        causal_mask(ops.shape(keras.Input((None,)))[1])


def functional(cross_attention):
    source, target = (keras.Input((None,), dtype="int32", name=n) for n in ("source", "target"))
    embed = keras.layers.Embedding(29, 10)
    encoder, decoder = Encoder(OPTIONS, 1), Decoder(OPTIONS, 2, cross_attention=cross_attention)
    encoded = encoder(embed(source), attention_mask=padding_mask(source)).output
    decoded = decoder(
        embed(target),
        encoded if cross_attention else None,
        attention_mask=causal_mask(target),
        cross_attention_mask=padding_mask(source) if cross_attention else None,
    )
    inputs = [source, target] if cross_attention else target
    return keras.Model(inputs, decoded.output), embed, encoder, decoder, decoded


def test_functional_encoder_and_decoder(tmp_path):
    model, embed, encoder, decoder, _ = functional(True)
    target = IDS[:, ::-1].copy()
    encoded = encoder(embed(IDS), attention_mask=padding_mask(IDS)).output
    expected = decoder(embed(target), encoded, causal_mask(3), padding_mask(IDS)).output
    np.testing.assert_allclose(model([IDS, target]), expected, atol=1e-6)
    loaded = reloaded(model, tmp_path)
    np.testing.assert_allclose(loaded([IDS, target]), expected, atol=1e-6)


# Keras 3.10 loads a model of one input as a model of a list of inputs.
@pytest.mark.filterwarnings("ignore:[\\s\\S]*The structure of .inputs. doesn't match")
def test_functional_decoder_without_cross_attention(tmp_path):
    model, embed, _, decoder, symbolic = functional(False)
    decoded = decoder(embed(IDS), attention_mask=causal_mask(3))
    assert symbolic.cross_weights == decoded.cross_weights == [(), ()]
    np.testing.assert_allclose(model(IDS), decoded.output, atol=1e-6)
    np.testing.assert_allclose(reloaded(model, tmp_path)(IDS), decoded.output, atol=1e-6)


@pytest.mark.parametrize(
    ("layer_type", "arguments"),
    [
        (EncoderLayer, {}),
        (Encoder, {"num_layers": 1}),
        (DecoderLayer, {"cross_attention": False}),
        (Decoder, {"num_layers": 1, "cross_attention": False}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_sequential_reads_the_output_only(layer_type, arguments, tmp_path):
    layer = layer_type(OPTIONS, **arguments, output_only=True)
    model = keras.Sequential([keras.layers.Embedding(29, 10), layer, keras.layers.Dense(3)])
    outputs = np.array(model(IDS))
    whole = layer_type(OPTIONS, **arguments)
    whole.build((None, None, 10))
    whole.set_weights(layer.get_weights())
    output = whole(model.layers[0](IDS)).output
    np.testing.assert_allclose(model.layers[2](output), outputs, atol=1e-6)
    np.testing.assert_allclose(reloaded(model, tmp_path)(IDS), outputs, atol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
def test_context_of_another_width(shared, tmp_path):
    attention = MultiHeadAttention(2, 3, shared_projections=shared)
    query, context = keras.Input((None, 10)), keras.Input((None, 14))
    model = keras.Model([query, context], attention(query, context).output)
    rows = {False: (2, 14), True: (1, 7)}[shared]
    assert attention.key_weight.shape == attention.value_weight.shape == (*rows, 3)
    random = np.random.default_rng(0)
    inputs = [random.normal(size=(2, 5, 10)), random.normal(size=(2, 7, 14))]
    assert model(inputs).shape == (2, 5, 10)
    np.testing.assert_allclose(reloaded(model, tmp_path)(inputs), model(inputs), atol=1e-6)
    if not shared:
        keras_layer = keras.layers.MultiHeadAttention(2, 3, use_bias=False)
        keras_layer.build((None, None, 10), (None, None, 14))
        names = ("query", "key", "value")
        weights = [np.swapaxes(getattr(attention, f"{n}_weight"), 0, 1) for n in names]
        output = np.reshape(attention.output_weight, (2, 3, 10))
        # Keras lists the value's weights after the key's, or before them.
        by_name = dict(zip(names, weights, strict=True)) | {"attention_output": output}
        for weight in keras_layer.weights:
            weight.assign(by_name[weight.path.split("/")[-2]])
        np.testing.assert_allclose(keras_layer(*inputs), model(inputs), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["value"], "pass keys and values as one tensor, context=value"),
        (["key"], "pass keys and values as one tensor, context=value"),
        (["use_causal_mask"], r"pass attention_mask=causal_mask\(ids\)"),
        (["return_attention_scores"], "the result has them as its field `weights`"),
    ],
)
def test_arguments_of_keras_attention(arguments, remedy):
    x = np.zeros((2, 3, 10), "float32")
    with pytest.raises(ValueError, match=f"^{arguments[0]}: expected .*; {remedy}\\.$"):
        MultiHeadAttention(2, 3)(x, **{arguments[0]: x})


class OwnAttention(MultiHeadAttention):
    def build(self, query_shape, value_shape=None):
        super().build(query_shape, value_shape)

    def call(self, query, value=None):
        return super().call(query, value)


def test_own_attention_may_have_a_value():
    x = np.ones((2, 3, 10), "float32")
    assert OwnAttention(2, 3)(x, value=x).output.shape == (2, 3, 10)


@pytest.mark.parametrize(
    "layer",
    [EncoderLayer(OPTIONS), Encoder(OPTIONS, 1), DecoderLayer(OPTIONS, cross_attention=False)],
    ids=lambda layer: type(layer).__name__,
)
def test_inputs_of_another_width(layer):
    message = "is incompatible with the layer: expected axis -1 of input shape to have value 10, "
    with pytest.raises(ValueError, match=message + r"but received input with shape \(2, 3, 14\)"):
        layer(np.zeros((2, 3, 14), "float32"))


def test_implicit_masks_cause_a_warning():
    """Keras names the layer that ignores the mask of `mask_zero=True`."""
    embedded = keras.layers.Embedding(29, 10, mask_zero=True)(IDS)
    with pytest.warns(UserWarning, match="was passed an input with a mask attached to it"):
        MultiHeadAttention(2, 3)(embedded)
