"""The attention of a sentence from each kind of model, and the page that shows it, read back in a
browser.
"""

import base64
import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from random_translators import of_transformer, translator_of

import tfk_transformer as tfk
from tfk_transformer.constants import START_ID
from tfk_transformer.export.runtime.onnx_runtime import OnnxScorer
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.plots import AttentionWeights, attention_figure, attention_of, attention_page
from tfk_transformer.plots.attention_weights import HeadMaps

SOURCE, TARGET = "one hundred seventy-eight", "einhundertachtundsiebzig"


@pytest.fixture(scope="module")
def attention(translator):
    """The attention of the search's translation, from the Keras model."""
    return attention_of(translator, SOURCE)


def test_bundle_gives_all_attention(attention, translator):
    assert (attention.source, attention.translation, attention.missing) == (SOURCE, TARGET, "")
    assert attention.score == translator.translate([SOURCE], attention=True)[0].score
    config = translator.model.config
    source, target = attention.encoder.rows, attention.cross.rows
    assert "".join(source) == "▁one▁hundred▁seventy-eight</s>"
    assert "".join(target) == f"▁{TARGET}</s>"
    assert attention.cross.columns == attention.encoder.columns == source
    assert attention.decoder.columns == ["<s>", *target[:-1]]
    assert attention.decoder.rows == target
    for _, maps in attention.kinds().items():
        assert maps.weights.shape == (2, config.num_heads, len(maps.rows), len(maps.columns))
        np.testing.assert_allclose(maps.weights.sum(axis=-1), 1, atol=1e-5)
    assert np.triu(attention.decoder.weights[0, 0], 1).max() < 1e-6  # nothing of what comes later


def test_selected_heads_have_titles_and_a_layer(attention):
    selected = attention.cross.select(layer=1, head=2)
    assert (selected.titles, selected.layer) == (["head 2"], "layer 1 of 2")
    np.testing.assert_array_equal(selected.weights, attention.cross.weights[:1, 1])
    mean = attention.cross.select(mean=True)
    assert (mean.titles, mean.layer) == (["mean of all heads"], "mean of 2 layers")
    np.testing.assert_allclose(mean.weights[0], attention.cross.weights.mean(axis=(0, 1)))


def test_weights_match_the_model(attention, translator):
    ids = [
        translator.source_tokenizer.encode([SOURCE])[0] + [2],
        [START_ID, *translator.target_tokenizer.encode([TARGET])[0]],
    ]
    maps = translator.model.attention_maps(
        {"source": np.array(ids[:1]), "target": np.array(ids[1:])}
    )
    for name in ("encoder", "decoder", "cross"):
        expected = np.stack([np.asarray(layer)[0] for layer in getattr(maps, name)])
        np.testing.assert_allclose(getattr(attention, name).weights, expected, atol=1e-5)


@pytest.mark.parametrize("file", ["saved_model", "translate.onnx", "score.onnx"])
def test_files_give_cross_attention(attention, exported, file):
    path = exported / file
    model = OnnxScorer(path) if file == "score.onnx" else tfk.load(path)
    other = attention_of(model, SOURCE, TARGET)
    np.testing.assert_allclose(other.cross.weights, attention.cross.weights, atol=1e-5)
    assert (other.cross.rows, other.cross.columns, other.score) == (
        attention.cross.rows,
        attention.cross.columns,
        None,
    )
    assert (other.encoder, other.decoder) == (
        None,
        None,
    )
    assert "a bundle shows that of encoder and decoder" in other.missing


def test_decoder_only_has_one_kind(translator):
    sizes = {"model_dim": 6, "ff_dim": 7, "num_heads": 3, "decoder_layers": 1, "max_length": 40}
    model = translator_of(
        translator.source_tokenizer,
        LanguageModel,
        vocab_size=translator.source_tokenizer.vocab_size,
        **sizes,
    )
    other = attention_of(model, "one", "two")
    assert (other.cross, other.encoder) == (
        None,
        None,
    )
    assert other.missing == "A decoder-only model has no encoder."
    assert other.decoder.columns[:2] == ["<s>", "▁one"]
    assert other.decoder.weights.shape[:2] == (
        1,
        3,
    )


def test_ssru_decoder_has_two_kinds(translator):
    size = translator.source_tokenizer.vocab_size
    options = {"source_vocab_size": size, "target_vocab_size": size, "max_length": 40}
    model = of_transformer(translator.source_tokenizer, **options, decoder_mixer="ssru")
    other = attention_of(model, "one", "two")
    assert list(other.kinds()) == ["cross", "encoder"]
    assert other.missing == "A decoder of SSRUs has no self-attention."


@pytest.mark.long  # a search with two models
def test_ensemble_gives_mean_attention(translator):
    other = attention_of(Translator.ensemble([translator, translator]), SOURCE, TARGET)
    assert list(other.kinds()) == ["cross"]
    assert "An ensemble has only the mean attention" in other.missing


def test_a_blank_text_is_refused(translator):
    with pytest.raises(ValueError, match="text: expected a sentence, got blank text"):
        attention_of(translator, " ")


