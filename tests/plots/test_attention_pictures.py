"""Heat maps of attention and pictures of alignments, from 3 to 60 tokens and in several scripts."""

import io
import itertools

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.figure import Figure

from tfk_transformer.plots import alignment, attention_map
from tfk_transformer.plots.figures import fonts_for
from tfk_transformer.text.results import Hypothesis, Translation

WORDS = [
    "▁the",
    "▁internationalization",
    "s",
    "▁,",
    "▁",
    "$",
    "▁مرحبا",
    "▁dog",
    "▁unexpected",
    "ly",
    "</s>",
]
NOWHERE = "\U00012f90"  # of the Cypro-Minoan syllabary


def tokens(count):
    return [WORDS[i % len(WORDS)] for i in range(count)]


def weights_of(*shape):
    return np.random.default_rng(0).dirichlet(np.full(shape[-1], 0.2), size=shape[:-1])


def overlap(one, other):
    return (
        min(one.x1, other.x1) - max(one.x0, other.x0) > 0
        and min(one.y1, other.y1) - max(one.y0, other.y0) > 0
    )


def check_texts(figure, texts):
    """No text touches another one or leaves the figure."""
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    texts = [text for text in texts if text.get_text()]
    width, height = figure.bbox.size
    for text, box in zip(texts, boxes, strict=True):
        assert -1 < box.x0 and box.x1 < width + 1 and -1 < box.y0 and box.y1 < height + 1, (
            text.get_text()
        )
    pairs = itertools.combinations(zip(texts, boxes, strict=True), 2)
    assert [
        (one.get_text(), other.get_text())
        for (one, box), (other, other_box) in pairs
        if overlap(box, other_box)
    ] == []


def test_attention_map_panel_per_head():
    weights = weights_of(5, 2, 3)
    figure = attention_map(weights, ["ein", "▁Hund", "</s>"], ["a", "dog"])
    *panels, bar = figure.axes
    assert len(panels) == 5
    np.testing.assert_array_equal(panels[4].images[0].get_array(), weights[4])
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["ein", "Hund", "</s>"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["a", "dog"]
    assert [panel.get_title() for panel in panels] == [
        "head 1",
        "head 2",
        "head 3",
        "head 4",
        "head 5",
    ]
    assert (panels[0].get_xlabel(), panels[0].get_ylabel(), bar.get_ylabel()) == (
        "token attended to",
        "token predicted",
        "attention weight",
    )


def test_panels_share_one_color_scale():
    weights = weights_of(2, 3, 5)
    images = [panel.images[0] for panel in attention_map(weights, tokens(5), tokens(3)).axes[:2]]
    assert [image.get_clim() for image in images] == [(0, weights.max())] * 2
    lightness = images[0].cmap(np.linspace(0, 1, 9))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness) > 0.05).all()


@pytest.mark.parametrize(("count", "heads"), [(3, 4), (25, 2), (60, 1)])
def test_many_tokens_stay_legible(count, heads):
    figure = attention_map(
        weights_of(heads, count - 1, count), tokens(count), tokens(count - 1), title="layer 2 of 2"
    )
    *panels, bar = figure.axes
    labels = [
        label for panel in panels for label in [*panel.get_xticklabels(), *panel.get_yticklabels()]
    ]
    assert {label.get_fontsize() for label in labels} == {8}
    names = [
        part for panel in panels for part in (panel.title, panel.xaxis.label, panel.yaxis.label)
    ]
    others = [bar.yaxis.label, *bar.get_yticklabels()[1:-1], figure._suptitle]
    check_texts(figure, [*labels, *names, *others])


def test_single_map_draws_on_axes():
    own = Figure().subplots()
    weights = weights_of(3, 5)
    assert (
        attention_map(weights, tokens(5), tokens(3), axes=own, labels=("read", "written"))
        is own.figure
    )
    np.testing.assert_array_equal(own.images[0].get_array(), weights)
    assert (own.get_xlabel(), own.get_ylabel(), own.get_title()) == ("read", "written", "")
    with pytest.raises(ValueError, match="axes: expected one for each of 2 heads, got 1"):
        attention_map(weights_of(2, 3, 5), tokens(5), tokens(3), axes=own)


