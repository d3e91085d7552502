"""Training that continues from a bundle."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from marian_folder import sentences, write_folder

from tfk_transformer.config.model_options import ClassifierConfig, LanguageModelConfig
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.models.classifier import EncoderClassifier
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.data import DataCache
from tfk_transformer.training.distribution import Team
from tfk_transformer.training.fine_tuning import load_start
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.trainer import Training, train

OWN = Path(__file__).parents[1] / "saved_files" / "bundle"
SMALL = {"model_dim": 8, "ff_dim": 8, "num_heads": 2, "max_length": 30}


def write_pairs(folder, count=60):
    for side in ("source", "target"):
        (folder / side).write_text(
            "".join(f"{text}\n" for text in sentences(side, count)), encoding="utf-8"
        )
    return f"files:{folder / 'source'},{folder / 'target'}"


def imported(folder, **options):
    """Import a random folder; return the bundle."""
    import_model(write_folder(folder / "opus", encoder_layers=1, decoder_layers=1, **options)).save(
        folder / "start"
    )
    return folder / "start"


def loss_of(translator, pairs=60):
    texts = [sentences(side, pairs) for side in ("source", "target")]
    return -float(translator.score(*texts).mean())


@pytest.mark.parametrize("towers", [1, pytest.param(2, marks=pytest.mark.long)])  # a training each
def test_frozen_weights_do_not_change(tmp_path, towers):
    """With smoothing, decay, both kinds of averages, and weights that must not change by a bit."""
    start, lines, out = imported(tmp_path, num_beams=5, max_length=9), [], tmp_path / "out"
    recipe = Recipe(
        data=write_pairs(tmp_path),
        start=str(start),
        freeze=("encoder", "decoder/layer_0/self_attention"),
        batch_tokens=128,
        epochs=2,
        learning_rate=1e-2,
        warmup_steps=1,
        label_smoothing=0.1,
        optimizer="adamw",
        weight_decay=0.1,
        ema=0.8,
        average=2,
        search={"length_penalty": 0.5},
    )
    first = load_start(recipe, out, resume=False)
    Training(first.adopt(recipe), out, False, lines.append, None, Team(), towers, first).run()
    before, after = (Translator.load(path) for path in (start, out))
    assert loss_of(after) < loss_of(before) - 1
    losses = json.loads((out / "history.json").read_text())["loss"]
    assert losses[1] < losses[0] < 10
    weights, others = before.model.named_weights, after.model.named_weights
    frozen = {
        name for name in weights if name.startswith(("encoder/", "decoder/layer_0/self_attention/"))
    } | {"output/bias"}
    assert {
        name for name, weight in weights.items() if np.array_equal(weight, others[name])
    } == frozen
    silent = np.asarray(others["output/bias"]) == -1e9
    assert silent[1]
    assert silent.sum() < 9
    assert after.origin == before.origin
    assert (before.search["beam_size"], before.search["max_length"]) == (5, 8)
    assert after.search == {**before.search, "length_penalty": 0.5}  # settings are inherited
    assert after.origin["family"] == "MarianMT"
    assert lines[0] == f"start: {start}"
    sizes = [
        sum(int(np.prod(weight.shape)) for weight in some)
        for some in ([weights[name] for name in frozen], weights.values())
    ]
    assert lines[2] == (
        f"frozen: 25 of 44 weights, {sizes[0]:,} of {sizes[1]:,} parameters: encoder, "
        "decoder/layer_0/self_attention, "
        "output/bias, since some tokens are never predicted"
    )
    assert not [line for line in lines if line.startswith("note:")]


@pytest.mark.long  # a training, and two searches
def test_tiny_rate_keeps_translations(tmp_path):
    """The sides have separate vocabularies, and the recipe changes the dropout."""
    start, texts = imported(tmp_path, separate=True), sentences("source", 4, seed=4)
    recipe = Recipe(
        data=write_pairs(tmp_path),
        start=str(start),
        epochs=1,
        learning_rate=1e-12,
        dropout=0.4,
        max_length=40,
    )
    after = train(recipe, tmp_path / "out", say=lambda line: None)
    short = {"max_length": 12}
    assert after.translate(texts, **short) == Translator.load(start).translate(texts, **short)
    assert after.model.config == Translator.load(start).model.config.replace(dropout=0.4)
    assert after.source_tokenizer.vocab_size != after.target_tokenizer.vocab_size
    assert Recipe.read(tmp_path / "out" / "recipe.toml") == recipe.replace(
        separate_vocabularies=True
    )


def test_default_rate_is_noted(tmp_path):
    """A bundle with its own recipe and new data."""
    own, lines = Recipe.read(OWN / "recipe.toml"), []
    data = ",".join(str(OWN.parent / f"{language}.txt") for language in ("en", "de"))
    given = {
        name: getattr(own, name)
        for name in own.model_fields_set - {"learning_rate", "validation_data"}
    }
    recipe = Recipe(
        **{**given, "data": f"files:{data}", "start": str(OWN), "epochs": 1},
        source_language="en",
    )
    after = train(recipe, tmp_path / "out", say=lines.append)
    assert after.languages == ("en", None)
    assert [
        line
        for line in lines
        if line.startswith("note: the learning rate is 0.001, which suits new models")
    ]
    assert not [line for line in lines if line.startswith("frozen")]
    assert not any(
        np.array_equal(one, other)
        for one, other in zip(
            Translator.load(OWN).model.get_weights(), after.model.get_weights(), strict=True
        )
    )
    assert (
        json.loads((tmp_path / "out" / "history.json").read_text())["loss"][0]
        < json.loads((OWN / "history.json").read_text())["loss"][0]
    )


@pytest.mark.long  # a training, as of other models above
def test_a_language_model_continues(tmp_path):
    data = write_pairs(tmp_path)
    tokenizer = SubwordTokenizer.train(
        sentences("source", 60) + sentences("target", 60), vocab_size=90
    )
    model = LanguageModel(
        LanguageModelConfig(
            vocab_size=tokenizer.vocab_size,
            decoder_layers=1,
            output_bias=True,
            source_language="ka",
            **SMALL,
        )
    )
    model.build()
    Translator(model, tokenizer).save(tmp_path / "start")
    recipe = Recipe(
        data=data,
        start=str(tmp_path / "start"),
        freeze=("embeddings",),
        epochs=1,
        learning_rate=1e-2,
        warmup_steps=1,
    )
    after = train(recipe, tmp_path / "out", say=lambda line: None)
    assert isinstance(after.model, LanguageModel)
    assert after.languages == ("ka", None)
    one, other = model.named_weights, after.model.named_weights
    assert [name for name in one if np.array_equal(one[name], other[name])] == [
        "target_embedding/embeddings"
    ]


@pytest.fixture
def classification(tmp_path):
    """A recipe that starts from a classifier of 3 labels, and has texts with 2 of them."""
    sides = {side: sentences(side, 30) for side in ("source", "target")}
    tokenizer = SubwordTokenizer.train(sides["source"] + sides["target"], vocab_size=90)
    model = EncoderClassifier(
        ClassifierConfig(vocab_size=tokenizer.vocab_size, num_classes=3, encoder_layers=1, **SMALL)
    )
    model.build()
    TextClassifier(model, tokenizer, ["other", "source", "target"]).save(tmp_path / "start")
    (tmp_path / "texts").write_text(
        "".join(f"{text}\n" for texts in sides.values() for text in texts), encoding="utf-8"
    )
    (tmp_path / "labels").write_text(
        "".join(f"{side}\n" for side, texts in sides.items() for _ in texts)
    )
    return Recipe(
        data=f"files:{tmp_path / 'texts'},{tmp_path / 'labels'}",
        start=str(tmp_path / "start"),
        epochs=2,
        learning_rate=1e-2,
    )


def test_a_classifier_continues(classification, tmp_path):
    after = train(classification.replace(warmup_steps=1), tmp_path / "out", say=lambda line: None)
    assert after.labels == ["other", "source", "target"]
    losses = json.loads((tmp_path / "out" / "history.json").read_text())["loss"]
    assert losses[-1] < losses[0]


def test_classifier_refuses_new_labels(classification, tmp_path):
    (tmp_path / "labels").write_text((tmp_path / "labels").read_text().replace("target", "targets"))
    with pytest.raises(
        ValueError,
        match=(
            r"a label that the model has \(other, source, target\), got 'targets'. Did you mean "
            r"'target'"
        ),
    ):
        train(classification, tmp_path / "out", say=lambda line: None)
    assert not (tmp_path / "out.training").exists()


@pytest.mark.long  # two trainings, and searches
def test_cache_uses_bundle_tokenizers(tmp_path):
    start, cache = imported(tmp_path), tmp_path / "cache"
    recipe = Recipe(data=write_pairs(tmp_path), start=str(start), epochs=1, learning_rate=1e-12)
    train(recipe, tmp_path / "one", say=lambda line: None, cache=cache)
    (tmp_path / "source").unlink()  # the texts are no longer read
    train(recipe, tmp_path / "two", say=lambda line: None, cache=cache)
    new = Recipe(data=recipe.data, max_length=47, separate_vocabularies=True)
    with pytest.raises(
        ValueError,
        match=f"cache: {cache} was made with the vocabularies of {start}; name another folder",
    ):
        DataCache(cache, new)
    shutil.copy(start / "source.model", cache / "target.model")
    with pytest.raises(
        ValueError,
        match=(
            "cache: expected the tokenizers of the bundle that training starts from in "
            f"{cache}, got different tokenizers"
        ),
    ):
        train(recipe, tmp_path / "three", say=lambda line: None, cache=cache)
