import keras
import numpy as np
import pytest

from tfk_transformer.config.model_options import EnsembleConfig, TransformerConfig
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.models.ensemble import Ensemble
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.registry import config_from_json, make_model
from tfk_transformer.models.token_model import Beams
from tfk_transformer.models.transformer import Transformer

# Each size is a prime of its own, so that swapped axes cannot pass.
B, S, T, V, M = 2, 5, 7, 29, 3
FIRST = {
    "model_dim": 11,
    "num_heads": 3,
    "key_dim": 13,
    "value_dim": 17,
    "ff_dim": 19,
    "encoder_layers": 1,
    "decoder_layers": 2,
}
SECOND = {
    "model_dim": 22,
    "num_heads": 2,
    "ff_dim": 23,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "positions": "learned",
    "norm": "post",
}


def config_of(**options):
    return TransformerConfig(
        **{"source_vocab_size": 31, "target_vocab_size": V, "max_length": 37, **options}
    )


def member_of(seed, **options):
    model = make_model(config_of(**options))
    random = np.random.default_rng(seed)
    model.set_weights(
        [weight + random.normal(scale=0.3, size=weight.shape) for weight in model.get_weights()]
    )
    return model


@pytest.fixture(scope="module")
def members():
    return [
        member_of(1, **FIRST),
        member_of(2, **SECOND, max_length=17),
        member_of(3, **FIRST, tie_embeddings="target"),
    ]


@pytest.fixture(scope="module")
def ensemble(members):
    return Ensemble(members)


def inputs(seed=0):
    random = np.random.default_rng(seed)
    source, target = (random.integers(4, V, shape).astype("int32") for shape in ((B, S), (B, T)))
    source[1, -2:] = 0  # rows of unlike lengths
    return {"source": source, "target": target}


def log_softmax(logits):
    """Log-probabilities in NumPy."""
    logits = np.array(logits, "float64")
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_log_probabilities_are_means(ensemble, members):
    expected = np.mean([log_softmax(member(inputs())) for member in members], axis=0)
    actual = ensemble(inputs())
    assert tuple(actual.shape) == (B, T, V)
    assert keras.backend.standardize_dtype(actual.dtype) == "float32"
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert np.exp(expected).sum(axis=-1).max() < 0.99  # the means are not normalized again


def test_single_member_equals_model(members):
    expected = log_softmax(members[0](inputs()))
    np.testing.assert_allclose(Ensemble(members[:1])(inputs()), expected, atol=1e-5)


@pytest.mark.parametrize("use_cache", [True, False])
def test_steps_equal_the_full_pass(ensemble, members, use_cache):
    given = inputs()
    full = ensemble.logits(ensemble.decode(given).output)
    # (B, T, S)
    attention = np.mean(
        [np.mean(member.decode(given).cross_weights[-1], axis=1) for member in members], axis=0
    )
    step, first_cache, memory = ensemble.start_search(given["source"], use_cache)
    cache = first_cache(B)
    for t in range(T):
        logits, cache, seen = step(
            Beams(given["target"][:, None, : t + 1], given["target"][:, None, t], t, None),
            cache,
            memory,
        )
        assert [tuple(part.shape) for part in logits] == [(B, 1, V)] * 3
        for part, expected in zip(logits, full, strict=True):
            np.testing.assert_allclose(part[:, 0], expected[:, t], atol=1e-5)
        np.testing.assert_allclose(seen[:, 0], attention[:, t], atol=1e-5)


def test_padding_changes_nothing(ensemble):
    plain, padded = (
        inputs(),
        {name: np.pad(ids, [(0, 0), (0, 3)]) for name, ids in inputs().items()},
    )
    np.testing.assert_allclose(np.array(ensemble(padded))[:, :T], ensemble(plain), atol=1e-5)


def test_saving_keeps_the_outputs(ensemble, tmp_path):
    ensemble.save(tmp_path / "ensemble.keras")
    loaded = keras.saving.load_model(tmp_path / "ensemble.keras")
    assert loaded.config == ensemble.config
    np.testing.assert_array_equal(loaded(inputs()), ensemble(inputs()))
    arrays = {name: np.array(weight) for name, weight in ensemble.named_weights.items()}
    np.testing.assert_array_equal(
        Ensemble.from_weights(arrays, ensemble.config)(inputs()), ensemble(inputs())
    )


