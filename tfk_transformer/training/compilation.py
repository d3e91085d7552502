"""Make the compiled model of a recipe: optimizer, schedule, loss and metrics."""

from typing import Any

import keras

from tfk_transformer import optimizers
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.metrics import Perplexity, TokenAccuracy
from tfk_transformer.models.precision import dtype_policy
from tfk_transformer.models.registry import make_model
from tfk_transformer.pipelines.recipe import Recipe
from tfk_transformer.schedules import InverseSquareRoot
from tfk_transformer.training.data_cache import Tokenizers
from tfk_transformer.training.distribution import Team
from tfk_transformer.training.fine_tuning.start import Start
from tfk_transformer.training.multi_process import clipping_sums


def compiled_model(
    recipe: Recipe, tokenizers: Tokenizers, steps: int, team: Team, start: Start | None = None
) -> keras.Model:
    """Return the model of a recipe, ready for `fit`.

    Args:
        recipe: the recipe of the training run.
        tokenizers: the source and target tokenizers.
        steps: number of batches in an epoch.
        team: the devices that train.
        start: the bundle with the model and its weights. None: a new model.

    Raises:
        ValueError: if the options of the recipe do not suit the length of training, or these
            devices.
    """
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
        jit_compile=keras.backend.backend() == "jax" or (has_gpu() and team.devices == 1),
    )
    # Otherwise TensorFlow would trace the first training step twice.
    model.optimizer.build(model.trainable_variables)
    return model


def _loss_and_metrics(recipe: Recipe, model: keras.Model) -> dict[str, Any]:
    """Return the loss and the metrics, as arguments of `compile`."""
    if recipe.architecture == "encoder":
        # The mean over the texts: padding rows have the weight 0.
        loss = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )
        return {
            "loss": loss,
            "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        }
    from_logits = model.config.output == "logits"
    loss = LabelSmoothedCrossentropy(recipe.label_smoothing, from_logits, recipe.consistency)
    return {"loss": loss, "metrics": [TokenAccuracy(), Perplexity(from_logits)]}


def optimizer(recipe: Recipe, steps: int, team: Team | None = None) -> keras.optimizers.Optimizer:
    """Return the optimizer of a recipe.

    Args:
        recipe: the recipe of the training run.
        steps: number of batches in an epoch.
        team: the devices that train. None: a single one.

    Raises:
        ValueError: if the options of the recipe do not suit the length of training, or these
            devices.
    """
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
    if recipe.accumulate > 1 and team.exact_clipping:
        raise ValueError(
            f"accumulate: expected 1 on {team.devices} devices, since Keras cannot combine both "
            f"under TensorFlow, got {recipe.accumulate}; increase batch_tokens instead, which "
            "several devices share, or train with KERAS_BACKEND=jax."
        )
    optimizer_class = clipping_sums(classes[recipe.optimizer], team)
    return optimizer_class(schedule(recipe, steps * recipe.epochs), **options)


def schedule(recipe: Recipe, batches: int) -> keras.optimizers.schedules.LearningRateSchedule:
    """Return the learning rate schedule of a recipe.

    Args:
        recipe: the recipe of the training run.
        batches: number of batches of the whole run. Keras counts batches even if several batches
            make one update.

    Raises:
        ValueError: if the warm-up takes the whole run.
    """
    warmup_batches = recipe.warmup_steps * recipe.accumulate
    if recipe.schedule == "inverse_sqrt":
        return InverseSquareRoot(recipe.learning_rate, warmup_batches)
    if warmup_batches >= batches:
        updates = batches // recipe.accumulate
        raise ValueError(
            f"warmup_steps: expected fewer than the {updates:,} updates of this training, got "
            f"{recipe.warmup_steps:,}."
        )
    cosine = recipe.schedule == "cosine"
    return keras.optimizers.schedules.CosineDecay(
        0.0,
        batches - warmup_batches,
        alpha=0.0 if cosine else 1.0,
        warmup_target=recipe.learning_rate,
        warmup_steps=warmup_batches,
    )


def has_gpu() -> bool:
    """Return whether the backend uses a GPU (or TPU).

    XLA pays off there; on a CPU it gains little and compilation takes long.
    """
    if keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() != "cpu"
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
