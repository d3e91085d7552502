"""TensorFlow functions of encoders and decoding steps, for host programs with their own loop."""

import itertools
from collections.abc import Iterable

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.inference import signatures
from tfk_transformer.inference.signatures import STEP_SETTINGS
from tfk_transformer.inference.streaming import Tensors
from tfk_transformer.layers.attention import KeyValue
from tfk_transformer.models.token_model import Step, TokenModel, mean_log_probs
from tfk_transformer.search.next_token import TokenChoice, num_next_tokens
from tfk_transformer.search.search_state import Limits
from tfk_transformer.search.signature_functions import TensorFlowFunction, tf_function
from tfk_transformer.search.vocabulary import VocabularyBlocks


class StepFunctions:
    """The encoder and the decoding step of a built model. Weights are read at run time."""

    def __init__(self, model: TokenModel) -> None:
        self.members = list(model.named_members().values())
        self.compute_dtype = model.compute_dtype

    def encode(self, source_ids: Tensor) -> Tensors:
        """Return the memory of int32 source ids (N, S), tokens and end token, padded."""
        layers, masks = zip(*(member.remember(source_ids) for member in self.members), strict=True)
        return {**tensors_by_name("memory", layers), "source_mask": masks[0]}

    def decoder_step(self, target_ids: Tensor, **tensors: Tensor) -> Tensors:
        """Choose the next token of each row.

        Target ids, int32 (N, T), are the start token and all tokens so far. The tensors are the
        memory, the cache of T-1 positions, and the `STEP_SETTINGS`. Returns float32 logits (N,
        vocab_size), int32 next_token (N,), its float32 log_prob (N,), and the cache of T positions.
        The logits of an ensemble are its log-probabilities.
        """
        steps = self.steps(target_ids[:, -1:], tf.shape(target_ids)[1] - 1, tensors)
        logits = [step.logits for step in steps]
        vocabulary = VocabularyBlocks.of(self.members[0].config.target_vocab_size)
        output = tf.cast(logits[0], tf.float32) if len(logits) == 1 else mean_log_probs(logits)
        return {
            "logits": output[:, 0],
            **choose_one(vocabulary, target_ids, logits, **tensors),
            **tensors_by_name("next_cache", [step.cache for step in steps]),
        }

    def steps(
        self, tokens: Tensor, position: Tensor, tensors: Tensors, lineage: Tensor = None
    ) -> list[Step]:
        """Return the step of each member, from tensors by name; see `Transformer.step`."""
        steps = []
        numbers = itertools.count()  # of the layers of all members
        for member in self.members:
            layers = list(itertools.islice(numbers, member.config.decoder_layers))
            memory = None  # of a decoder-only model
            if "source_mask" in tensors:
                keys_and_values = [self._key_value(f"memory_{i}", tensors) for i in layers]
                memory = keys_and_values, tensors["source_mask"]
            if member.config.has_ssru:
                cache = [tensors[f"cache_{i}_state"] for i in layers]
            else:
                cache = [self._key_value(f"cache_{i}", tensors) for i in layers]
            steps.append(member.step(tokens, position, cache, memory, lineage))
        return steps

    def _key_value(self, name: str, tensors: Tensors) -> KeyValue:
        return KeyValue(
            tf.cast(tensors[f"{name}_key"], self.compute_dtype),
            tf.cast(tensors[f"{name}_value"], self.compute_dtype),
        )


def tensors_by_name(name: str, members: Iterable[list[Tensor]]) -> Tensors:
    """Return the memory or the cache of each member's layers by name."""
    tensors = {}
    for i, layer in enumerate(itertools.chain.from_iterable(members)):
        if isinstance(layer, KeyValue):
            tensors[f"{name}_{i}_key"] = tf.cast(layer.key, tf.float32)
            tensors[f"{name}_{i}_value"] = tf.cast(layer.value, tf.float32)
        else:
            tensors[f"{name}_{i}_state"] = layer
    return tensors


def choose_one(
    vocabulary: VocabularyBlocks, target_ids: Tensor, logits: Tensor, **settings: Tensor
) -> Tensors:
    """Choose the token with which a search of one beam would continue each row.

    Target ids, int32 (N, T), are the start token and all tokens so far. Logits are (N, 1,
    vocab_size), a list for an ensemble. The settings include the `STEP_SETTINGS`. Returns int32
    next_token (N,), and its float32 log_prob (N,).
    """
    ids = target_ids[:, None]
    step_settings = {name: settings[name] for name in STEP_SETTINGS}
    limits = Limits(**{**SearchSettings(beam_size=1).as_numbers(), **step_settings})
    below_min_length = tf.fill([tf.shape(ids)[0], 1, 1], tf.shape(ids)[2] < limits.min_length)
    k = num_next_tokens(limits, vocabulary.size)
    log_probs, tokens = TokenChoice(limits, vocabulary, below_min_length, k).choose(logits, ids)
    # Not the first of the next tokens, which may be excluded.
    best = tf.argmax(log_probs, axis=-1, output_type=tf.int32)
    log_prob, token = (tf.gather(each, best, batch_dims=2)[:, 0] for each in (log_probs, tokens))
    return {"next_token": token, "log_prob": log_prob}


def step_functions(model: TokenModel) -> dict[str, TensorFlowFunction]:
    """Return `encode`, if there is an encoder, and `decoder_step` of a built model by name."""
    steps = StepFunctions(model)
    functions = {}
    if encode := signatures.encode(model.config):
        functions["encode"] = tf_function(steps.encode, encode)
    functions["decoder_step"] = tf_function(
        steps.decoder_step, signatures.decoder_step(model.config)
    )
    return functions