def test_attention_map_checks_tokens():
    with pytest.raises(
        ValueError, match=r"weights: expected shape \(heads, 1, 3\) for the tokens, got \(5, 2, 3\)"
    ):
        attention_map(np.ones((5, 2, 3)), ["a", "b", "c"], ["d"])


def test_labels_drop_the_blank_mark():
    given = ["▁", "▁a▁b", "$x$", "\n", "</s>", "▁" + "x" * 30]
    axes = attention_map(weights_of(1, 1, len(given)), given, ["t"]).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "␣",
        "a b",
        "$x$",
        "�",
        "</s>",
        "x" * 23 + "…",
    ]
    assert not any(label.get_parse_math() for label in axes.get_xticklabels())


def test_fallback_font_is_chosen():
    """Letters of mathematics stand for Chinese: every matplotlib brings a font for them, but not
    DejaVu Sans.
    """
    first, *others = fonts_for(["a", "𝓐"])
    assert others
    has = [
        ord("𝓐") in font_manager.get_font(font_manager.findfont(name)).get_charmap()
        for name in (first, others[0])
    ]
    assert has == [False, True]
    figure = attention_map(weights_of(1, 1, 2), ["a", "𝓐"], ["t"])
    assert figure.axes[0].get_xticklabels()[1].get_fontfamily() == [first, *others]
    figure.savefig(io.BytesIO())  # without a warning of a missing glyph


def test_missing_font_gives_warning():
    with pytest.warns(
        UserWarning,
        match=f"fonts: .* '{NOWHERE}', found none, so the picture shows boxes; install one",
    ):
        figure = attention_map(weights_of(1, 1, 2), ["a", NOWHERE], ["t"])
    figure.savefig(io.BytesIO())  # matplotlib's own warning would be an error here


def translation(source, target, weights):
    """A translation word by word, with one layer and one head."""
    pieces = [[*(f"▁{word}" for word in text.split()), "</s>"] for text in (source, target)]
    return Translation(
        source,
        [
            Hypothesis(
                target, -1.0, pieces[1], None, np.array(weights, "float32")[None, None], pieces[0]
            )
        ],
    )


def test_alignment_draws_each_link():
    actual = translation(
        "the red dog",
        "le chien rouge",
        [[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.6, 0.1], [0.0, 0.8, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]],
    )
    axes = alignment(actual).axes[0]
    assert [text.get_text().strip() for text in axes.texts] == [
        "the",
        "red",
        "dog",
        "le",
        "chien",
        "rouge",
    ]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["source", "translation"]
    lines = {tuple(line.get_ydata()): line for line in axes.lines}
    assert set(lines) == {(0, 0), (1, 2), (2, 1)}
    assert {line.get_linestyle() for line in axes.lines} == {"-"}  # the best both ways
    assert lines[1, 2].get_linewidth() == pytest.approx(1 + 3 * 0.8)


def test_one_way_link_is_dotted():
    actual = translation("a b", "x", [[0.3, 0.6, 0.1], [0.1, 0.1, 0.8]])
    own = Figure().subplots()
    assert alignment(actual, axes=own) is own.figure
    assert {(*line.get_ydata(), line.get_linestyle()) for line in own.lines} == {
        (0.0, 0.5, ":"),
        (1.0, 0.5, "-"),
    }


@pytest.mark.parametrize("count", [3, 25, 60])
def test_alignment_words_do_not_touch(count):
    words = [word.strip("▁") for word in tokens(count) if word.strip("▁")]
    figure = alignment(translation(" ".join(words), " ".join(words), np.eye(len(words) + 1)))
    check_texts(figure, [*figure.axes[0].texts, *figure.axes[0].get_xticklabels()])


def test_alignment_needs_attention():
    with pytest.raises(
        ValueError,
        match="translation: expected one with attention, got none; translate with attention=True",
    ):
        alignment(Translation("a", [Hypothesis("b", -1.0)]))
