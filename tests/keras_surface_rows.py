"""The rows of the table of Keras's methods, and the model, data and reference that they share.

A row is a function that asserts values. Its docstring is the text of the row. It states what it
expects of each backend: `WORKS`, `Refused` or `Lacking`.
"""

import functools
import re
import traceback
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

import tfk_transformer as tfk

BACKENDS = ("tensorflow", "jax", "torch")
BACKEND = keras.backend.backend()


class Refused(NamedTuple):
    """A row that ends with an error message of one line."""

    pattern: str  # a regular expression for its beginning, which the table quotes


class Lacking(NamedTuple):
    """A row that Keras or the backend does not offer, as an error of theirs shows."""

    pattern: str  # a regular expression, for a part of the error
    reason: str = "not in Keras"


WORKS = "works"
Expectation = str | Refused | Lacking


class Row(NamedTuple):
    """A row of the table."""

    section: str
    text: str
    run: Callable[[], None]
    expected: dict[str, Expectation]

    def outcome(self) -> str:
        """Run the row, and return the text of its cell; "error: …" for what nobody expects."""
        keras.utils.set_random_seed(1)
        expected = self.expected[BACKEND]
        try:
            self.run()
            return WORKS
        except Exception as error:
            message = str(error)
            if isinstance(expected, Lacking) and re.search(
                expected.pattern, f"{type(error).__name__}: {message}"
            ):
                return expected.reason
            line = isinstance(expected, Refused) and re.match(expected.pattern, message)
            if line:
                return f"refused: {line[0]}"
            where = traceback.extract_tb(error.__traceback__)[-1]
            line = f"{where.filename.rpartition('site-packages/')[2]}:{where.lineno}"
            return f"error: {type(error).__name__}: {' '.join(message.split())} [{line}]"

    def is_expected(self, outcome: str) -> bool:
        """Return whether the outcome of a run is the expected one."""
        return is_expected(self.expected[BACKEND], outcome)


def is_expected(expected: Expectation, outcome: str) -> bool:
    """Return whether an outcome is the expected one."""
    if isinstance(expected, Refused):
        return re.fullmatch(f"refused: {expected.pattern}", outcome) is not None
    if isinstance(expected, Lacking):
        return outcome == expected.reason
    return outcome == expected


ROWS: dict[str, Row] = {}


def row(section: str, every: Expectation = WORKS, **backends: Expectation) -> Callable:
    """Register a function as a row.

    Args:
        section: the heading of the row.
        every: the expectation under each backend that `backends` does not name.
        **backends: the expectation by backend.
    """

    def register(run: Callable[[], None]) -> Callable[[], None]:
        expected = {backend: backends.get(backend, every) for backend in BACKENDS}
        ROWS[run.__name__] = Row(section, run.__doc__.strip(), run, expected)
        return run

    return register


SIZES = {"model_dim": 12, "num_heads": 2, "ff_dim": 11, "dropout": 0.0, "max_length": 16}
CONFIG = tfk.TransformerConfig(
    source_vocab_size=13, target_vocab_size=17, encoder_layers=1, decoder_layers=1, **SIZES
)
_random = np.random.default_rng(7)
INPUTS = {
    "source": _random.integers(4, 13, (6, 5)).astype("int32"),
    "target": _random.integers(4, 17, (6, 7)).astype("int32"),
}
INPUTS["source"][1, 3:] = INPUTS["target"][2, 4:] = 0
INPUTS["target"][:, 0] = 1
LABELS = np.concatenate([INPUTS["target"][:, 1:], np.zeros((6, 1), "int32")], axis=1)
LABELS[np.arange(6), (INPUTS["target"] != 0).sum(axis=1) - 1] = 2
REAL = LABELS != 0


