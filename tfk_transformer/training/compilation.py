"""Make the compiled model of a recipe: optimizer, schedule, loss and metrics."""

from typing import Any

import keras

from tfk_transformer import optimizers
from tfk_transformer.array_types import Tensor
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.metrics import Perplexity, TokenAccuracy
from tfk_transformer.models.precision import dtype_policy
from tfk_transformer.models.registry import make_model
from tfk_transformer.runtime_environment import uses_xla
from tfk_transformer.schedules import InverseSquareRoot
from tfk_transformer.training.checkpoints import Tokenizers
from tfk_transformer.training.distribution import Team
from tfk_transformer.training.fine_tuning import Start
from tfk_transformer.training.recipe import Recipe


def compiled_model(
    recipe: Recipe, tokenizers: Tokenizers, steps: int, team: Team, start: Start | None = None
) -> keras.Model:
    """Return the model of a recipe, or of the bundle `start`, ready for epochs of batches."""
    source, target = tokenizers
    dtype = dtype_policy(recipe.dtype)
    model = (
        start.model(recipe, dtype)
        if start
        else make_model(recipe.config(source.vocab_size, target.vocab_size), dtype=dtype)
    )
    model.compile(
        optimizer=optimizer(recipe, steps, team),
        **_loss_and_metrics(recipe, model),
        # Under TensorFlow, XLA cannot compile variables that several devices share.
        jit_compile=uses_xla() and (keras.backend.backend() == "jax" or team.devices == 1),
    )
    # Otherwise TensorFlow would trace the first training step twice.
    model.optimizer.build(model.trainable_variables)
    return model


def _loss_and_metrics(recipe: Recipe, model: keras.Model) -> dict[str, Any]:
    """Return the loss and the metrics, as arguments of `compile`."""
    if recipe.classifies:
        # The mean over the texts: padding rows have the weight 0.
        loss = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )
        return {
            "loss": loss,
            "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        }
    from_logits = model.config.returns_logits
    loss = LabelSmoothedCrossentropy(recipe.label_smoothing, from_logits, recipe.consistency)
    return {"loss": loss, "metrics": [TokenAccuracy(), Perplexity(from_logits)]}


def optimizer(recipe: Recipe, steps: int, team: Team | None = None) -> keras.optimizers.Optimizer:
    """Return the optimizer of a recipe, for epochs of a number of batches; None: one device."""
    team = team or Team()
    adams = keras.optimizers if team.exact_clipping else optimizers
    classes = {
        "adam": adams.Adam,
        "adamw": adams.AdamW,
        "lion": keras.optimizers.Lion,
        "adafactor": keras.optimizers.Adafactor,
        "sgd": keras.optimizers.SGD,
    }
    options: dict[str, float | int | bool | None] = {
        "global_clipnorm": recipe.clip_norm or None,
        "gradient_accumulation_steps": recipe.accumulate if recipe.accumulate > 1 else None,
    }
    if recipe.optimizer in ("adam", "adamw"):
        options |= {"beta_2": recipe.beta_2, "epsilon": 1e-9}
    if recipe.optimizer in ("adamw", "lion"):
        options |= {"weight_decay": recipe.weight_decay}
    if recipe.ema:
        options |= {"use_ema": True, "ema_momentum": recipe.ema}
    optimizer_class = classes[recipe.optimizer]
    if team.exact_clipping:
        if recipe.accumulate > 1:
            raise ValueError(
                f"accumulate: expected 1 on {team.devices} devices, since Keras cannot combine "
                f"both under TensorFlow, got {recipe.accumulate}; increase batch_tokens instead, "
                "which several devices share, or train with KERAS_BACKEND=jax."
            )
        optimizer_class = clipping_sums(optimizer_class)
    return optimizer_class(schedule(recipe, steps * recipe.epochs), **options)


def clipping_sums(base: type[keras.optimizers.Optimizer]) -> type[keras.optimizers.Optimizer]:
    """Return an optimizer class that sums the gradients of all devices before it clips them.

    Under `tf.distribute`, Keras clips each device's gradients first, unlike on a single device.
    """
    import tensorflow as tf

    class Summing(base):
        def __init__(self, *args: Any, global_clipnorm: float | None = None, **kwargs: Any):
            super().__init__(*args, **kwargs)
            self._max_norm = global_clipnorm

        def apply(
            self, grads: list[Tensor], trainable_variables: list[keras.Variable] | None = None
        ) -> None:
            context = tf.distribute.get_replica_context()
            total = context.all_reduce(
                tf.distribute.ReduceOp.SUM, [tf.convert_to_tensor(gradient) for gradient in grads]
            )
            if self._max_norm:
                total, _ = tf.clip_by_global_norm(total, self._max_norm)
            # Keras sums the gradients of the devices again.
            return super().apply(
                [gradient / context.num_replicas_in_sync for gradient in total], trainable_variables
            )

    Summing.__name__ = base.__name__
    return Summing


def schedule(recipe: Recipe, batches: int) -> keras.optimizers.schedules.LearningRateSchedule:
    """Return the learning rate schedule of a run with a number of batches in all epochs."""
    # Keras counts batches even if several batches make one update.
    warmup_batches = recipe.warmup_steps * recipe.accumulate
    if recipe.schedule == "inverse_sqrt":
        return InverseSquareRoot(recipe.learning_rate, warmup_batches)
    if warmup_batches >= batches:
        updates = batches // recipe.accumulate
        raise ValueError(
            f"warmup_steps: expected fewer than the {updates:,} updates of this training, got "
            f"{recipe.warmup_steps:,}."
        )
    return keras.optimizers.schedules.CosineDecay(
        0.0,
        batches - warmup_batches,
        alpha=0.0 if recipe.schedule == "cosine" else 1.0,
        warmup_target=recipe.learning_rate,
        warmup_steps=warmup_batches,
    )
