"""The JSON schema of recipes, compared with `Recipe`, which reads them."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from tfk_transformer.apps.cli.main import app
from tfk_transformer.config.presets import PRESETS
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.models.registry import TRAINED
from tfk_transformer.training.recipe import DECIDED_OPTIONS, Recipe
from tfk_transformer.training.recipe_schema import recipe_schema

REPOSITORY = Path(__file__).parents[2]
TEMPLATE = REPOSITORY / "tfk_transformer/apps/cli/commands/template/recipe.toml"
SHIPPED = [*sorted(REPOSITORY.glob("recipes/*.toml")), TEMPLATE]
SCHEMA = recipe_schema()
FIELDS = SCHEMA["properties"]
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def read(text):
    return Recipe(**tomllib.loads(text))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_schema_accepts_shipped_recipes(path):
    VALIDATOR.validate(Recipe.read_values(path))
    VALIDATOR.validate(tomllib.loads(Recipe.read(path).to_toml()))


def test_schema_accepts_print_config():
    arguments = ["train", "--data", "numbers:en-de", "--tensorboard", "--profile", "2", "5"]
    named = ["--option", "attention_bias=true", "--setting", "early_stopping=never"]
    done = CliRunner().invoke(app, [*arguments, *named, "--print-config"])
    assert done.exit_code == 0, done.output
    VALIDATOR.validate(tomllib.loads(done.output))


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("architecture", TRAINED)
def test_schema_accepts_preset_options(architecture, name):
    names = set(TRAINED[architecture].model_fields) - DECIDED_OPTIONS
    options = {option: value for option, value in PRESETS[name].items() if option in names}
    VALIDATOR.validate({"data": "files:a,b", "architecture": architecture, "options": options})


@pytest.mark.parametrize(
    "text",
    [
        "minutes = 10\nclip_norm = 1\nsource_language = 'zh_CN'",
        "options = {attention_bias = ['query'], source_prefix = [5]}",
        "search = {temperature = 0, length_penalty = 1, early_stopping = false}",
        "search = {temperature = 0.001, top_p = 0.5, forced_eos = true}",
        "architecture = 'decoder'\noptions = {tie_embeddings = 'all'}",
        "architecture = 'encoder'\noptions = {encoder_layers = 2}",
    ],
)
def test_schema_accepts_what_is_read(text):
    text = f"data = 'numbers:en-de'\n{text}"
    assert read(text)
    VALIDATOR.validate(tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        "epoch = 3",
        "epochs = 'three'",
        "epochs = 0",
        "dropout = 1.0",
        "learning_rate = 0",
        "tokenizer = 'wordpiece'",
        "source_language = 'd e'",
        "freeze = 'encoder'",
        "tensorboard = true\nprofile = [1]",
        "tensorboard = true\nprofile = ['a', 'b']",
        "options = 3",
        "options = {nrom = 'post'}",
        "options = {norm = 'middle'}",
        "options = {model_dim = 0}",
        "options = {position_buckets = 5}",
        "options = {architecture = 'encoder_decoder'}",
        "options = {max_length = 9}",
        "architecture = 'decoder'\noptions = {encoder_layers = 2}",
        "architecture = 'decoder'\noptions = {tie_embeddings = 'inputs'}",
        "architecture = 'encoder'\noptions = {output = 'logits'}",
        "search = {beam_sise = 3}",
        "search = {beam_size = 0}",
        "search = {beam_size = 1001}",
        "search = {beam_size = 2.5}",
        "search = {temperature = 0.0001}",
        "search = {top_p = 0}",
        "search = {early_stopping = 1}",
        "search = {forced_eos = 1}",
    ],
)
def test_schema_and_reader_refuse(text):
    text = f"data = 'files:a,b'\n{text}"
    with pytest.raises(ValueError):
        read(text)
    assert not VALIDATOR.is_valid(tomllib.loads(text))


def test_schema_requires_data():
    assert not VALIDATOR.is_valid({"epochs": 3})


def test_schema_describes_every_key():
    options, search = (FIELDS[name]["properties"] for name in ("options", "search"))
    configs = [set(config.model_fields) - DECIDED_OPTIONS for config in TRAINED.values()]
    assert set(options) == set.union(*configs)
    assert list(search) == list(SearchSettings.__dataclass_fields__)
    for name, field in Recipe.model_fields.items():
        assert FIELDS[name]["description"] == field.description
    assert all(rule["description"] for rule in [*options.values(), *search.values()])
    assert FIELDS["epochs"]["default"] == 10
    assert search["beam_size"]["default"] == 4
    assert options["ff_gated"]["default"] is False
    assert "default" not in options["model_dim"]  # it depends on the preset


def test_taplo_completes_keys_of_schema():
    """It completes no key of a table whose schema combines others."""
    assert not {"allOf", "anyOf", "oneOf", "$ref"} & SCHEMA.keys()


def test_print_schema_needs_no_data():
    blocks = "; ".join(f"sys.modules[{name!r}] = None" for name in ("tensorflow", "keras", "jax"))
    code = f"import sys; {blocks}; sys.argv[1:] = ['train', '--print-schema']; "
    code += "from tfk_transformer.apps.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    schema = json.loads(done.stdout)
    assert schema == SCHEMA
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