def rows_of(start: int, stop: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return some rows of the inputs and the labels."""
    return {name: array[start:stop] for name, array in INPUTS.items()}, LABELS[start:stop]


def new_model(kind: type = tfk.Transformer, **arguments: object) -> tfk.Transformer:
    """Return a built model, always with the same weights."""
    keras.utils.set_random_seed(5)
    model = kind(arguments.pop("config", CONFIG), **arguments)
    model.build()
    return model


def compiled(model: keras.Model | None = None, **arguments: object) -> keras.Model:
    """Return a model that is compiled with SGD; see `keras.Model.compile`."""
    model = model or new_model()
    defaults = {
        "optimizer": keras.optimizers.SGD(0.1),
        "loss": tfk.losses.LabelSmoothedCrossentropy(0.1),
    }
    # XLA takes seconds for each step that it compiles.
    jit = {} if BACKEND == "jax" else {"jit_compile": False}
    model.compile(**{**defaults, **jit, **arguments})
    return model


def standard() -> keras.Model:
    """Return the model of `compiled()`, as new.

    It is always the same one, so that its steps are traced once: the next call resets it.
    """
    model, weights = _new_standard()
    model.set_weights(weights)
    model.optimizer.learning_rate.assign(0.1)
    return model


@functools.cache
def _new_standard() -> tuple[keras.Model, list[np.ndarray]]:
    model = compiled()
    return model, model.get_weights()


def quick(model: keras.Model | None = None, **arguments: object) -> keras.Model:
    """Return a compiled model of which no step is compiled."""
    return compiled(model, **{"run_eagerly": BACKEND != "torch", **arguments})


def fit(model: keras.Model, x: object = None, y: object = None, **arguments: object) -> dict:
    """Train on the data, by default all rows as one batch, and return the history."""
    x, y = (INPUTS, LABELS) if x is None else (x, y)
    defaults = {"verbose": 0, "shuffle": False}
    if y is not None:
        defaults["batch_size"] = 6
    return model.fit(x, y, **{**defaults, **arguments}).history


def numpy(value: object) -> np.ndarray:
    """Return a float64 array of a tensor."""
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(value, "float32")), "float64")


def logits(model: keras.Model, inputs: object = None) -> np.ndarray:
    """Return the logits of a model."""
    return numpy(model(INPUTS if inputs is None else inputs))


def loss_of(
    predictions: np.ndarray,
    labels: np.ndarray = LABELS,
    smoothing: float = 0.1,
    weights: object = 1,
) -> float:
    """Return the mean loss of the tokens in float64, with padding left out of sum and count."""
    largest = predictions.max(axis=-1, keepdims=True)
    normalizer = np.log(np.exp(predictions - largest).sum(axis=-1, keepdims=True)) + largest
    log_probs = predictions - normalizer
    true = np.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
    losses = -(1 - smoothing) * true - smoothing * log_probs.mean(axis=-1)
    real = labels != 0
    return float((losses * weights * real).sum() / real.sum())


def fit_losses(steps: int = 2) -> list[float]:
    """Return the losses of the first steps of SGD on all rows, as `fit(compiled())` does them."""
    return _three_losses()[:steps]


@functools.cache
def _three_losses() -> list[float]:
    return fit(standard(), epochs=3)["loss"]


@functools.cache
def averaged_kernel() -> np.ndarray:
    """Return the moving average of `projection.kernel` over two steps."""
    plain, kernels = standard(), []
    for _ in range(2):
        fit(plain)
        kernels.append(numpy(plain.projection.kernel))
    return (kernels[0] + kernels[1]) / 2


def close(actual: object, expected: object, tolerance: float = 1e-5) -> None:
    """Assert that numbers differ by rounding."""
    np.testing.assert_allclose(
        np.asarray(actual, "float64"), np.asarray(expected), rtol=tolerance, atol=tolerance
    )


def same_logits(model: keras.Model, other: keras.Model, tolerance: float = 1e-6) -> None:
    """Assert that two models have the same logits."""
    close(logits(model), logits(other), tolerance)


def differ(one: object, other: object) -> None:
    """Assert that arrays differ."""
    assert np.abs(np.asarray(one) - np.asarray(other)).max() > 1e-3
