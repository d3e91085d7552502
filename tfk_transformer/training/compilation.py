"""From a recipe to a compiled model: optimizer, schedule, loss and metrics."""

import keras

from tfk_transformer import optimizers
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.metrics import Perplexity, TokenAccuracy
from tfk_transformer.models.registry import make_model
from tfk_transformer.schedules import InverseSquareRoot
from tfk_transformer.training.distribution import Team
from tfk_transformer.training.multi_process import clipping_sums
from tfk_transformer.training.recipe import Recipe


def compiled_model(recipe: Recipe, tokenizers, steps: int, team: Team):
    """Return the model of a recipe, ready for `fit`.

    Args:
        recipe: of the training.
        tokenizers: of source and target, which know the sizes of the vocabularies.
        steps: batches an epoch.
        team: the devices that train.

    Raises:
        ValueError: for what the recipe asks for and this length of training, or these devices, do not allow.
    """
    model = make_model(recipe.config(*(tokenizer.vocab_size for tokenizer in tokenizers)), dtype=recipe.dtype)
    from_logits = model.config.output == "logits"
    model.compile(
        optimizer=optimizer(recipe, steps, team),
        loss=LabelSmoothedCrossentropy(recipe.label_smoothing, from_logits, recipe.consistency),
        metrics=[TokenAccuracy(), Perplexity(from_logits)],
        # XLA compiles no variables that several devices have.
        jit_compile=keras.backend.backend() == "jax" or (has_gpu() and team.devices == 1),
    )
    model.optimizer.build(model.trainable_variables)  # in the first step, TensorFlow would trace that step twice
    return model


def optimizer(recipe: Recipe, steps: int, team: Team | None = None):
    """Make the optimizer, for so many batches an epoch."""
    team = team or Team()
    adams = keras.optimizers if team.exact_clipping else optimizers
    kinds = {"adam": adams.Adam, "adamw": adams.AdamW, "lion": keras.optimizers.Lion}
    kinds |= {"adafactor": keras.optimizers.Adafactor, "sgd": keras.optimizers.SGD}
    options = {
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
            f"accumulate: expected 1 on {team.devices} devices under TensorFlow, whose Keras cannot do both, got {recipe.accumulate}; "
            "more devices hold larger batches (batch_tokens), or train with KERAS_BACKEND=jax."
        )
    kind = clipping_sums(kinds[recipe.optimizer], team)
    return kind(_schedule(recipe, steps * recipe.epochs), **options)


def _schedule(recipe: Recipe, batches: int):
    """Make the learning rate's schedule, for so many batches in all: Keras counts these, even where several make one update."""
    rising = recipe.warmup_steps * recipe.accumulate
    if recipe.schedule == "inverse_sqrt":
        return InverseSquareRoot(recipe.learning_rate, rising)
    if rising >= batches:
        updates = batches // recipe.accumulate
        raise ValueError(f"warmup_steps: expected fewer than the {updates:,} updates of this training, got {recipe.warmup_steps:,}.")
    cosine = recipe.schedule == "cosine"
    return keras.optimizers.schedules.CosineDecay(
        0.0, batches - rising, alpha=0.0 if cosine else 1.0, warmup_target=recipe.learning_rate, warmup_steps=rising
    )


def has_gpu() -> bool:
    """XLA pays on a GPU; on a CPU it gains little and compiles for long."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() != "cpu"
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
