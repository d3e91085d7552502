from pathlib import Path

import keras
import numpy as np
import pytest
from typer.testing import CliRunner

from tfk_transformer.apps.cli.commands.train import read_recipe
from tfk_transformer.apps.cli.main import app
from tfk_transformer.training.compilation import optimizer as make_optimizer
from tfk_transformer.training.recipe import Recipe

SHIPPED = sorted(Path(__file__).parents[2].joinpath("recipes").glob("*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_recipes_round_trip(path, tmp_path):
    recipe = Recipe.read(path)
    (tmp_path / "again.toml").write_text(recipe.to_toml())
    assert Recipe.read(tmp_path / "again.toml") == recipe


def test_to_toml_explains_each_value():
    recipe = Recipe(
        data="numbers:en-de",
        options={"norm": "post", "num_heads": 2},
        profile=(2, 5),
        tensorboard=True,
        ema=0.99,
    )
    text = recipe.to_toml()
    assert (
        'options = {norm = "post", num_heads = 2} # options of the model that differ from the '
        "preset's, by name"
    ) in text
    assert "profile = [2, 5] # first and last batch" in text
    assert "# Subwords\n" in text
    assert "minutes" not in text  # None has no TOML


def test_command_line_overrides_file(tmp_path):
    (tmp_path / "a.toml").write_text(
        'data = "numbers:en-de"\nepochs = 3\noptions = {norm = "post", num_heads = 2}\n'
    )
    recipe = read_recipe(tmp_path / "a.toml", {"epochs": 7, "options": ["norm=pre", "ff_dim=64"]})
    assert (recipe.data, recipe.epochs, recipe.options) == (
        "numbers:en-de",
        7,
        {"norm": "pre", "num_heads": 2, "ff_dim": 64},
    )


def test_settings_override_the_file(tmp_path):
    file = tmp_path / "recipe.toml"
    file.write_text('data = "numbers:en-de"\nsearch = {beam_size = 6, length_penalty = 1.0}\n')
    settings = ["length_penalty=0.5", "early_stopping=never", "forced_eos=true"]
    recipe = read_recipe(file, {"search": settings})
    assert recipe.search == {
        "beam_size": 6,
        "length_penalty": 0.5,
        "early_stopping": "never",
        "forced_eos": True,
    }
    (tmp_path / "again.toml").write_text(recipe.to_toml())
    assert Recipe.read(tmp_path / "again.toml") == recipe
    with pytest.raises(ValueError, match="early_stopping: expected one of false, true, never, got"):
        read_recipe(file, {"search": ["early_stopping=always"]})
    with pytest.raises(ValueError, match="search needs a model that translates"):
        Recipe(data="files:a,b", architecture="encoder", search={"beam_size": 2})


def test_print_config_can_be_read(tmp_path):
    arguments = [
        "train",
        "--data",
        "numbers:en-de",
        "--tensorboard",
        "--profile",
        "2",
        "5",
        "--subword-sampling",
        "0.25",
        "--print-config",
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    (tmp_path / "a.toml").write_text(done.output)
    assert Recipe.read(tmp_path / "a.toml") == Recipe(
        data="numbers:en-de", tensorboard=True, profile=(2, 5), subword_sampling=0.25
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data = ", "expected TOML in .*a.toml, got invalid TOML: Invalid value"),
        ("epochs = 3", "^--data: expected a spec"),
        ('data = "x"\nepoch = 3', "unknown key 'epoch'. Did you mean 'epochs'?"),
        ('data = "x"\nmonitor = "bleu"', "monitor='bleu' needs evaluate_every"),
        ('data = "x"\nweight_decay = 0.1', "weight_decay needs optimizer 'adamw' or 'lion'"),
        (
            'data = "x"\ntokenizer = "char"\nbyte_fallback = true\nsubword_sampling = 0.1',
            "byte_fallback needs .*; subword_sampling needs",
        ),
        (
            'data = "x"\nsource_tokens = "characters"\nbyte_fallback = true',
            "source_tokens and target_tokens must be equal without separate_vocabularies",
        ),
        (
            'data = "x"\nsource_tokens = "words"\ntarget_tokens = "words"\nbyte_fallback = true',
            "byte_fallback needs tokenizer",
        ),
        ('data = "x"\ntarget_tokens = "("', "expected characters, words or a regular expression"),
        (
            'data = "x"\narchitecture = "encoder"\ntarget_tokens = "words"',
            "target_tokens needs a model that translates",
        ),
        (
            'data = "x"\nseparate_vocabularies = true\narchitecture = "decoder"',
            "separate_vocabularies needs architecture 'encoder_decoder'",
        ),
        ('data = "x"\nprofile = [1, 2]', "profile needs tensorboard"),
        (
            'data = "x"\nconsistency = 2.5\noptions = { output = "probabilities" }',
            "consistency: expected 0 for a model whose output is 'probabilities', got 2.5",
        ),
        (
            'data = "x"\ntokenizer = "bpe"\nsubword_sampling = 0.1',
            "subword_sampling needs tokenizer 'unigram'",
        ),
    ],
)
def test_invalid_recipe_file_is_refused(tmp_path, text, message):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_recipe(tmp_path / "a.toml", {})


def test_missing_recipe_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match="recipe: expected a TOML file, got .*none.toml, which does not exist."
    ):
        Recipe.read(tmp_path / "none.toml")


def rates(steps, **settings):
    """The learning rates of so many batches, from a real optimizer."""
    optimizer = make_optimizer(Recipe(data="numbers:en-de", **settings), steps)
    variable = keras.Variable([0.0])
    optimizer.build([variable])
    actual = []
    for _ in range(steps):
        actual.append(float(np.asarray(optimizer.learning_rate)))
        optimizer.apply([np.array([1.0], "float32")], [variable])
    return np.array(actual)


def test_the_rate_rises_and_falls():
    cosine = rates(12, epochs=1, schedule="cosine", warmup_steps=4, learning_rate=0.5)
    np.testing.assert_allclose(cosine[:4], [0, 0.125, 0.25, 0.375])
    np.testing.assert_allclose(cosine[4:], 0.25 * (1 + np.cos(np.pi * np.arange(8) / 8)), rtol=1e-5)
    constant = rates(12, epochs=1, schedule="constant", warmup_steps=4, learning_rate=0.5)
    np.testing.assert_allclose(constant, [0, 0.125, 0.25, 0.375, *[0.5] * 8])
    np.testing.assert_allclose(
        rates(9, epochs=1, warmup_steps=4)[[0, 3, 8]],
        [0.25e-3, 1e-3, 1e-3 * (4 / 9) ** 0.5],
        rtol=1e-6,
    )


def test_warmup_counts_updates():
    alone = rates(12, epochs=1, schedule="cosine", warmup_steps=4, learning_rate=0.5)
    several = rates(
        24, epochs=1, schedule="cosine", warmup_steps=4, learning_rate=0.5, accumulate=2
    )
    np.testing.assert_allclose(several[::2], alone, rtol=1e-6)


def test_too_long_warmup_is_refused():
    with pytest.raises(
        ValueError,
        match="warmup_steps: expected fewer than the 12 updates of this training, got 1,000.",
    ):
        rates(12, epochs=1, schedule="cosine")


@pytest.mark.parametrize("name", ["adam", "adamw", "lion", "adafactor", "sgd"])
def test_recipe_makes_keras_optimizers(name):
    decay = {"weight_decay": 0.01} if name in ("adamw", "lion") else {}
    optimizer = make_optimizer(
        Recipe(data="numbers:en-de", optimizer=name, ema=0.9, accumulate=3, clip_norm=0.5, **decay),
        10,
    )
    assert type(optimizer).__name__.lower() == name
    assert (
        optimizer.global_clipnorm,
        optimizer.ema_momentum,
        optimizer.gradient_accumulation_steps,
    ) == (0.5, 0.9, 3)
    assert optimizer.weight_decay == (0.01 if decay else None)


def test_data_names_the_model_languages():
    config = Recipe(data="numbers:en-de").config(80)
    assert (config.source_language, config.target_language) == ("en", "de")
    config = Recipe(data="files:a,b", target_language="de").config(80)
    assert (config.source_language, config.target_language) == (None, "de")
    named = Recipe(data="numbers:en-de", architecture="decoder", source_language="en_GB")
    assert named.config(80).source_language == "en_GB"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"source_language": "d e"}, "source_language: String should match pattern"),
        ({"options": {"source_language": "de"}}, "source_language, which the recipe or the data"),
        (
            {"architecture": "encoder", "target_language": "de"},
            "source_language and target_language need a model that translates",
        ),
    ],
)
def test_languages_need_codes_and_texts(values, message):
    with pytest.raises(ValueError, match=message):
        Recipe(data="files:a,b", **values)
