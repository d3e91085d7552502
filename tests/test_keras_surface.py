"""Keras's methods of models and layers do what the table of benchmarks/keras-methods.md says."""

import keras_surface
import pytest

SHORT = ("fit_class_weight", "weights_file", "layer_calls", "compile_metrics")


@pytest.fixture(scope="module")
def rows():
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    return keras_surface.load_rows()


def assert_documented(rows, backend, outcomes):
    documented = keras_surface.read_table()[backend]
    actual = {rows[name].text: outcome for name, outcome in outcomes.items()}
    assert actual == {text: documented[text] for text in actual}


@pytest.mark.long  # compiles some hundred steps, layers and exports
@pytest.mark.parametrize("part", keras_surface.PARTS)
@pytest.mark.parametrize("backend", keras_surface.NAMES)
def test_every_row(rows, backend, part):
    names = [name for name, row in rows.items() if row.run.__module__ == f"keras_surface_{part}"]
    outcomes = keras_surface.run_under(backend, *names)
    assert list(outcomes) == names != []
    assert_documented(rows, backend, outcomes)


def test_short_rows(rows):
    assert_documented(rows, "tensorflow", {name: rows[name].outcome() for name in SHORT})


def test_table_has_the_expected_outcomes(rows):
    from keras_surface_rows import is_expected

    table = keras_surface.read_table()
    for backend, outcomes in table.items():
        assert list(outcomes) == [row.text for row in rows.values()]
        unexpected = {
            row.text: outcomes[row.text]
            for row in rows.values()
            if not is_expected(row.expected[backend], outcomes[row.text])
        }
        assert unexpected == {}
