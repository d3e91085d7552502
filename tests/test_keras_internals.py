"""The private names of Keras that the package uses are still there, and are used in one module."""

import inspect
import re
from pathlib import Path

import keras
import numpy as np
import pytest

from tfk_transformer import keras_internals

REPOSITORY = Path(__file__).parents[1]


@pytest.mark.parametrize("optimizer_class", [keras.optimizers.Adam, keras.optimizers.AdamW])
def test_adam_moments_of_each_variable(optimizer_class):
    variables = [keras.Variable(np.zeros(size, "float32")) for size in (2, 3)]
    optimizer = optimizer_class(0.1, beta_1=0.8, beta_2=0.95)
    optimizer.build(variables)
    optimizer.apply([keras.ops.ones(2), 2 * keras.ops.ones(3)])
    for variable, gradient in zip(variables, (1.0, 2.0), strict=True):
        first, second = keras_internals.adam_moments(optimizer, variable)
        np.testing.assert_allclose(first, np.full(variable.shape, 0.2 * gradient), rtol=1e-6)
        np.testing.assert_allclose(second, np.full(variable.shape, 0.05 * gradient**2), rtol=1e-6)


def source_of(registered, package):
    """Return the source of a registered class and its bases, as far as a package defines them."""
    return "\n".join(
        inspect.getsource(base)
        for base in registered.__mro__
        if base.__module__.partition(".")[0] == package
    )


def test_no_private_keras_names():
    import tfk_transformer

    assert tfk_transformer.Transformer is not None  # registers the classes
    classes = [
        registered
        for name, registered in keras.saving.get_custom_objects().items()
        if name.startswith("tfk_transformer>")
    ]
    assert len(classes) >= 20
    for registered in classes:
        source = source_of(registered, "tfk_transformer")
        keras_source = source_of(registered, "keras")
        used = set(re.findall(r"\bself\.(_[a-z]\w*)", source))
        defined = {
            name
            for pair in re.findall(r"def (_\w+)|self\.(_\w+)(?:: .*)? = ", source)
            for name in pair
        }
        private = [name for name in used - defined if re.search(rf"\b{name}\b", keras_source)]
        assert private == [], registered


def test_no_imports_from_keras_src():
    for folder in ("tfk_transformer", "export"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            assert "keras.src" not in path.read_text(encoding="utf-8"), path


def test_all_layers_at_any_depth():
    inner = keras.Sequential([keras.layers.Dense(2), keras.layers.Dropout(0.5)])
    outer = keras.Sequential([keras.Input((3,)), inner])
    assert set(map(id, [outer, inner, *inner.layers])) <= set(
        map(id, keras_internals.all_layers(outer))
    )


def test_variables_stay_without_values():
    """Also when Keras initializes the variables of another `StatelessScope`."""
    layers = [keras.layers.Dense(2) for _ in range(2)]
    with keras.StatelessScope(initialize_variables=False):
        for layer in layers:
            layer.build((None, 3))
    keras_internals.never_initialize(layers[0])
    with keras.StatelessScope():
        pass
    assert [[v._value is None for v in layer.variables] for layer in layers] == [
        [True, True],
        [False, False],
    ]


def test_policies_are_selected_by_path():
    policies = keras.dtype_policies.DTypePolicyMap("float32", {"a/b": keras.DTypePolicy("float16")})
    layers = [keras.layers.Dense(2, dtype=policies, name=name) for name in "bc"]
    model = keras.Sequential([keras.Input((3,)), *layers], name="a")
    keras_internals.select_policies(model)
    assert [layer.dtype_policy.name for layer in layers] == ["float16", "float32"]
