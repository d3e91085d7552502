"""Models with changes that a program may make, to be saved, and loaded by another process.

A change is `(make, outcome)`: the outcome is EQUAL, or a part of the one line of the refusal.
"""

import types

import keras
import numpy as np
from keras import ops

from tfk_transformer.config.model_options import (
    ClassifierConfig,
    LanguageModelConfig,
    TransformerConfig,
)
from tfk_transformer.layers.attention import MultiHeadAttention
from tfk_transformer.layers.encoder import Encoder, EncoderLayer
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.models.ensemble import Ensemble
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.transformer import Transformer

B, S, T, V, C = 2, 5, 7, 15, 3
SIZES = {"model_dim": 6, "num_heads": 2, "ff_dim": 11, "max_length": 13, "dropout": 0.1}
SIDES = {"source_vocab_size": V, "target_vocab_size": V}
CONFIG = TransformerConfig(**SIDES, encoder_layers=1, decoder_layers=1, **SIZES)
TWO_LAYERS = CONFIG.replace(encoder_layers=2)
TIED = CONFIG.replace(tie_embeddings="target")
LANGUAGE_MODEL = LanguageModelConfig(vocab_size=V, decoder_layers=1, **SIZES)
CLASSIFIER = ClassifierConfig(vocab_size=V, num_classes=C, encoder_layers=1, **SIZES)
registered = keras.saving.register_keras_serializable("changed_models")
EQUAL = "equal"


def logits_of(model):
    """Return the predictions of a model for fixed ids, float32."""
    random = np.random.default_rng(5)
    source, target = (random.integers(1, V, (B, n)).astype("int32") for n in (S, T))
    source[1, 3:] = 0
    inputs = {"source": source, "target": target}
    single = {"decoder": target, "encoder": source}
    output = model(single.get(model.config.architecture, inputs), training=False)
    return np.asarray(ops.convert_to_numpy(output), "float32")


def randomized(model):
    """Give every weight of a model, biases included, values that matter, and return the model."""
    model.build()
    random = np.random.default_rng(3)
    model.set_weights(
        [w + random.normal(scale=0.3, size=w.shape).astype("float32") for w in model.get_weights()]
    )
    return model


class SharperAttention(MultiHeadAttention):
    def attend(self, query, context, attention_mask=None, training=None):
        return super().attend(2.0 * query, context, attention_mask, training)


class SharperLayer(EncoderLayer):
    attention_type = SharperAttention


class SharperEncoder(Encoder):
    layer_type = SharperLayer


class Unregistered(Transformer):
    encoder_type = SharperEncoder


@registered
class Sharper(Transformer):
    encoder_type = SharperEncoder


class OwnTrainStep(Transformer):
    def train_step(self, *arguments):
        return super().train_step(*arguments)


@registered
class RegisteredTrainStep(OwnTrainStep):
    pass


@registered
class WithArgument(Transformer):
    def __init__(self, config, temperature=1.0, **kwargs):
        super().__init__(config, **kwargs)
        self.temperature = temperature

    def logits(self, decoded):
        return super().logits(decoded) / self.temperature

    def get_config(self):
        return {**super().get_config(), "temperature": self.temperature}


@registered
class WithoutKeywords(Transformer):
    encoder_type = SharperEncoder

    def __init__(self, config):
        super().__init__(config)


@registered
class ForgottenArgument(WithArgument):
    def get_config(self):
        return Transformer.get_config(self)


@registered
class ObjectAsArgument(WithArgument):
    def get_config(self):
        return {**super().get_config(), "temperature": np.float32(self.temperature)}


@registered
class WithConvolution(Transformer):
    names = {"name": "convolution"}
    builds = True

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        width = config.model_dim
        self.convolution = keras.layers.Conv1D(width, 3, padding="same", **self.names)

    def build(self, input_shape=None):
        super().build(input_shape)
        if self.builds:
            self.convolution.build((None, None, self.config.model_dim))

    def encode(self, source, training=None, attention_mask=None):
        encoded = super().encode(source, training, attention_mask)
        return encoded._replace(output=self.convolution(encoded.output))


@registered
class LateConvolution(WithConvolution):
    builds = False


@registered
class NamelessConvolution(WithConvolution):
    names = {}


class UnregisteredConvolution(WithConvolution):
    pass


