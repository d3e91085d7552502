"""Several encoder-decoder Transformers that predict together."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.model_options import EnsembleConfig
from tfk_transformer.layers.decoder import Decoded
from tfk_transformer.models.checked_batches import IdRange
from tfk_transformer.models.reproduction import difference_from, plain_weights
from tfk_transformer.models.token_model import (
    Beams,
    Step,
    Stepper,
    TokenModel,
    mean_log_probs,
    mean_of,
)
from tfk_transformer.models.transformer import Transformer


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Ensemble(TokenModel):
    """Transformers that are searched as one model, with their mean log-probabilities.

    The log-probability of a token is the mean of the members' log-probabilities. It is not
    normalized again, so the log-probability of a translation is also the mean of the members'
    log-probabilities. The attention to a source token is the mean of the members' attention, each
    averaged over the heads of its last layer.

    Called with the inputs of a `Transformer`, it returns these log-probabilities, float32 (B, T,
    target_vocab_size). Only its `members` have the methods of a single encoder or decoder, such as
    `step`.

    The members may differ in layers, widths and other options, but not in their vocabularies.
    Sources and targets have at most as many tokens as the least `max_length` of the members allows.

    Args:
        members: Transformers, whose weights are copied; at least one. Or a configuration, for
            members with new weights.
        **kwargs: arguments of `keras.Model`. Defaults to the dtype policy of the first member.

    Raises:
        ValueError: if there are no members, if a member is not a `Transformer` or has layers of
            another class, or if vocabulary sizes differ.
    """

    # It has no options of layers, which only the members have.
    config_type = EnsembleConfig  # type: ignore[assignment]
    config: EnsembleConfig  # type: ignore[assignment]

    def __init__(self, members: Sequence[Transformer] | EnsembleConfig, **kwargs: Any) -> None:
        models = [] if isinstance(members, EnsembleConfig) else _built_members(members)
        config = (
            members
            if isinstance(members, EnsembleConfig)
            else EnsembleConfig.of([model.config for model in models])
        )
        policy = {"dtype": models[0].dtype_policy} if models else {}
        super().__init__(config, **{**policy, **kwargs})  # type: ignore[arg-type]
        self.members = [
            Transformer(c, dtype=self.dtype_policy, name=f"member_{i}")
            for i, c in enumerate(config.members)
        ]
        if models:
            self.build()
            for member, model in zip(self.members, models, strict=True):
                weights = plain_weights(model)
                for name, weight in member.named_weights.items():
                    weight.assign(weights[name])

    def build(self, input_shape: object = None) -> None:
        """Make all weights. Their shapes follow from the configuration."""
        for member in self.members:
            member.build()

    def named_members(self) -> dict[str, TokenModel]:
        """Return the members by the prefix of their names in `named_weights`."""
        return {f"{member.name}/": member for member in self.members}

    @property
    def id_ranges(self) -> tuple[IdRange, ...]:
        """The ids that each input, and the labels, may contain."""
        return self.members[0].id_ranges

    def call(
        self, inputs: Tensor, training: bool | None = None, with_output: bool = False
    ) -> Tensor:
        """Return next-token log-probabilities, float32 (B, T, target_vocab_size).

        With `with_output`, return them and the outputs (B, T, D) of the members' decoders.
        """
        outputs = self.decode(inputs, training).output
        log_probs = mean_log_probs(self.logits(outputs))
        return (log_probs, outputs) if with_output else log_probs

    def decode(self, inputs: Tensor, training: bool | None = None) -> Decoded:
        """Return the outputs (B, T, D) of the members' decoders, and their mean attention.

        The attention (B, 1, T, S) has the form of a single layer with one head.
        """
        decoded = [member.decode(inputs, training) for member in self.members]
        attention = [ops.mean(one.cross_weights[-1], axis=1, keepdims=True) for one in decoded]
        return Decoded([one.output for one in decoded], [], [mean_of(attention)])

    def logits(self, decoded: Tensor) -> Tensor:
        """Project the outputs (B, T, D) of the members to their logits (B, T, vocab_size)."""
        return [member.logits(output) for member, output in zip(self.members, decoded, strict=True)]

    def start_search(
        self, source: Tensor, use_cache: bool = True, tokens: Tensor = None
    ) -> Stepper:
        """Encode source ids (B, S) for a search; see `Transformer.start_search`."""
        steppers = [member.start_search(source, use_cache, tokens) for member in self.members]

        # Logits, cache and memory are lists with one item for each member.
        def step(beams: Beams, cache: Tensor, memory: Tensor) -> Step:
            inputs = zip(steppers, cache, memory, strict=True)
            steps = [stepper.step(beams, *state) for stepper, *state in inputs]
            return Step(
                [result.logits for result in steps],
                [result.cache for result in steps],
                mean_of([result.attention for result in steps]),
            )

        return Stepper(
            step,
            lambda batch: [stepper.first_cache(batch) for stepper in steppers],
            [stepper.memory for stepper in steppers],
        )


def _built_members(models: Sequence[Transformer]) -> list[Transformer]:
    """Check the members of an ensemble, and build those that are not built."""
    members: list[Any] = list(models) if isinstance(models, list | tuple) else [models]
    if not members:
        raise ValueError("members: expected at least one Transformer, got none.")
    for number, model in enumerate(members):
        if not isinstance(model, Transformer):
            raise ValueError(
                f"members: expected a list of Transformers, got members[{number}] of type "
                f"{type(model).__name__}; "
                "only encoder-decoder models can be members, and no ensembles."
            )
        if difference := difference_from(model, Transformer):
            raise ValueError(
                f"members: expected Transformers of the library's own layers, got members[{number}]"
                f" of type {type(model).__name__} that differs: {difference}; combine the models "
                "in a class of your own."
            )
    return members
