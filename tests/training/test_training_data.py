"""Where a training run finds its pairs: tables, data in memory, and splits that are left out."""

import pytest

from tfk_transformer import datasets
from tfk_transformer.training import checkpoints
from tfk_transformer.training.data import TrainingData
from tfk_transformer.training.distribution import Team
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.trainer import train

PAIRS = [(f"Satz {number}", f"sentence {number}") for number in range(100)]
SMALL = {
    "vocab_size": 31,
    "tokenizer": "char",
    "max_length": 29,
    "batch_tokens": 173,
    "options": {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "model_dim": 16,
        "ff_dim": 16,
        "num_heads": 2,
    },
    "epochs": 1,
    "epoch_steps": 2,
    "warmup_steps": 2,
}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    return path


def data_of(recipe, tmp_path):
    return TrainingData(recipe, Team(), tmp_path / "work")


def sources(batches):
    return {pair.source for pair in batches.data.pairs(batches.split)}


def test_validation_split_is_left_out_of_a_table(table, tmp_path):
    data = data_of(Recipe(data=str(table), **SMALL), tmp_path)
    assert not sources(data.batches) & sources(data.validation)
    assert data.lines()[0] == (
        f"{table}: 20 sources, chosen by their hashes, are left out of train for validation and "
        "test; the split 'all' has all pairs"
    )


def test_other_validation_data_leaves_nothing_out(table, tmp_path):
    recipe = Recipe(data=str(table), validation_data=f"tsv:{table}", **SMALL)
    data = data_of(recipe, tmp_path)
    assert sources(data.batches) == sources(data.validation) == {source for source, _ in PAIRS}


def test_changed_table_is_not_resumed(table, tmp_path):
    recipe = Recipe(data=str(table), **SMALL)
    work = tmp_path / "work"
    work.mkdir()
    checkpoints.save_tokenizers(work, recipe, data_of(recipe, tmp_path / "first").tokenizers)
    (work / "data.json").write_text(f'{{"train": "{datasets.load(str(table)).digest("train")}"}}')
    data_of(recipe, tmp_path)
    table.write_text(table.read_text() + "neu\tnew\n")
    with pytest.raises(ValueError, match="resume: expected the data that .* was made with"):
        data_of(recipe, tmp_path)


@pytest.mark.usefixtures("eager_steps")
def test_pairs_in_memory_are_trained_with(tmp_path):
    lines = []
    rows = [{"de": source, "en": target} for source, target in PAIRS]
    translator = train(Recipe(**SMALL), tmp_path / "bundle", say=lines.append, data=rows)
    assert any(" left out of train for validation and test" in line for line in lines)
    assert translator.model.config.source_language == "de"
    recipe = Recipe.read(tmp_path / "bundle" / "recipe.toml")
    assert recipe.data == datasets.load(rows).name


def test_data_are_named_once(table, tmp_path):
    message = "data: expected pairs in memory or a recipe with data, got both; leave one out"
    with pytest.raises(ValueError, match=message):
        train(Recipe(data=str(table), **SMALL), tmp_path / "bundle", data=PAIRS)


def test_recipe_without_data_needs_some(tmp_path):
    with pytest.raises(ValueError, match="^data: expected numbers:en-de, "):
        train(Recipe(**SMALL), tmp_path / "bundle")
