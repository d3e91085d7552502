"""Options of a recipe that starts from a bundle, and those that contradict it, without training."""

from pathlib import Path

import pytest
from marian_folder import write_folder
from typer.testing import CliRunner

from tfk_transformer.apps.cli.main import app
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.fine_tuning import Start
from tfk_transformer.training.recipe import Recipe

# max_length 24, 60 pieces, the preset "tiny" with smaller sizes.
OWN = Path(__file__).parents[1] / "saved_files" / "bundle"
DATA = "files:a,b"


def refused(start, **given):
    with pytest.raises(ValueError) as error:
        start.adopt(Recipe(data=DATA, start="x", **given))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_bundle_supplies_defaults():
    adopted = Start(OWN).adopt(Recipe(data=DATA, start=str(OWN), epochs=3))
    assert (
        adopted.architecture,
        adopted.separate_vocabularies,
        adopted.max_length,
        adopted.epochs,
    ) == ("encoder_decoder", False, 24, 3)
    assert Start(OWN).adopt(Recipe(data=DATA, start="x", batch_tokens=20)).max_length == 20
    text = adopted.to_toml()
    assert not any(
        f"\n{name} = " in text
        for name in ("preset", "options", "tokenizer", "vocab_size", "byte_fallback")
    )


def test_recipe_of_the_bundle_fits(tmp_path):
    start, own = Start(OWN), Recipe.read(OWN / "recipe.toml").replace(start=str(OWN))
    adopted = start.adopt(own)
    assert adopted == own
    assert start.adopt(adopted) == adopted
    (tmp_path / "again.toml").write_text(start.adopt(Recipe(data=DATA, start=str(OWN))).to_toml())
    again = Recipe.read(tmp_path / "again.toml")
    assert start.adopt(again) == again


def test_all_mismatches_are_named():
    message = refused(
        Start(OWN),
        architecture="decoder",
        tokenizer="char",
        vocab_size=61,
        byte_fallback=False,
        max_length=25,
        preset="base",
        options={"norm": "post", "num_heads": 2, "attention_bias": False, "nrom": 1},
    )
    assert message == (
        f"start: expected values that fit the model in {OWN}, got architecture 'decoder' for "
        "'encoder_decoder', "
        "tokenizer 'char' for 'unigram', vocab_size 61 for 60, max_length 25 for at most 24, "
        "model_dim 512 for 16, ff_dim 2048 for 24, "
        "encoder_layers 6 for 1, decoder_layers 6 for 1, norm 'post' for 'pre', unknown option "
        "'nrom'. Did you mean 'norm'?; "
        "leave out what the bundle decides, or train a new model."
    )


def test_options_compare_by_meaning(tmp_path):
    import_model(write_folder(tmp_path / "opus", separate=True)).save(tmp_path / "bundle")
    start = Start(tmp_path / "bundle")
    options = {"attention_bias": True, "ff_dim": 29, "key_dim": 2, "dropout": 0.3}
    dropout = options.pop("dropout")
    adopted = start.adopt(
        Recipe(
            data=DATA,
            start="x",
            options={**options, "attention_dropout": 0.5},
            dropout=dropout,
            max_length=40,
        )
    )
    assert (adopted.max_length, adopted.separate_vocabularies) == (40, True)
    config = start.model(adopted, "float32").config
    assert config == start.config.replace(dropout=0.3, attention_dropout=0.5)
    assert config.max_length == 47
    sizes = sorted((start.config.source_vocab_size, start.config.target_vocab_size))
    assert (
        f"got vocab_size 80 for {sizes[0]} and {sizes[1]}, separate_vocabularies False for True;"
        in refused(start, vocab_size=80, separate_vocabularies=False)
    )
    adopted = start.adopt(
        Recipe(data=DATA, start="x", vocab_size=sizes[0], separate_vocabularies=True)
    )
    assert adopted.vocab_size == sizes[0]


def test_reduced_vocabulary_fits(tmp_path):
    for name in OWN.iterdir():
        (tmp_path / name.name).symlink_to(name)
    (tmp_path / "recipe.toml").unlink()
    (tmp_path / "recipe.toml").write_text('data = "x"\nvocab_size = 8000\n')
    assert Start(tmp_path).adopt(Recipe(data=DATA, start="x", vocab_size=8000)).vocab_size == 8000
    assert "vocab_size 7999 for 60" in refused(Start(tmp_path), vocab_size=7999)


def test_an_ensemble_is_refused(tmp_path):
    member = Translator.load(OWN)
    Translator.ensemble([member, member]).save(tmp_path / "both")
    with pytest.raises(
        ValueError,
        match=(
            r"start: expected a single model, got an ensemble of 2 in .*/both, whose members "
            r"are trained one"
        ),
    ):
        Start(tmp_path / "both")


@pytest.mark.parametrize(
    ("kind", "byte_fallback"), [("unigram", True), ("bpe", False), ("char", False), ("word", False)]
)
def test_tokenizer_knows_its_options(kind, byte_fallback):
    texts = ["der Bär", "die Bären", "das Bärchen"]
    tokenizer = SubwordTokenizer.train(
        texts, vocab_size=300 if byte_fallback else 18, model_type=kind, byte_fallback=byte_fallback
    )
    assert (tokenizer.model_type, tokenizer.byte_fallback) == (kind, byte_fallback)


def test_printed_recipe_fits(tmp_path):
    done = CliRunner().invoke(
        app,
        [
            "train",
            "--from",
            str(OWN),
            "--data",
            DATA,
            "--freeze",
            "encoder",
            "--freeze",
            "b*",
            "--print-config",
        ],
    )
    assert done.exit_code == 0, done.output
    (tmp_path / "a.toml").write_text(done.output)
    recipe = Recipe.read(tmp_path / "a.toml")
    assert recipe == Recipe(data=DATA, start=str(OWN), freeze=("encoder", "b*"), max_length=24)


def test_mismatch_of_an_option_is_named():
    done = CliRunner().invoke(
        app, ["train", "--from", str(OWN), "--data", DATA, "--vocab-size", "99", "--print-config"]
    )
    assert str(done.exception).startswith(
        f"start: expected values that fit the model in {OWN}, got vocab_size 99 for 60; "
    )


def test_folder_without_a_bundle_is_refused(tmp_path):
    done = CliRunner().invoke(
        app, ["train", "--from", str(tmp_path), "--data", DATA, "--out", str(tmp_path / "out")]
    )
    assert (
        str(done.exception) == "bundle: expected a folder that `train` or `import` wrote, got "
        f"{tmp_path}, which has no config.json; check the path, or convert a model of another "
        "library with `tfk-transformer import`."
    )


def test_new_weights_are_not_frozen():
    with pytest.raises(
        ValueError, match=r"Recipe: freeze needs start \(--from\), since new weights are random"
    ):
        Recipe(data=DATA, freeze=("encoder",))
