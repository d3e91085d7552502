import numpy as np
import pytest

from tfk_transformer.plots import attention_map, training_curve


def test_training_curve_draws_both_losses():
    axes = training_curve({"loss": [3.0, 2.0], "val_loss": [3.5, 2.5], "accuracy": [0.1, 0.2]}).axes[0]
    assert [line.get_label() for line in axes.lines] == ["training", "validation"]
    np.testing.assert_array_equal(axes.lines[1].get_xydata(), [[1, 3.5], [2, 2.5]])


def test_training_curve_draws_bleu_where_it_was_measured():
    figure = training_curve({"loss": [3.0, 2.0, 1.5, 1.2], "val_bleu": [None, 20.0, None, 31.0]})
    right = figure.axes[1]
    np.testing.assert_array_equal(right.lines[0].get_xydata(), [[2, 20.0], [4, 31.0]])
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["training", "BLEU"]


def test_attention_map_has_a_panel_a_head():
    weights = np.random.default_rng(0).dirichlet(np.ones(3), size=(5, 2))
    figure = attention_map(weights, ["ein", "▁Hund", "</s>"], ["a", "dog"])
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert len(shown) == 5
    np.testing.assert_array_equal(shown[4].images[0].get_array(), weights[4])
    assert [label.get_text() for label in shown[0].get_yticklabels()] == ["a", "dog"]


def test_attention_map_refuses_tokens_that_do_not_fit():
    with pytest.raises(ValueError, match=r"weights: expected shape \(heads, 1, 3\) for the tokens, got \(5, 2, 3\)"):
        attention_map(np.ones((5, 2, 3)), ["a", "b", "c"], ["d"])