def test_weights_are_named_copies(ensemble, members):
    assert (
        len(ensemble.weights)
        == len(ensemble.named_weights)
        == sum(len(member.weights) for member in members)
    )
    for prefix, own in ensemble.named_members().items():
        given = members[int(prefix[len("member_") : -1])].named_weights
        assert list(own.named_weights) == list(given)
        for name, weight in given.items():
            np.testing.assert_array_equal(ensemble.named_weights[prefix + name], weight)
            assert ensemble.named_weights[prefix + name] is not weight


def test_config_combines_the_members(ensemble, members):
    config = ensemble.config
    assert (config.source_vocab_size, config.target_vocab_size, config.max_length) == (31, V, 17)
    assert [member.decoder_layers for member in config.members] == [2, 1, 2]
    assert config_from_json(config.to_json()) == config
    assert make_model(config).count_params() == sum(member.count_params() for member in members)


def test_ensemble_has_common_languages():
    configs = [
        config_of(**FIRST, source_language="de", target_language=code) for code in ("en", "fr")
    ]
    config = EnsembleConfig.of(configs)
    assert (config.source_language, config.target_language) == ("de", None)


def test_dtype_is_of_the_first_member():
    ensemble = Ensemble(
        [Transformer(config_of(**FIRST), dtype="mixed_bfloat16"), member_of(5, **FIRST)]
    )
    assert [member.compute_dtype for member in (ensemble, *ensemble.members)] == ["bfloat16"] * 3
    assert keras.backend.standardize_dtype(ensemble(inputs()).dtype) == "float32"
    assert Ensemble(ensemble.config).compute_dtype == "float32"


def test_ensemble_can_be_fitted():
    """The loss without dropout, since that of a training step also depends on what is dropped."""
    keras.utils.set_random_seed(5)
    ensemble = Ensemble([member_of(1, **FIRST), member_of(2, **SECOND)])
    ensemble.compile(keras.optimizers.Adam(1e-3), LabelSmoothedCrossentropy(0.1), run_eagerly=True)
    given = inputs()
    given["target"][:, 0] = 1  # the start token
    labels = np.roll(given["target"], -1, axis=1)
    before = ensemble.evaluate(given, labels, verbose=0)
    ensemble.fit(given, labels, epochs=2, verbose=0)
    assert ensemble.evaluate(given, labels, verbose=0) < before


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "members: expected at least one Transformer, got none"),
        (
            "tiny",
            (
                r"members: expected a list of Transformers, got members\[0\] of type str; only "
                r"encoder-decoder models"
            ),
        ),
        (
            [Transformer(config_of(**FIRST)), LanguageModel],
            r"got members\[1\] of type \w+; only encoder-decoder models can be members",
        ),
        (
            [
                Transformer(config_of(**FIRST)),
                Transformer(config_of(**FIRST, source_vocab_size=41)),
            ],
            (
                r"members: expected source_vocab_size 31 in all, got 41 in members\[1\]; use "
                r"models "
                r"of one tokenizer"
            ),
        ),
        (
            [Transformer(config_of(**FIRST)), Transformer(config_of(**FIRST, target_prefix=(2,)))],
            r"members: expected 0 tokens of target_prefix in all, got 1 in members\[1\]",
        ),
    ],
    ids=["none", "a name", "another kind", "another vocabulary", "another prefix"],
)
def test_invalid_members_are_refused(given, problem):
    with pytest.raises(ValueError, match=problem):
        Ensemble(given)


def test_member_cannot_be_ensemble(ensemble):
    with pytest.raises(ValueError, match=r"got members\[0\] of type Ensemble; .* and no ensembles"):
        Ensemble([ensemble])


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"members": []}, "members: Tuple should have at least 1 item"),
        ({"max_length": 36}, "max_length: expected 37, the least of the members', got 36"),
        (
            {"target_vocab_size": 7},
            r"members: expected target_vocab_size 7 in all, got 29 in members\[0\]",
        ),
        (
            {"members": [{"architecture": "ensemble"}]},
            "members.0: TransformerConfig: architecture: Input should be 'encoder_decoder'",
        ),
        ({"model_dim": 11}, "unknown key 'model_dim'"),
    ],
)
def test_bad_configs_are_refused(values, problem):
    whole = EnsembleConfig.of([config_of(**FIRST)]).model_dump()
    with pytest.raises(ValueError, match=f"^EnsembleConfig: .*{problem}"):
        EnsembleConfig(**{**whole, **values})
