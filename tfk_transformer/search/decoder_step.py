"""TensorFlow functions of a model's encoder and decoding step, over tensors by name.

Host programs call these functions from their own decoding loop.
"""

import itertools
from collections.abc import Iterable

import tensorflow as tf

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.inference import signatures
from tfk_transformer.inference.step_tensors import STEP_SETTINGS
from tfk_transformer.inference.streaming import Tensors
from tfk_transformer.layers.attention import KeyValue
from tfk_transformer.models.token_model import Step, TokenModel, mean_log_probs
from tfk_transformer.models.transformer import Memory
from tfk_transformer.search.next_token import TokenChoice, num_next_tokens
from tfk_transformer.search.search_state import Limits
from tfk_transformer.search.signature_functions import TensorFlowFunction, tf_function
from tfk_transformer.search.vocabulary import VocabularyBlocks


class StepFunctions:
    """The encoder and the decoding step of a built model, over the tensors of `step_tensors`.

    Weights are read at run time.
    """

    def __init__(self, model: TokenModel) -> None:
        self.members = list(model.named_members().values())
        self.compute_dtype = model.compute_dtype

    def encode(self, source_ids: Tensor) -> Tensors:
        """Return the memory of int32 source ids (N, S), tokens and end token, padded."""
        memories = [member.remember(source_ids) for member in self.members]
        return {
            **_by_name("memory", [memory.layers for memory in memories]),
            "source_mask": memories[0].mask,
        }

    def decoder_step(self, target_ids: Tensor, **tensors: Tensor) -> Tensors:
        """Choose the next token of each row.

        Args:
            target_ids: int32 (N, T), the start token and all tokens so far.
            **tensors: the memory, the cache of T-1 positions, and the settings of `STEP_SETTINGS`.

        Returns:
            float32 logits (N, vocab_size), int32 next_token (N,), its float32 log_prob (N,), and
            the cache of T positions. The logits of an ensemble are its log-probabilities.
        """
        steps = self.steps(target_ids[:, -1:], tf.shape(target_ids)[1] - 1, tensors)
        logits = [step.logits for step in steps]
        vocabulary = VocabularyBlocks.of(self.members[0].config.target_vocab_size)
        output = tf.cast(logits[0], tf.float32) if len(logits) == 1 else mean_log_probs(logits)
        return {
            "logits": output[:, 0],
            **choose_one(vocabulary, target_ids, logits, **tensors),
            **next_cache(steps),
        }

    def steps(
        self, tokens: Tensor, position: Tensor, tensors: Tensors, lineage: Tensor = None
    ) -> list[Step]:
        """Return the decoding step of each member; see `Transformer.step`.

        `tensors` contains the memory and the cache.
        """
        steps = []
        numbers = itertools.count()  # of the layers of all members
        for member in self.members:
            layers = list(itertools.islice(numbers, member.config.decoder_layers))
            memory = None  # of a decoder-only model
            if "source_mask" in tensors:
                keys_and_values = [self._key_value(f"memory_{i}", tensors) for i in layers]
                memory = Memory(keys_and_values, tensors["source_mask"])
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


def next_cache(steps: Iterable[Step]) -> Tensors:
    """Return the cache after a decoding step of each member, by name."""
    return _by_name("next_cache", [step.cache for step in steps])


def _by_name(name: str, members: Iterable[list[Tensor]]) -> Tensors:
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

    Args:
        vocabulary: the vocabulary of the logits.
        target_ids: int32 (N, T), the start token and all tokens so far.
        logits: (N, 1, vocab_size); for an ensemble, a list of logits.
        **settings: tensors by name, which include the `STEP_SETTINGS`.

    Returns:
        int32 next_token (N,), and its float32 log_prob (N,).
    """
    ids = target_ids[:, None]
    step_settings = {name: settings[name] for name in STEP_SETTINGS}
    limits = Limits(**{**SearchSettings(beam_size=1).as_numbers(), **step_settings})
    below_min_length = tf.fill([tf.shape(ids)[0], 1], tf.shape(ids)[2] < limits.min_length)
    k = num_next_tokens(limits, vocabulary.size)
    next_tokens = TokenChoice(limits, vocabulary, below_min_length, k).choose(logits, ids)
    # Not the first of the next tokens, which may be excluded.
    best = tf.argmax(next_tokens.log_probs, axis=-1, output_type=tf.int32)
    log_prob, token = (tf.gather(values, best, batch_dims=2)[:, 0] for values in next_tokens)
    return {"next_token": token, "log_prob": log_prob}


def step_functions(model: TokenModel) -> dict[str, TensorFlowFunction]:
    """Return `encode` and `decoder_step` of a built model as `tf.function`s, by name.

    `inference.signatures` describes their inputs and outputs. A model without an encoder has no
    `encode`.
    """
    steps = StepFunctions(model)
    functions = {}
    if encode := signatures.encode(model.config):
        functions["encode"] = tf_function(steps.encode, encode)
    functions["decoder_step"] = tf_function(
        steps.decoder_step, signatures.decoder_step(model.config)
    )
    return functions
