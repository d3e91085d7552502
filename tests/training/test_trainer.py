import json
import signal

import keras
import numpy as np
import pytest
from number_files import write_number_files

from tfk_transformer import datasets, losses
from tfk_transformer.data.batches import TokenBatches
from tfk_transformer.layers.crossentropy import divergence
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.training.recipe import Recipe
from tfk_transformer.training.trainer import train

# One layer of each kind: a step is traced in half of the time.
SHALLOW = {"encoder_layers": 1, "decoder_layers": 1}
NARROW = {**SHALLOW, "model_dim": 16, "ff_dim": 16, "num_heads": 2}


def test_training_saves_whole_bundle(bundle, recipe, translator):
    assert sorted(path.name for path in bundle.iterdir()) == [
        "config.json",
        "curve.png",
        "history.json",
        "metrics.json",
        "model.safetensors",
        "probes.txt",
        "recipe.toml",
        "source.model",
        "target.model",
    ]
    assert Recipe.read(bundle / "recipe.toml") == recipe
    history = json.loads((bundle / "history.json").read_text())
    assert len(history["loss"]) == recipe.epochs
    assert history["loss"][-1] < 0.1 < 3 < history["loss"][0]
    assert (
        json.loads((bundle / "metrics.json").read_text())["parameters"]
        == translator.model.count_params()
    )
    assert not bundle.with_name("numbers.training").exists()


def test_existing_bundle_is_refused(bundle, recipe):
    with pytest.raises(ValueError, match="out: expected a new folder, got .*, which exists"):
        train(recipe, bundle)


class Interrupts(keras.callbacks.Callback):
    """Ask a training to stop in its third epoch, as Ctrl-C does."""

    def on_train_batch_begin(self, batch, logs=None):
        if len(self.model.history.epoch) == 2 and batch == 1:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("eager_steps")
def test_interrupted_training_resumes(recipe, tmp_path):
    steps = {"epochs": 4, "epoch_steps": 4, "warmup_steps": 4}
    short = recipe.replace(average=2, options=NARROW, validation_data=None, **steps)
    out, lines = tmp_path / "bundle", []
    with pytest.raises(KeyboardInterrupt):
        train(short, out, callbacks=[Interrupts()], say=lines.append)
    assert lines[-1] == (
        f"stopped by SIGINT: {out} holds the model so far; run the same command with --resume "
        "to continue"
    )
    assert np.isfinite(Translator.load(out).score(["one"], ["eins"])).all()
    assert json.loads((out / "history.json").read_text())["epoch"] == [1, 2]
    with pytest.raises(ValueError, match="holds an unfinished training; resume it, or remove it"):
        train(short, out)
    with pytest.raises(ValueError, match="which had seed=0"):
        train(short.replace(seed=1), out, resume=True)
    translator = train(short, out, resume=True, say=lines.append)
    history = json.loads((out / "history.json").read_text())
    assert history["epoch"] == [1, 2, 3, 4]
    assert history["loss"][3] < history["loss"][1] < history["loss"][0]
    assert json.loads((out / "metrics.json").read_text())["averaged_epochs"] == [3, 4]
    assert isinstance(translator, Translator)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle"]


@pytest.mark.long  # a training
def test_decoder_only_model_learns(recipe, tmp_path):
    alone = recipe.replace(
        architecture="decoder",
        tokenizer="char",
        max_length=96,
        batch_tokens=4096,
        epochs=3,
        options={"decoder_layers": 1},
    )
    translator = train(alone, tmp_path / "bundle", say=lambda line: None)
    assert isinstance(translator.model, LanguageModel)
    history = json.loads((tmp_path / "bundle" / "history.json").read_text())
    assert history["loss"][2] < history["loss"][1] < history["loss"][0]
    prompts = ["one", "twenty-two"]
    continued = translator.translate(prompts, max_length=40)
    assert translator.score(prompts, [t.text for t in continued]).shape == (2,)
    assert continued == Translator.load(tmp_path / "bundle").translate(prompts, max_length=40)