def test_a_figure_has_the_chosen_heads(attention):
    def shown(**chosen):
        figure = attention_figure(attention, **chosen)
        *panels, _ = figure.axes
        return (
            figure._suptitle.get_text(),
            [panel.get_title() for panel in panels],
            [panel.images[0].get_array() for panel in panels],
        )

    title, heads, images = shown()
    assert (title, heads) == (
        "decoder to source: layer 2 of 2",
        ["head 1", "head 2", "head 3", "head 4"],
    )
    np.testing.assert_array_equal(images, attention.cross.weights[1])
    title, heads, images = shown(kind="encoder", layer=1, head=-1)
    assert (title, heads) == ("encoder, source to source: layer 1 of 2", ["head 4"])
    np.testing.assert_array_equal(images[0], attention.encoder.weights[0, 3])
    title, heads, images = shown(mean=True)
    assert (title, heads) == ("decoder to source: mean of 2 layers", ["mean of all heads"])
    np.testing.assert_allclose(images[0], attention.cross.weights.mean(axis=(0, 1)))
    np.testing.assert_allclose(
        shown(layer=-2, mean=True)[2][0], attention.cross.weights[0].mean(axis=0)
    )


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (
            {"layer": 3},
            "layer: expected a number from 1 to 2, or from -1 to -2 for the last ones, got 3",
        ),
        ({"head": 0}, "head: expected a number from 1 to 4"),
        ({"head": 1, "mean": True}, "head: expected none with the mean of all heads, got 1"),
    ],
)
def test_bad_layer_or_head_is_refused(attention, chosen, message):
    with pytest.raises(ValueError, match=message):
        attention_figure(attention, **chosen)


def test_missing_kind_is_refused(attention):
    with pytest.raises(ValueError, match="kind: expected one of cross, got 'encoder'. Why not."):
        attention_figure(
            attention._replace(encoder=None, decoder=None, missing="Why not."), "encoder"
        )


def made():
    """Weights of two layers and three heads, whose sizes all differ, with text that could be
    markup.
    """
    rows, columns = ["▁</script>", "▁&amp;", "مرحبا", "</s>"], ["▁<b>", "中文", "▁c", "▁d", "</s>"]
    random = np.random.default_rng(0)
    cross = HeadMaps(random.dirichlet(np.ones(5), (2, 3, 4)).astype("float32"), rows, columns)
    encoder = HeadMaps(random.dirichlet(np.ones(5), (2, 3, 5)).astype("float32"), columns, columns)
    return AttentionWeights("a </script> b", "<i>c</i>", -0.125, cross, encoder, None, "Why not.")


def test_the_page_holds_all_weights():
    weights, page = made(), attention_page(made())
    data = json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1]
    )
    assert (data["source"], data["translation"], data["score"], data["missing"]) == (
        "a </script> b",
        "<i>c</i>",
        -0.125,
        "Why not.",
    )
    assert [kind["title"] for kind in data["kinds"]] == [
        "decoder to source",
        "encoder, source to source",
    ]
    assert data["kinds"][0]["rows"] == ["</script>", "&amp;", "مرحبا", "</s>"]
    for kind, (_, maps) in zip(data["kinds"], weights.kinds().items(), strict=True):
        stored = (
            np.frombuffer(base64.b64decode(kind["weights"]), "uint8").reshape(maps.weights.shape)
            / 255
        )
        np.testing.assert_allclose(stored, maps.weights, atol=0.5 / 255 + 1e-6)
    assert "http" not in re.sub(r"http-equiv", "", page)  # no other host


BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.mark.skipif(not BROWSER, reason="Chromium is not installed")
def test_browser_shows_attention_page(tmp_path):
    import html5lib

    weights = made()
    # The second head of the first layer is chosen as a user would, and an arrow key reads the cell
    # next to the first one.
    steps = """<script>
      document.querySelector('[aria-label="layer 1, head 2"]').click();
      document.querySelector("td[tabindex='0']").focus();
      const right = new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true });
      document.activeElement.dispatchEvent(right);
    </script>"""
    (tmp_path / "page.html").write_text(
        attention_page(weights).replace("</body>", f"{steps}</body>"), encoding="utf-8"
    )
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        f"--user-data-dir={tmp_path / 'user'}",
    ]
    command += ["--disable-dev-shm-usage", "--dump-dom", f"file://{tmp_path / 'page.html'}"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    page = html5lib.parse(done.stdout, namespaceHTMLElements=False)
    by_id = {element.get("id"): element for element in page.iter() if element.get("id")}

    def texts(path):
        return ["".join(element.itertext()) for element in by_id["map"].findall(path)]

    assert texts(".//thead//th") == ["<b>", "中文", "c", "d", "</s>"]
    assert texts(".//tbody//th") == ["</script>", "&amp;", "مرحبا", "</s>"]
    shown = [float(cell.get("aria-label")) for cell in by_id["map"].findall(".//tbody//td")]
    np.testing.assert_allclose(np.reshape(shown, (4, 5)), weights.cross.weights[0, 1], atol=0.008)
    assert by_id["map-name"].text == "decoder to source: layer 1, head 2"
    assert by_id["reading"].text == f"</script> attends to 中文: {shown[1]:.2f}"
    assert (by_id["source"].text, by_id["translation"].text, by_id["score"].text) == (
        "a </script> b",
        "<i>c</i>",
        "-0.125",
    )
    assert len(by_id["overview"].findall(".//button")) == 6
