"""A model's encoder and decoding step over tensors by name, as TensorFlow functions, for host programs that run the loop themselves."""

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SETTING_DTYPES, SearchSettings
from tfk_transformer.generation.beam_search import Limits
from tfk_transformer.generation.next_token import choose
from tfk_transformer.generation.tracing import traced
from tfk_transformer.inference.step_tensors import STEP_SETTINGS, cache_shapes, memory_shapes
from tfk_transformer.inference.streaming import StepModel, Tensors
from tfk_transformer.inference.token_scoring import padded_ids
from tfk_transformer.layers.attention import KeyValue
from tfk_transformer.models.base import TokenModel
from tfk_transformer.models.transformer import Memory
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer


class StepFunctions:
    """The encoder and the decoding step of a built model, over the tensors of `step_tensors`; weights are read at run time."""

    def __init__(self, model: TokenModel) -> None:
        self.model = model

    def encode(self, source_ids: Tensor) -> Tensors:
        """Return the memory of int32 source ids (N, S), tokens and end token, padded."""
        layers, mask = self.model.remember(source_ids)
        return {**_by_name("memory", layers), "source_mask": mask}

    def decoder_step(self, target_ids: Tensor, **tensors: Tensor) -> Tensors:
        """Choose the next token of each row.

        Args:
            target_ids: int32 (N, T), the start token and all tokens so far.
            **tensors: the memory, the cache of T-1 positions, and the settings of `STEP_SETTINGS`.

        Returns:
            float32 logits (N, vocab_size), int32 next_token (N,), its float32 log_prob (N,), and the cache of T positions.
        """
        position, cache = tf.shape(target_ids)[1] - 1, self._layers("cache", tensors)
        logits, cache, _ = self.model.step(target_ids[:, -1:], position, cache, self._memory(tensors))
        log_prob, token = _chosen(logits, target_ids[:, None], tensors)
        chosen = {"logits": tf.cast(logits[:, 0], tf.float32), "next_token": token, "log_prob": log_prob}
        return {**chosen, **_by_name("next_cache", cache)}

    def _memory(self, tensors: Tensors) -> Memory | None:
        return Memory(self._layers("memory", tensors), tensors["source_mask"]) if "source_mask" in tensors else None

    def _layers(self, name: str, tensors: Tensors) -> list[KeyValue]:
        layers = range(self.model.config.decoder_layers)
        return [KeyValue(tensors[f"{name}_{i}_key"], tensors[f"{name}_{i}_value"]) for i in layers]


def _by_name(name: str, layers: list[KeyValue]) -> Tensors:
    return {f"{name}_{i}_{part}": tensor for i, layer in enumerate(layers) for part, tensor in layer._asdict().items()}


def _chosen(logits: Tensor, ids: Tensor, tensors: Tensors) -> tuple[Tensor, Tensor]:
    """Return the log-probability (N,) and the token (N,) with which a search of one beam would continue ids (N, 1, T)."""
    settings = {**SearchSettings(beam_size=1).model_dump(), **{name: tensors[name] for name in STEP_SETTINGS}}
    too_short = tf.fill([tf.shape(ids)[0], 1], tf.shape(ids)[2] < settings["min_length"])
    choices = choose(logits, ids, Limits(**settings), too_short)
    best = tf.argmax(choices.log_probs, axis=-1, output_type=tf.int32)  # an excluded token may stand before it
    log_prob, token = (tf.gather(values, best, batch_dims=2)[:, 0] for values in choices)
    return log_prob, token


def keras_steps(model: TokenModel, source_tokenizer: SubwordTokenizer, target_tokenizer: SubwordTokenizer) -> StepModel:
    """Return the functions of a Keras model that streaming calls."""
    functions = StepFunctions(model)
    encode = traced(functions.encode, [tf.TensorSpec([None, None], tf.int32)])
    step = traced(lambda tensors: functions.decoder_step(**tensors), [_specs(model)])
    return StepModel(
        tokenize=lambda text: padded_ids(source_tokenizer.encode([text])),
        encode=encode if memory_shapes(model.config) else None,
        first_cache=lambda rows: _by_name("cache", model.decoder.empty_cache(rows)),
        step=lambda tensors: step({name: tf.convert_to_tensor(tensor) for name, tensor in tensors.items()}),
        pieces=target_tokenizer.pieces(),
        max_length=model.config.max_length,
    )


def _specs(model: TokenModel) -> dict[str, tf.TensorSpec]:
    """Return the specs of a step's inputs; keys and values have the model's compute dtype."""
    specs = {"target_ids": tf.TensorSpec([None, None], tf.int32)}
    for name, shape in {**memory_shapes(model.config), **cache_shapes(model.config)}.items():
        dtype = "float32" if name == "source_mask" else model.compute_dtype
        specs[name] = tf.TensorSpec([size if isinstance(size, int) else None for size in shape], dtype)
    return {**specs, **{name: tf.TensorSpec([], SETTING_DTYPES[name]) for name in STEP_SETTINGS}}