@pytest.mark.usefixtures("eager_steps")
def test_resume_begins_and_ends(recipe, tmp_path):
    small = recipe.replace(epochs=1, epoch_steps=2, options=NARROW, validation_data=None)
    out = tmp_path / "bundle"
    train(small, out, resume=True, say=lambda line: None)
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    lines = []
    before = (out / "metrics.json").read_text()
    assert isinstance(train(small, out, resume=True, say=lines.append), Translator)
    assert lines == [f"{out} is finished: nothing to do"]
    assert (out / "metrics.json").read_text() == before
    for changes, earlier in (({"seed": 1}, "seed=0"), ({"epochs": 2}, "epochs=1")):
        with pytest.raises(
            ValueError, match=f"^resume: expected the recipe that {out} .*, which had {earlier}.$"
        ):
            train(small.replace(**changes), out, resume=True)


def test_resume_of_unfinished_bundle_is_refused(recipe, tmp_path):
    out = tmp_path / "bundle"
    out.mkdir()
    message = f"^resume: expected the unfinished training of {out} in {out}.training, got none, and"
    with pytest.raises(ValueError, match=f"{message} {out} was not trained"):
        train(recipe, out, resume=True)
    (out / "recipe.toml").write_text(recipe.to_toml())
    (out / "metrics.json").write_text('{"epoch": 1}')
    with pytest.raises(ValueError, match=f"{message} {out} has 1 of {recipe.epochs} epochs"):
        train(recipe, out, resume=True)
    (tmp_path / "bundle.training").mkdir()
    with pytest.raises(ValueError, match="it has no recipe.toml, so remove it to start again"):
        train(recipe, out, resume=True)


