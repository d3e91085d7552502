"""The figures of training runs, schedules, positions and models, read back from their axes."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from tfk_transformer import plots
from tfk_transformer.config.model_options import (
    ClassifierConfig,
    LanguageModelConfig,
    TransformerConfig,
)
from tfk_transformer.layers.positions import sinusoids
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.models.ensemble import Ensemble
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.runtime_environment import install_line
from tfk_transformer.schedules import InverseSquareRoot

SIZES = {"model_dim": 6, "ff_dim": 7, "num_heads": 3}


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_training_curve_of_losses():
    axes = plots.training_curve(
        {"loss": [3.0, 2.0], "val_loss": [3.5, 2.5], "accuracy": [0.1, 0.2]}
    ).axes[0]
    assert [line.get_label() for line in axes.lines] == ["training", "validation"]
    np.testing.assert_array_equal(axes.lines[1].get_xydata(), [[1, 3.5], [2, 2.5]])


def test_training_curve_draws_bleu():
    figure = plots.training_curve(
        {"loss": [3.0, 2.0, 1.5, 1.2], "val_bleu": [None, 20.0, None, 31.0]}
    )
    right = figure.axes[1]
    np.testing.assert_array_equal(right.lines[0].get_xydata(), [[2, 20.0], [4, 31.0]])
    assert legend(figure.axes[0]) == ["training", "BLEU"]


def test_training_curves_of_two_runs():
    runs = {
        "one": {"loss": [3.0, 2.0], "val_loss": [3.5, 2.5]},
        "two": {"loss": [4.0], "val_bleu": [17.0]},
    }
    losses, bleu = plots.training_curves(runs).axes
    assert legend(losses) == ["one, training", "one, validation", "two, training"]
    assert [line.get_ydata().tolist() for line in losses.lines] == [[3.0, 2.0], [3.5, 2.5], [4.0]]
    assert losses.lines[0].get_color() == losses.lines[1].get_color() != losses.lines[2].get_color()
    assert (legend(bleu), bleu.lines[0].get_ydata().tolist()) == (["two"], [17.0])
    assert (losses.get_ylabel(), bleu.get_ylabel()) == (
        "loss (nats a token)",
        "BLEU of the validation split",
    )


def test_training_curves_draw_on_axes():
    own = Figure().subplots(1, 2)
    figure = plots.training_curves({"one": {"loss": [3.0], "val_bleu": [1.0]}}, axes=own)
    assert figure is own[0].figure
    assert [len(axes.lines) for axes in own] == [1, 1]
    with pytest.raises(ValueError, match="axes: expected 2, for the losses and BLEU, got 1"):
        plots.training_curves({"one": {"loss": [3.0], "val_bleu": [1.0]}}, axes=[own[0]])
    with pytest.raises(ValueError, match="runs: expected at least one history"):
        plots.training_curves({})


def test_learning_rates_match_schedule():
    axes = plots.learning_rates(
        {"paper": InverseSquareRoot(0.5, 4), "flat": lambda step: 0.25}, 100
    ).axes[0]
    steps, rates = axes.lines[0].get_data()
    np.testing.assert_array_equal(steps, np.arange(1, 101))
    np.testing.assert_allclose(
        rates, [0.5 * min(step / 4, (4 / step) ** 0.5) for step in steps], rtol=1e-6
    )
    assert set(axes.lines[1].get_ydata()) == {0.25}
    assert (axes.get_xlabel(), axes.get_ylabel(), legend(axes)) == (
        "training step",
        "learning rate",
        ["paper", "flat"],
    )
    with pytest.raises(
        ValueError, match="expected at least one schedule and one step, got 1 and 0"
    ):
        plots.learning_rates({"flat": lambda step: 1.0}, 0)


def test_position_encodings_plot_table():
    own = Figure().subplots()
    plots.position_encodings(sinusoids(11, 6), axes=own, title="positions")
    np.testing.assert_array_equal(own.images[0].get_array(), sinusoids(11, 6))
    assert (own.get_xlabel(), own.get_ylabel(), own.get_title()) == (
        "dimension of the embedding",
        "position in the sequence",
        "positions",
    )
    assert own.figure.axes[1].get_ylabel() == "value"
    with pytest.raises(ValueError, match=r"table: expected shape \(positions, width\), got \(3,\)"):
        plots.position_encodings(np.ones(3))


def test_positions_of_each_model():
    learned = Transformer(
        TransformerConfig(
            source_vocab_size=11, target_vocab_size=13, positions="learned", max_length=5, **SIZES
        )
    )
    learned.build()
    table, title = plots.positions_of(learned, 100)
    np.testing.assert_array_equal(table, np.asarray(learned.target_positions.table))
    assert (table.shape, title) == ((5, 6), "learned positions")
    classifier = EncoderClassifier(ClassifierConfig(vocab_size=11, num_classes=3, **SIZES))
    classifier.build()
    np.testing.assert_array_equal(plots.positions_of(classifier, 7)[0], sinusoids(7, 6))


def boxes(figure):
    """The texts of a drawing of a model, by name; a name that occurs again has its values in their
    order.
    """
    texts = [text.get_text() for text in figure.axes[0].texts if text.get_text()]
    pairs = {}
    for name, value in zip(texts[::2], texts[1::2], strict=True):
        pairs.setdefault(name, []).append(value)
    return pairs


def test_transformer_layers_are_labeled():
    options = {
        "source_vocab_size": 11,
        "target_vocab_size": 13,
        "tie_embeddings": "target",
        "encoder_layers": 3,
        "decoder_layers": 1,
    }
    model = Transformer(TransformerConfig(**SIZES, **options))
    figure = plots.model_layers(model)
    actual = boxes(figure)
    assert figure.axes[0].get_title() == f"Transformer: {model.count_params():,} parameters"
    assert actual["source tokens"] + actual["target tokens"] == ["(B, S)", "(B, T)"]
    assert actual["encoder layers 1 to 3, each"] + actual["decoder layer 1"] == [
        "(B, S, 6)",
        "(B, T, 6)",
    ]
    assert actual["logits of the vocabulary"] + actual["tied to the embedding"] == [
        "(B, T, 13)",
        "0",
    ]
    # Four projections of 6 by 6; 6 by 7 and back with biases; gamma and beta of each norm.
    assert actual["self-attention, 3 heads"] == ["144", "144"]
    assert actual["cross-attention, 3 heads"] == ["144"]
    assert actual["feed-forward, 7 wide"] == [str(6 * 7 + 7 + 7 * 6 + 6)] * 2
    assert actual["norms"] == ["24", "36"]
    encoder, decoder = (int(number) for number in actual["together"])
    others = sum(int(number) for number in actual["parameters"])
    assert 3 * encoder + decoder + others == model.count_params()


def test_widths_of_both_stacks_are_labeled():
    sizes = {"source_vocab_size": 11, "target_vocab_size": 13, "decoder_ff_dim": 5}
    model = Transformer(TransformerConfig(**SIZES, **sizes, encoder_layers=1, decoder_layers=1))
    actual = boxes(plots.model_layers(model))
    assert actual["feed-forward, 7 wide"] == [str(6 * 7 + 7 + 7 * 6 + 6)]
    assert actual["feed-forward, 5 wide"] == [str(6 * 5 + 5 + 5 * 6 + 6)]


def test_ssrus_are_labeled():
    sizes = {**SIZES, "encoder_layers": 1, "decoder_layers": 2, "decoder_mixer": "ssru"}
    config = TransformerConfig(source_vocab_size=11, target_vocab_size=13, **sizes)
    actual = boxes(plots.model_layers(Transformer(config)))
    assert actual["SSRU"] == [str(6 * 6 + 6 * 6 + 6)]


def test_layers_of_other_models():
    language = plots.model_layers(
        LanguageModel(LanguageModelConfig(vocab_size=11, decoder_layers=2, **SIZES))
    )
    assert list(boxes(language))[:2] == [
        "tokens",
        "embedding",
    ]
    assert "cross-attention, 3 heads" not in boxes(language)
    classifier = boxes(
        plots.model_layers(
            EncoderClassifier(
                ClassifierConfig(vocab_size=11, num_classes=5, encoder_layers=1, **SIZES)
            )
        )
    )
    assert classifier["classes"] == ["(B, 5)"]
    assert classifier["parameters"][-1] == "35"
    config = TransformerConfig(
        source_vocab_size=11,
        target_vocab_size=13,
        encoder_layers=1,
        decoder_layers=1,
        tie_embeddings="none",
        **SIZES,
    )
    ensemble = boxes(plots.model_layers(Ensemble([Transformer(config), Transformer(config)])))
    assert {"member 0 source tokens", "member 1 target tokens"} <= set(ensemble)


def test_layer_drawing_fits_figure():
    model = Transformer(
        TransformerConfig.preset("tiny", source_vocab_size=8000, target_vocab_size=8000)
    )
    figure = plots.model_layers(model)
    figure.draw_without_rendering()
    whole = figure.bbox
    for text in [*figure.axes[0].texts, figure.axes[0].title]:
        inside = text.get_window_extent()
        assert (
            whole.x0 <= inside.x0
            and inside.x1 <= whole.x1
            and whole.y0 <= inside.y0
            and inside.y1 <= whole.y1
        ), text.get_text()


def test_figure_shows_in_notebook():
    assert plots.training_curve({"loss": [3.0, 2.0]})._repr_png_().startswith(b"\x89PNG")


def test_page_needs_no_matplotlib():
    code = """
import sys
sys.modules["matplotlib"] = None
from tfk_transformer import plots
print(plots.attention_page.__name__)
try:
    plots.attention_map
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "attention_page",
        f"matplotlib is not installed. Install it with: {install_line('plots')}",
    ]


def test_the_package_holds_the_page():
    code = """
import json, runpy, setuptools
setuptools.setup = lambda **given: print(json.dumps(given["package_data"]))
runpy.run_path("setup.py")
"""
    repository = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=repository
    )
    files = json.loads(done.stdout)["tfk_transformer.plots"]
    assert files == [
        path.name
        for path in (repository / "tfk_transformer" / "plots").iterdir()
        if re.search(r"\.(?!py)", path.name)
    ]
