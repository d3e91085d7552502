"""A classifier is trained from files of texts and labels, as a translator is from two languages."""

import json

import numpy as np
import pytest

from tfk_transformer.data.labels import Labels
from tfk_transformer.datasets.numbers import spell
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.trainer import train


def write_files(folder, name, numbers):
    """Write number words in three languages with the name of the language as label; return the
    spec.
    """
    rows = [
        (spell(number, language), language) for number in numbers for language in ("en", "de", "fr")
    ]
    texts, labels = (folder / f"{name}.{kind}.txt" for kind in ("texts", "labels"))
    texts.write_text("".join(f"{text}\n" for text, _ in rows), encoding="utf-8")
    labels.write_text("".join(f"{label} \n" for _, label in rows), encoding="utf-8")
    return f"files:{texts},{labels}"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("languages")
    return Recipe(
        data=write_files(folder, "train", range(200)),
        validation_data=write_files(folder, "validation", range(200, 230)),
        architecture="encoder",
        preset="tiny",
        options={"model_dim": 32, "ff_dim": 64, "num_heads": 2, "encoder_layers": 1},
        vocab_size=80,
        max_length=32,
        batch_tokens=512,
        epochs=4,
        learning_rate=3e-3,
        warmup_steps=20,
        average=2,
    )


@pytest.fixture(scope="module")
def trained(recipe, tmp_path_factory):
    """The classifier, its bundle, and the lines that training printed."""
    out, lines = tmp_path_factory.mktemp("bundle") / "languages", []
    return train(recipe, out, say=lines.append), out, lines


def test_classifier_learns_labels(trained):
    classifier, _, _ = trained
    assert isinstance(classifier, TextClassifier)
    assert classifier.labels == ["de", "en", "fr"]
    texts = [
        spell(number, language) for number in range(230, 330) for language in ("en", "de", "fr")
    ]
    actual = [classification.label for classification in classifier.classify(texts)]
    assert (
        np.mean(
            [
                label == expected
                for label, expected in zip(actual, ["en", "de", "fr"] * 100, strict=True)
            ]
        )
        > 0.9
    )


def test_classifier_bundle_is_complete(trained, recipe):
    classifier, out, lines = trained
    names = [
        "config.json",
        "curve.png",
        "history.json",
        "labels.json",
        "metrics.json",
        "model.safetensors",
        "probes.txt",
        "recipe.toml",
    ]
    assert sorted(path.name for path in out.iterdir()) == [*names, "source.model"]
    assert Recipe.read(out / "recipe.toml") == recipe
    history = json.loads((out / "history.json").read_text())
    assert history["val_loss"][-1] < history["val_loss"][0]
    assert history["val_accuracy"][-1] > 0.9
    assert json.loads((out / "metrics.json").read_text())["averaged_epochs"] == [3, 4]
    assert TextClassifier.load(out).classify(["drei"]) == classifier.classify(["drei"])
    assert lines[0].endswith(" subwords, 3 labels")
    assert lines[1].startswith("train: 600 texts, ")
    assert lines[2].startswith("validation: 90 texts, ")
    assert f"accuracy {history['val_accuracy'][0]:.1%}, " in lines[3]


def test_cache_replaces_text_files(recipe, tmp_path):
    data = write_files(tmp_path, "copy", range(40))
    short = recipe.replace(data=data, validation_data=None, epochs=1, average=1)
    first = train(short, tmp_path / "first", say=lambda line: None, cache=tmp_path / "cache")
    for path in tmp_path.glob("copy.*"):
        path.unlink()
    second = train(short, tmp_path / "second", say=lambda line: None, cache=tmp_path / "cache")
    assert second.labels == first.labels == ["de", "en", "fr"]
    for one, other in zip(first.model.get_weights(), second.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_unknown_label_is_refused(recipe, tmp_path):
    (tmp_path / "texts").write_text("one\n")
    (tmp_path / "labels").write_text("eng\n")
    other = recipe.replace(validation_data=f"files:{tmp_path / 'texts'},{tmp_path / 'labels'}")
    with pytest.raises(
        ValueError,
        match=r"expected a label that the model has \(de, en, fr\), got 'eng'. Did you mean 'en'\?",
    ):
        train(other, tmp_path / "bundle", say=lambda line: None)
    assert not (tmp_path / "bundle.training").exists()


def test_single_label_is_refused():
    with pytest.raises(
        ValueError, match="data: expected at least two different labels, one per text, got en."
    ):
        Labels.of(["en", " en", "en "])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing": 0.1}, "label_smoothing must be 0 with architecture 'encoder'"),
        (
            {"evaluate_every": 1},
            "evaluate_every must be 0 with architecture 'encoder', which does not translate",
        ),
        ({"consistency": 1.0}, "consistency must be 0 with architecture 'encoder'"),
        (
            {"separate_vocabularies": True},
            "separate_vocabularies needs architecture 'encoder_decoder'",
        ),
        (
            {"options": {"num_classes": 3}},
            (
                "expected only options of the model, got num_classes, which the recipe or the data "
                "determines"
            ),
        ),
        ({"options": {"decoder_layers": 3}}, "unknown key 'decoder_layers'"),
    ],
)
def test_unsuitable_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Recipe(data="files:a,b", architecture="encoder", **options)


def test_classifier_defaults():
    assert Recipe(data="files:a,b", architecture="encoder").label_smoothing == 0.0
    config = Recipe(data="files:a,b", architecture="encoder", preset="tiny").config(31, 3)
    assert (config.vocab_size, config.num_classes, config.encoder_layers) == (31, 3, 2)
