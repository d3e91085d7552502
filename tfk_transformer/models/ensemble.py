"""Several encoder-decoder Transformers that predict together."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.model_options import EnsembleConfig
from tfk_transformer.layers.decoder import Decoded
from tfk_transformer.models.base import Beams, Step, Stepper, TokenModel, mean_log_probs, mean_of
from tfk_transformer.models.transformer import Transformer


@keras.saving.register_keras_serializable(package="tfk_transformer")
class Ensemble(TokenModel):
    """Transformers whose next-token log-probabilities are averaged, and which are searched as one
    model.

    The log-probability of a token is the mean of the members' log-probabilities. It is not
    normalized again, so the log-probability of a translation is the mean of those that the members
    give it. The attention to a source token is the mean of the members', each averaged over the
    heads of its last layer.

    Called with the inputs of a `Transformer`, it returns these log-probabilities, float32 (B, T,
    target_vocab_size). The methods of a single encoder or decoder, such as `step`, are those of its
    `members`.

    The members may differ in layers, widths and other options, but not in their vocabularies.
    Sources and targets have at most as many tokens as the least `max_length` of the members allows.

    Args:
        members: Transformers, whose weights are copied; at least one. Or a configuration, for
            members with new weights.
        **kwargs: arguments of `keras.Model`. Defaults to the dtype policy of the first member.

    Raises:
        ValueError: if there is no member, if one is not a `Transformer`, or if vocabulary sizes
            differ.
    """

    config_type = EnsembleConfig  # type: ignore[assignment]  # without options of layers, which only the members have
    config: EnsembleConfig  # type: ignore[assignment]

    def __init__(self, members: Sequence[Transformer] | EnsembleConfig, **kwargs: Any) -> None:
        models = [] if isinstance(members, EnsembleConfig) else _checked(members)
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
            self.set_weights([weight for model in models for weight in model.get_weights()])

    def build(self, input_shape: object = None) -> None:
        """Make all weights. Their shapes follow from the configuration."""
        for member in self.members:
            member.build()

    def named_members(self) -> dict[str, TokenModel]:
        """Return the members by the prefix of their names in `named_weights`."""
        return {f"{member.name}/": member for member in self.members}

    def check_inputs(self, inputs: Tensor) -> None:
        """Check the inputs of a call; see `ConfiguredModel.check_inputs`."""
        self.members[0].check_inputs(inputs)  # the vocabularies of all are equal

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Return the log-probabilities of the token after each target position, float32 (B, T,
        target_vocab_size).
        """
        return mean_log_probs(self.logits(self.decode(inputs, training).output))

    def decode(self, inputs: Tensor, training: bool | None = None) -> Decoded:
        """Return the outputs (B, T, D) of the members' decoders, and their mean attention (B, 1, T,
        S) as that of a single layer.
        """
        return joined_decoded([member.decode(inputs, training) for member in self.members])

    def logits(self, decoded: Tensor) -> Tensor:
        """Project the outputs (B, T, D) of the members' decoders to the logits (B, T, vocab_size)
        of each.
        """
        return [member.logits(output) for member, output in zip(self.members, decoded, strict=True)]

    def start_search(
        self, source: Tensor, use_cache: bool = True, tokens: Tensor = None
    ) -> Stepper:
        """Encode source ids (B, S) for a search; see `Transformer.start_search`."""
        return combine_steppers(
            [member.start_search(source, use_cache, tokens) for member in self.members]
        )


def combine_steppers(steppers: Sequence[Stepper]) -> Stepper:
    """Return the steps of several models as those of one, whose logits, cache and memory are lists
    of theirs.
    """

    def step(beams: Beams, cache: Tensor, memory: Tensor) -> Step:
        steps = [one.step(beams, *own) for one, *own in zip(steppers, cache, memory, strict=True)]
        return Step(
            [one.logits for one in steps],
            [one.cache for one in steps],
            mean_of([one.attention for one in steps]),
        )

    return Stepper(
        step,
        lambda batch: [one.first_cache(batch) for one in steppers],
        [one.memory for one in steppers],
    )


def joined_decoded(decoded: Sequence[Decoded]) -> Decoded:
    """Return what several models decode as the result of one, with their mean attention (B, 1, T,
    S) as that of a single layer.
    """
    cross = mean_of([ops.mean(found.cross_weights[-1], axis=1, keepdims=True) for found in decoded])
    return Decoded([found.output for found in decoded], [], [cross])


def _checked(models: Sequence[Transformer]) -> list[Transformer]:
    """Return the members of an ensemble, built.

    Raises:
        ValueError: if there is none, or one is not a `Transformer`.
    """
    given: list[Any] = list(models) if isinstance(models, list | tuple) else [models]
    if not given:
        raise ValueError("members: expected at least one Transformer, got none.")
    for number, model in enumerate(given):
        if not isinstance(model, Transformer):
            raise ValueError(
                f"members: expected a list of Transformers, got members[{number}] of type "
                f"{type(model).__name__}; "
                "only encoder-decoder models can be members, and no ensembles."
            )
        if not model.built:
            model.build()
    return given