@registered
class WithBatchNorm(Transformer):
    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.batch_norm = keras.layers.BatchNormalization(name="batch_norm")

    def build(self, input_shape=None):
        super().build(input_shape)
        self.batch_norm.build((None, None, self.config.model_dim))

    def encode(self, source, training=None, attention_mask=None):
        encoded = super().encode(source, training, attention_mask)
        return encoded._replace(output=self.batch_norm(encoded.output, training=training))


@registered
class SharperLanguageModel(LanguageModel):
    def logits(self, decoded):
        return 2.0 * super().logits(decoded)


@registered
class SharperClassifier(EncoderClassifier):
    encoder_type = SharperEncoder

    def call(self, inputs, training=None):
        return 2.0 * super().call(inputs, training)


@registered
class SharperEnsemble(Ensemble):
    def call(self, inputs, training=None, with_output=False):
        return 2.0 * super().call(inputs, training, with_output)


def changed(change, config=CONFIG, model_type=Transformer):
    """Return a function that makes a model, and then changes it."""

    def make():
        model = randomized(model_type(config))
        change(model)
        return model

    return make


def assembled(change, config=CONFIG):
    """Return a function that makes a model, and changes it before it is built."""

    def make():
        model = Transformer(config)
        change(model)
        return randomized(model)

    return make


def plain(config=CONFIG, model_type=Transformer, **kwargs):
    return lambda: randomized(model_type(config, **kwargs))


def fitted(model):
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["mae"])
    model.add_metric = keras.metrics.Mean("own")  # tracked, with two variables
    model.add_metric.update_state(3.0)


def freeze(model):
    model.encoder.trainable = False
    model.target_embedding.trainable = False


def set_dropout(model):
    model.encoder.layers[0].attention_residual.residual_dropout = keras.layers.Dropout(0.5)


def enable_lora(model):
    for layer, role in (
        (model.encoder.layers[-1].feed_forward.inner, "kernel"),
        (model.target_embedding, "embeddings"),
    ):
        layer.enable_lora(2, lora_alpha=3)
        weight = getattr(layer, f"lora_{role}_b")
        weight.assign(np.random.default_rng(7).normal(size=weight.shape))


def quantize(model, mode="int8"):
    feed_forward = model.encoder.layers[-1].feed_forward
    for layer in (feed_forward.inner, feed_forward.outer):
        layer.quantize(mode)  # it collects all garbage, which takes a third of a second


def lora_then_int8(model):
    enable_lora(model)
    quantize(model)


def regularize(model):
    model.encoder.layers[0].feed_forward.inner.kernel_regularizer = keras.regularizers.L2(0.1)


def replace_attention(model):
    layer = model.encoder.layers[0]
    layer.attention = SharperAttention.from_config(layer.attention.get_config())


def patch_call(model):
    model.call = types.MethodType(
        lambda self, inputs, training=None: 2.0 * Transformer.call(self, inputs, training), model
    )


def patch_step(model):
    step = model.decoder.step
    model.decoder.step = lambda x, *rest, **named: step(2.0 * x, *rest, **named)


def set_scale(model):
    model.decoder.layers[0].cross_attention.scale = "key_dim"


def set_activation(model):
    model.encoder.layers[-1].feed_forward.inner.activation = keras.activations.tanh


def set_epsilon(model):
    model.encoder.layers[0].ff_residual.layer_norm.epsilon = 0.5


def pop_layer(model):
    model.encoder.layers.pop()
    model.encoder.num_layers -= 1


def share_embeddings(model):
    model.source_embedding = model.target_embedding


def untie(model):
    model.projection.tied = False


def wrap(model):
    layer = model.encoder.layers[0].feed_forward
    layer.inner = keras.layers.SpectralNormalization(layer.inner, name="inner")


def add_layer(model):
    model.adapter = keras.layers.Dense(3, name="adapter")
    model.adapter.build((None, 7))


def set_positions(model):
    model.source_positions.table = 2.0 * model.source_positions.table


def set_config(model):
    model.config = model.config.replace(scale_embeddings=False)


def ensemble(change=lambda model: None, model_type=Ensemble):
    def make():
        model = model_type([randomized(Transformer(CONFIG)), Transformer(TIED)])
        change(model.members[1])
        return model

    return make