def test_bad_data_leaves_nothing(recipe, tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("eins\n")
    with pytest.raises(ValueError, match="unequal line counts"):
        train(
            recipe.replace(data=f"files:{tmp_path / 'a.txt'},{tmp_path / 'b.txt'}"),
            tmp_path / "bundle",
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]


@pytest.mark.usefixtures("eager_steps")
def test_tokens_are_learned_and_saved(recipe, tmp_path):
    (tmp_path / "a.txt").write_text("cat\nact\ntact\n")
    (tmp_path / "b.txt").write_text("K AE1 T\nAE1 K T\nT AE1 K T\n")
    tokens = recipe.replace(
        data=f"files:{tmp_path / 'a.txt'},{tmp_path / 'b.txt'}",
        source_tokens="characters",
        target_tokens="[A-Z]+[0-9]?| ",
        separate_vocabularies=True,
        subword_sampling=0.0,
        validation_data=None,
        options=NARROW,
        epochs=1,
    )
    train(tokens, tmp_path / "bundle", say=lambda line: None)
    translator = Translator.load(tmp_path / "bundle")
    assert translator.source_tokenizer.encode(["cat"]) == [[6, 5, 4]]
    assert translator.target_tokenizer.encode(["K AE1 T"]) == [[7, 4, 6, 4, 5]]
    again = Recipe.read(tmp_path / "bundle" / "recipe.toml")
    assert (again.source_tokens, again.target_tokens) == ("characters", "[A-Z]+[0-9]?| ")


@pytest.mark.usefixtures("eager_steps")
def test_dropped_pairs_are_reported(recipe, tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n" + "two " * 99 + "\nthree\nfour\n")
    (tmp_path / "b.txt").write_text("eins\nnichts\nzwei\ndrei\nvier\n")
    lines = []
    data = f"files:{tmp_path / 'a.txt'},{tmp_path / 'b.txt'}"
    short = recipe.replace(data=data, epochs=1, vocab_size=40, options=NARROW)
    train(short, tmp_path / "bundle", say=lines.append)
    assert any("over 32 tokens (a.txt:3)" in line for line in lines)
    assert any("with an empty side (a.txt:2" in line for line in lines)


@pytest.mark.long  # a training
@pytest.mark.usefixtures("eager_steps")
def test_too_long_warmup_is_noted(recipe, tmp_path):
    """Such a run ends before the learning rate has risen, with a model that has learned nothing."""
    data = write_number_files(tmp_path, range(20))
    lines = []
    tiny = {"data": data, "validation_data": None, "vocab_size": 40, "options": NARROW}
    short = recipe.replace(epochs=2, batch_tokens=10**4, **tiny)
    train(short.replace(warmup_steps=2), tmp_path / "as long", say=lines.append)
    train(short.replace(warmup_steps=1), tmp_path / "shorter", say=lines.append)
    (note,) = [line for line in lines if line.startswith("note:")]
    assert note.startswith(
        "note: the learning rate rises for 2 updates (warmup_steps), and the 2 epochs have 2; "
    )


@pytest.mark.long  # a training
def test_consistency_uses_divergence(recipe, tmp_path, monkeypatch):
    compared = []
    monkeypatch.setattr(
        losses, "divergence", lambda logits: compared.append(logits) or original(logits)
    )
    original = divergence
    train(
        recipe.replace(
            consistency=2.5, dropout=0.3, epochs=3, options=SHALLOW, validation_data=None
        ),
        tmp_path / "bundle",
    )
    assert compared
    history = json.loads((tmp_path / "bundle" / "history.json").read_text())
    assert history["loss"][2] < 0.8 * history["loss"][0]


@pytest.mark.usefixtures("eager_steps")
def test_same_seed_gives_same_weights(recipe, tmp_path):
    short = recipe.replace(epochs=1, epoch_steps=4, options=NARROW, validation_data=None)
    first, second = (train(short, tmp_path / name, say=lambda line: None) for name in "ab")
    for one, other in zip(first.model.get_weights(), second.model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


# XLA compiles a step for each length of a batch.
@pytest.mark.long
def test_xla_trains_to_the_same_loss(recipe, translator):
    """Every batch shape compiles; there are no more of them than length buckets."""
    data, tokenizer = datasets.load(recipe.data), translator.source_tokenizer
    losses = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(0)
        batches = TokenBatches(data, "train", tokenizer, tokenizer, batch_tokens=512, max_length=16)
        model = Transformer(translator.model.config.replace(**SHALLOW))
        model.build()
        model.compile(
            keras.optimizers.SGD(0.1), LabelSmoothedCrossentropy(), jit_compile=jit_compile
        )
        model.optimizer.build(model.trainable_variables)  # otherwise the step is traced twice
        losses.append(
            model.fit(batches.dataset(), epochs=2, verbose=0, shuffle=False).history["loss"]
        )
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert losses[0][1] < losses[0][0]


def test_recipe_config_from_preset():
    config = Recipe(
        data="numbers:en-de", preset="tiny", options={"norm": "post", "num_heads": 8}, dropout=0.3
    ).config(29)
    assert (config.model_dim, config.norm, config.num_heads, config.dropout, config.max_length) == (
        128,
        "post",
        8,
        0.3,
        256,
    )
    assert (config.source_vocab_size, config.target_vocab_size, config.tie_embeddings) == (
        29,
        29,
        "all",
    )
    assert (
        Recipe(data="numbers:en-de", preset="transformer_details").config(29).tie_embeddings
        == "none"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "huge"}, "preset: .*'huge'"),
        ({"epochs": 0}, "epochs: .*greater than 0, got 0"),
        ({"options": {"nrom": "post"}}, "unknown key 'nrom'. Did you mean 'norm'?"),
        (
            {"options": {"max_length": 9}},
            (
                "options: expected only options of the model, got max_length, which the recipe or "
                "the "
                "data determines"
            ),
        ),
        ({"lerning_rate": 1.0}, "unknown key 'lerning_rate'. Did you mean 'learning_rate'?"),
    ],
)
def test_a_bad_recipe_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**{"data": "numbers:en-de", **changes})
