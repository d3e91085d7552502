"""The encoder-decoder model: embeddings, encoder, decoder, and the projection to the vocabulary.

A model can read further tokens with every source and target, such as the language tokens of M2M100.
Its inputs and outputs do not contain these tokens. The encoder reads a source's suffix first, so
that it is at one place in rows of all lengths, but with positions after the source. The first
decoding step decodes the target's prefix together with the start token. P is the number of tokens
of a prefix, which includes the suffix of a source.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.layers.attention import Attended, KeyValue
from tfk_transformer.layers.decoder import Decoded
from tfk_transformer.layers.masks import HIDDEN, additive_mask, causal_mask
from tfk_transformer.models.checked_batches import LABELS_NAME, IdRange
from tfk_transformer.models.token_model import Step, Stepper, TokenModel


class Memory(NamedTuple):
    """The keys and values of the encoder's output, to which every decoding step attends."""

    layers: list[KeyValue]  # for each decoder layer keys (B, H, S, K) and values (B, H, S, V)
    mask: Tensor  # float32 (B, 1, 1, S); S includes the source's additions


class AttentionMaps(NamedTuple):
    """The attention weights of every layer, float32.

    They sum to 1 over the last axis, except that the weights of a model's prefixes and suffix are
    left out.
    """

    encoder: list[Tensor]  # (B, H, S, S)
    decoder: list[Tensor]  # (B, H, T, T); (B, 0, T, T) with SSRUs, which have no heads
    cross: list[Tensor]  # (B, H, T, S)


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Transformer(TokenModel):
    """The encoder-decoder Transformer of "Attention Is All You Need" (arXiv:1706.03762).

    Called with {"source": ids (B, S), "target": ids (B, T)}, it returns the logits (B, T,
    target_vocab_size) of the token that follows each target position, in the compute dtype. With
    `output="probabilities"` it returns their softmax in float32. Id 0 is padding on both sides,
    unless "source_mask" (B, S), 1 for a token and 0 for padding, is given for the source. With
    `config.source_end` False, the end token of a source is hidden like padding.

    The tokens of `config.source_prefix` and `config.target_prefix` stand before every source and
    target, and `config.source_suffix` after every source. Inputs, logits, attention weights and
    lengths do not include them.

    A call, `fit`, `evaluate` and `predict` check names, ranks, types and numbers of rows of their
    inputs, and that all ids are within the vocabulary. `fit` and `evaluate` also check the labels
    of a loss that reads ids.

    A subclass can replace the classes of its stacks, `encoder_type` and `decoder_type`.

    Args:
        config: sizes and options.
        **kwargs: arguments of `keras.Model`, for instance `dtype="mixed_bfloat16"`.

    Raises:
        ValueError: if `config` is not a `TransformerConfig`.
    """

    config_type = TransformerConfig
    config: TransformerConfig

    def __init__(self, config: TransformerConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        tied = config.shares_source and config.ties_output
        self._add_encoder(config.source_vocab_size, tied, len(config.source_additions))
        embedding = self.source_embedding if config.shares_source else None
        self._add_decoder(True, embedding)

    @property
    def id_ranges(self) -> tuple[IdRange, ...]:
        """The ids that each input, and the labels, may contain."""
        return (
            IdRange("source", self.config.source_vocab_size),
            IdRange("target", self.config.target_vocab_size),
            IdRange(LABELS_NAME, self.config.target_vocab_size),
        )

    def decode(self, inputs: Tensor, training: bool | None = None) -> Decoded:
        """Return the decoder's output (B, T, D) and attention weights, for the inputs of a call."""
        mask = self._source_mask(inputs["source"], inputs.get("source_mask"))
        encoded = self.encode(inputs["source"], training, mask)
        memory = (encoded.output, prefixed_mask(self.config.source_additions, mask))
        return self._decode_target(inputs["target"], memory, training)

    def attention_maps(self, inputs: Tensor) -> AttentionMaps:
        """Return the attention weights of every layer and head, for the inputs of a call."""
        self.check_inputs(inputs)
        mask = self._source_mask(inputs["source"], inputs.get("source_mask"))
        encoded = self.encode(inputs["source"], False, mask)
        memory = (encoded.output, prefixed_mask(self.config.source_additions, mask))
        decoded = self._decode_target(inputs["target"], memory, False)
        prefix = len(self.config.source_additions)
        encoder = [weights[:, :, prefix:, prefix:] for weights in encoded.weights]
        return AttentionMaps(encoder, decoded.self_weights, decoded.cross_weights)

    def encode(
        self, source: Tensor, training: bool | None = None, attention_mask: Tensor = None
    ) -> Attended:
        """Encode source ids.

        Args:
            source: ids (B, S).
            training: whether dropout is applied.
            attention_mask: see `Encoder.call`. For a model with a source prefix or suffix, it is
                additive, (B, 1, 1, S), and without these. Defaults to a mask that hides padding.

        Returns:
            The encoder's output (B, S, D) and its attention weights, in which S includes the
            source's suffix and prefix, in this order, before the source.
        """
        additions = self.config.source_additions
        mask = self._source_mask(source) if attention_mask is None else attention_mask
        prefix, suffix = len(self.config.source_prefix), len(self.config.source_suffix)
        embedded = self.source_positions(
            self.source_embedding(prefixed(additions, source)),
            training=training,
            positions=positions_with_suffix(prefix, suffix, mask) if suffix else None,
        )
        mask = prefixed_mask(additions, mask)
        return self.encoder(embedded, attention_mask=mask, training=training)

    def remember(self, source: Tensor) -> Memory:
        """Encode source ids (B, S), and project the output for each decoder layer of a search."""
        encoded = self.encode(source).output
        return Memory(self.decoder.project_memory(encoded), self._memory_mask(source))

    def step(
        self,
        tokens: Tensor,
        position: Tensor,
        cache: list[Tensor],
        memory: Tensor = (),
        lineage: Tensor = None,
    ) -> Step:
        """Decode the next position for M beams of each sentence.

        Args:
            tokens: ids (B, M), the last token of each beam.
            position: the position of these tokens, a scalar. The start token has position 0.
            cache: the KV cache of each layer: at first `decoder.empty_cache(B)`, later the cache of
                the previous step. After the target's prefix, which the first step also reads, it
                has M positions for each step. An SSRU has one state of each beam instead.
            memory: the result of `remember`.
            lineage: additive mask (B, 1, M, (position+1)*M) that shows each beam the beams that it
                descends from. Defaults to None, which is correct for M = 1.

        Returns:
            Logits (B, M, target_vocab_size), the longer cache, and the attention to the source (B,
            M, S).
        """
        beams = ops.shape(tokens)[1]
        if prefix := self.config.target_prefix:
            tokens, position, lineage = step_inputs(prefix, tokens, position, lineage)
        positions = self._step_positions(position, tokens, beams, cache)
        embedded = self.target_positions.at(self.target_embedding(tokens), position)
        layers, mask = memory
        # The minimum changes no value. Without it, TensorFlow 2.21 with oneDNN fuses a mask that
        # only one product reads, as in a decoder of a single layer, so that the whole loop of a
        # search returns nothing.
        if self.config.decoder_layers == 1:
            mask = ops.minimum(mask, 0.0)
        output, cache, cross_weights = self.decoder.step(
            embedded, cache, layers, lineage, mask, positions
        )
        attention = ops.mean(cross_weights[-1], axis=1)
        if prefix:
            output = output[:, -beams:]
            attention = attention[:, -beams:]
        if self.config.source_additions:
            attention = attention[:, :, len(self.config.source_additions) :]
        return self._to_step(output, cache, attention)

    def start_search(
        self, source: Tensor, use_cache: bool = True, tokens: Tensor = None
    ) -> Stepper:
        """Encode source ids for a search.

        Args:
            source: ids (B, S).
            use_cache: whether a decoding step computes only the last position, from the keys and
                values of the earlier ones, or computes the whole prefix again. Defaults to True.
            tokens: int32 (n,), the tokens whose logits each step returns. Defaults to None: the
                whole vocabulary.

        Returns:
            The functions and tensors that the search needs.
        """
        if use_cache:
            return self._stepper(self.remember(source), use_cache, tokens)
        memory = (self.encode(source).output, self._memory_mask(source))
        return self._stepper(memory, use_cache, tokens)

    def _memory_mask(self, source: Tensor) -> Tensor:
        return prefixed_mask(self.config.source_additions, self._source_mask(source))

    def _source_mask(self, source: Tensor, real: Tensor = None) -> Tensor:
        """Return the additive mask (B, 1, 1, S) of source ids (B, S).

        `real` is 1 for a token and 0 for padding, by default where ids are not 0.
        """
        real = ops.not_equal(source, PAD_ID) if real is None else real
        if not self.config.source_end:
            is_text = ops.not_equal(source, END_ID)
            real = ops.cast(real, "float32") * ops.cast(is_text, "float32")
        return additive_mask(real)

    def _decode_target(
        self, target: Tensor, memory: Sequence[Tensor], training: bool | None = None
    ) -> Decoded:
        """Decode ids (B, T), given the encoder's output (B, S, D) and its mask (B, 1, 1, S)."""
        encoded, source_mask = memory
        # Target padding is at the end, so the causal mask hides it from every real token.
        target = prefixed(self.config.target_prefix, target)
        mask = causal_mask(ops.shape(target)[1])
        decoded = self.decoder(
            self._embed(target, training),
            encoded,
            attention_mask=mask,
            cross_attention_mask=source_mask,
            training=training,
        )
        # Remove the target's prefix from results, and the source's additions from attention.
        skipped, additions = len(self.config.target_prefix), len(self.config.source_additions)
        if not skipped + additions:
            return decoded
        return Decoded(
            decoded.output[:, skipped:],
            [weights[:, :, skipped:, skipped:] for weights in decoded.self_weights],
            [weights[:, :, skipped:, additions:] for weights in decoded.cross_weights],
        )


def prefixed(prefix: Sequence[int], ids: Tensor) -> Tensor:
    """Put a prefix before ids (B, T): (B, P+T)."""
    if not prefix:
        return ids
    row = ops.convert_to_tensor([list(prefix)], dtype=ids.dtype)
    rows = ops.zeros((ops.shape(ids)[0], 1), dtype=ids.dtype) + row  # (B, P)
    return ops.concatenate([rows, ids], axis=1)


def prefixed_mask(prefix: Sequence[int], mask: Tensor) -> Tensor:
    """Put visible positions before an additive mask (…, S): (…, P+S)."""
    if not prefix:
        return mask
    return ops.concatenate([*[ops.zeros_like(mask[..., :1])] * len(prefix), mask], axis=-1)


def positions_with_suffix(prefix: int, suffix: int, mask: Tensor) -> Tensor:
    """Return the positions of a source in the encoder's order, int32 (B, P+S).

    First comes the suffix, with positions after the source, then the prefix and the source. The
    additive mask (B, 1, 1, S) is that of the source, whose visible tokens are the first ones.
    """
    lengths = prefix + ops.sum(ops.cast(ops.equal(mask[:, 0, 0], 0), "int32"), axis=1)  # (B,)
    after = lengths[:, None] + ops.arange(suffix, dtype="int32")
    others = ops.arange(prefix + ops.shape(mask)[-1], dtype="int32")
    others = ops.zeros_like(lengths)[:, None] + others
    return ops.concatenate([after, others], axis=1)


def step_inputs(
    prefix: Sequence[int], tokens: Tensor, position: Tensor, lineage: Tensor = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ids (B, N), positions (N,) and mask of a decoding step of a model with a prefix.

    The first step also reads the prefix of P tokens (N = P + M), later steps only the last tokens
    (N = M). The mask is additive, (B or 1, 1, N, P+(t+1)*M). See `Transformer.step` for the
    arguments.
    """
    beams = ops.shape(tokens)[1]
    length = len(prefix)
    new = ops.where(ops.equal(position, 0), length, 0)  # prefix tokens that this step reads
    lineage = ops.zeros((1, 1, 1, position + 1)) if lineage is None else lineage
    columns = ops.shape(lineage)[3]
    rows = ops.shape(lineage)[0]
    prefix_mask = causal_mask(length)[:, :, :new]  # (1, 1, N - M, P)
    hidden = ops.full((rows, 1, new, columns), HIDDEN, dtype="float32")
    prefix_mask = ops.concatenate([ops.tile(prefix_mask, (rows, 1, 1, 1)), hidden], axis=3)
    positions = ops.concatenate(
        [ops.arange(length, dtype="int32")[:new], ops.zeros((beams,), "int32") + length + position],
        axis=0,
    )
    return (
        ops.concatenate([prefixed(prefix, tokens)[:, :new], tokens], axis=1),
        positions,
        ops.concatenate([prefix_mask, prefixed_mask(prefix, lineage)], axis=2),
    )