UNREGISTERED = "register the class with @keras.saving.register_keras_serializable"
SUBCLASS = "put the change into a subclass, registered with @keras.saving.register_keras_seri"
ARGUMENTS = "`get_config` must return the arguments of the constructor"
CHANGES = {
    "none": (plain(), EQUAL),
    "not built": (lambda: Transformer(CONFIG), EQUAL),
    "unregistered train_step": (plain(model_type=OwnTrainStep), EQUAL),
    "registered train_step": (plain(model_type=RegisteredTrainStep), EQUAL),
    "registered layers": (plain(model_type=Sharper), EQUAL),
    "registered layers, bfloat16": (plain(model_type=Sharper, dtype="mixed_bfloat16"), EQUAL),
    "argument": (plain(model_type=WithArgument, temperature=0.5), EQUAL),
    "convolution": (plain(model_type=WithConvolution), EQUAL),
    "batch norm": (plain(model_type=WithBatchNorm), EQUAL),
    "language model": (plain(LANGUAGE_MODEL, SharperLanguageModel), EQUAL),
    "classifier": (plain(CLASSIFIER, SharperClassifier), EQUAL),
    "ensemble": (ensemble(), EQUAL),
    "subclass of ensemble": (ensemble(model_type=SharperEnsemble), EQUAL),
    "frozen": (changed(freeze), EQUAL),
    "fitted, own metric": (assembled(fitted), EQUAL),
    "dropout": (assembled(set_dropout), EQUAL),
    "renamed": (plain(name="my_model"), EQUAL),
    "regularizer": (changed(regularize), EQUAL),
    "bfloat16": (plain(dtype="mixed_bfloat16"), EQUAL),
    "float16": (plain(dtype="float16"), EQUAL),
    "LoRA": (changed(enable_lora, TWO_LAYERS), EQUAL),
    "LoRA, tied": (changed(enable_lora, TIED), EQUAL),
    "LoRA, subclass": (changed(enable_lora, model_type=WithConvolution), EQUAL),
    "int8": (changed(quantize), EQUAL),
    "int8 and LoRA": (changed(lora_then_int8), EQUAL),
    "int8, ensemble": (ensemble(quantize), EQUAL),
    "int4": (changed(lambda model: quantize(model, "int4")), "is quantized to int4, not int8"),
    "unregistered layers": (
        plain(model_type=Unregistered),
        f"layer_./attention' is a SharperAttention, and .*{UNREGISTERED}",
    ),
    "unregistered convolution": (plain(model_type=UnregisteredConvolution), UNREGISTERED),
    "convolution not built": (plain(model_type=LateConvolution), "weights .* unexpected 'conv"),
    "convolution without a name": (plain(model_type=NamelessConvolution), "in layers with names"),
    "no keywords": (plain(model_type=WithoutKeywords), f"unexpected keyword .*{ARGUMENTS}"),
    "forgotten argument": (plain(model_type=ForgottenArgument, temperature=0.5), ARGUMENTS),
    "object as argument": (plain(model_type=ObjectAsArgument), f"TypeError: .*{ARGUMENTS}"),
    "replaced layer": (assembled(replace_attention), f"is a SharperAttention, .*{SUBCLASS}"),
    "patched call": (changed(patch_call), SUBCLASS),
    "patched step": (changed(patch_step), SUBCLASS),
    "scale": (changed(set_scale), SUBCLASS),
    "activation": (changed(set_activation), SUBCLASS),
    "epsilon": (changed(set_epsilon), SUBCLASS),
    "popped layer": (assembled(pop_layer, TWO_LAYERS), f"no 'encoder/layer_1/.*{SUBCLASS}"),
    "shared embeddings": (assembled(share_embeddings), "weights differ: no 'source_embedding/emb"),
    "untied": (assembled(untie, TIED), "unexpected 'output/kernel'"),
    "spectral norm": (assembled(wrap), "is a SpectralNormalization, and its weights differ"),
    "unused layer": (assembled(add_layer), "weights differ: an unexpected 'adapter/kernel'"),
    "positions": (changed(set_positions), "its outputs differ"),
    "configuration": (changed(set_config), "its outputs differ"),
    "scale of a member": (ensemble(set_scale), SUBCLASS),
}
# Changes of the same kind as others, which are tested in every run.
LONG = {
    "not built",
    "batch norm",
    "ensemble",
    "bfloat16",
    "int4",
    "unregistered convolution",
    "convolution without a name",
    "object as argument",
    "patched step",
    "shared embeddings",
    "untied",
    "positions",
    "registered train_step",
    "registered layers, bfloat16",
    "subclass of ensemble",
    "frozen",
    "dropout",
    "renamed",
    "regularizer",
    "float16",
    "LoRA, tied",
    "LoRA, subclass",
    "int8 and LoRA",
    "int8, ensemble",
    "scale",
    "activation",
    "epsilon",
    "spectral norm",
    "unused layer",
    "configuration",
    "scale of a member",
}
