import keras
import numpy as np
import pytest
from t5_layers import T5_LAYERS
from traced_search import setting_tensors, traced_generate

from tfk_transformer.config.model_options import LanguageModelConfig
from tfk_transformer.layers.masks import causal_mask
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.token_model import Beams
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# Each size is a prime of its own, so that swapped axes cannot pass.
B, T, D, H, K, V, F = 2, 7, 11, 3, 13, 17, 19
OPTIONS = [
    {},
    {
        "norm": "post",
        "attention_bias": True,
        "positions": "learned",
        "tie_embeddings": "all",
        "output_bias": True,
    },
    {"decoder_mixer": "ssru"},
    T5_LAYERS,
    {"positions": "relative_by_layer", "decoder_ff_dim": 5},
]


def built(**options):
    sizes = {
        "model_dim": D,
        "num_heads": H,
        "key_dim": K,
        "value_dim": V,
        "ff_dim": F,
        "decoder_layers": 2,
        "max_length": 23,
    }
    keras.utils.set_random_seed(0)
    model = LanguageModel(LanguageModelConfig(**{"vocab_size": 29, **sizes, **options}))
    model.build()
    return model


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(4, 29, shape).astype("int32")


@pytest.fixture(scope="module", params=OPTIONS)
def model(request):
    """A model of each kind, which tests only call."""
    return built(**request.param)


@pytest.mark.parametrize("use_cache", [True, False])
def test_steps_equal_the_full_pass(model, use_cache):
    rows = ids(B, T)
    full = np.array(model(rows))
    assert full.shape == (B, T, 29)
    step, first_cache, memory = model.start_search(rows, use_cache)
    cache = first_cache(B)
    for t in range(T):
        logits, cache, attention = step(
            Beams(rows[:, None, : t + 1], rows[:, None, t], t, None), cache, memory
        )
        assert tuple(attention.shape) == (B, 1, 0)
        np.testing.assert_allclose(logits[:, 0], full[:, t], atol=1e-5)


def test_padding_changes_no_logit(model):
    rows = ids(B, T)
    plain = np.array(model(rows))
    np.testing.assert_allclose(
        np.array(model(np.pad(rows, [(0, 0), (0, 5)])))[:, :T], plain, atol=1e-5
    )


def test_layers_lack_cross_attention():
    model, rows = built(), ids(B, T)
    assert not any("cross" in name or "source" in name for name in model.named_weights)
    decoded = model.decode(rows)
    assert [tuple(weights.shape) for weights in decoded.self_weights] == [(B, H, T, T)] * 2
    np.testing.assert_array_equal(
        np.array(decoded.self_weights[1])[:, :, np.array(causal_mask(T))[0, 0] < 0], 0.0
    )


def test_probabilities_are_a_softmax():
    rows = ids(B, T)
    np.testing.assert_allclose(
        built(output="probabilities")(rows), keras.ops.softmax(built()(rows)), atol=1e-6
    )


def test_saving_keeps_the_logits(tmp_path):
    model, rows = built(norm="post"), ids(B, T)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded(rows), model(rows))


def test_weights_load_by_name():
    model, rows = built(), ids(B, T)
    other = LanguageModel.from_weights(
        {name: np.array(weight) for name, weight in model.named_weights.items()}, model.config
    )
    np.testing.assert_array_equal(other(rows), model(rows))


@pytest.mark.long  # a training; test_fit_doors.py has a short one of a language model
def test_fit_learns_to_count():
    model = built(vocab_size=11, dropout=0.0, decoder_layers=1)
    rows = (np.arange(5)[None, :] + np.arange(7)[:, None]) % 7 + 4
    model.compile(keras.optimizers.Adam(1e-2), LabelSmoothedCrossentropy(0.0), jit_compile=False)
    model.optimizer.build(model.trainable_variables)  # otherwise the step is traced twice
    model.fit(rows[:, :-1], rows[:, 1:], epochs=60, verbose=0)
    np.testing.assert_array_equal(np.argmax(model(rows[:, :-1]), axis=-1), rows[:, 1:])


# As a translator, it continues prompts.


@pytest.fixture(scope="module")
def continuer():
    texts = ["ab ba", "abba baba", "bab a"] * 5
    tokenizer = SubwordTokenizer.train(texts, 20, "char")
    model = built(vocab_size=tokenizer.vocab_size)
    random = np.random.default_rng(3)
    model.set_weights([random.normal(size=weight.shape) * 0.7 for weight in model.get_weights()])
    return Translator(model, tokenizer)


PROMPTS = ["ab", "bbaab", "a", "b a b"]


def test_prompt_lengths_may_differ(continuer):
    for settings in ({"beam_size": 1}, {"beam_size": 3, "n_best": 3}):
        together = continuer.translate(PROMPTS, max_length=6, **settings)
        for prompt, actual in zip(PROMPTS, together, strict=True):
            alone = continuer.translate([prompt], max_length=6, **settings)[0]
            assert [h.text for h in actual.hypotheses] == [h.text for h in alone.hypotheses]
            np.testing.assert_allclose(
                [h.score for h in actual.hypotheses], [h.score for h in alone.hypotheses], atol=1e-4
            )


@pytest.fixture(scope="module")
def generate(continuer):
    return traced_generate(continuer.functions, prefixes=False)


def test_greedy_takes_the_best_token(continuer, generate):
    for prompt in PROMPTS:
        row = [1, *continuer.source_tokenizer.encode([prompt])[0]]
        given = len(row)
        while len(row) < given + 6 and row[-1] != 2:
            # Padding and start are never chosen.
            row.append(2 + int(np.argmax(continuer.model(np.array([row]))[0, -1, 2:])))
        prompt_ids = np.array([[*row[1:given], 2]], "int32")
        actual = generate(prompt_ids, setting_tensors(max_length=6, beam_size=1))
        assert [i for i in actual.ids.numpy()[0, 0] if i] == row[given:]


def test_score_equals_the_reference(continuer):
    (actual,) = continuer.translate(["ab"], beam_size=3, max_length=20, length_penalty=0.0)
    np.testing.assert_allclose(
        continuer.score(["ab"], [actual.text]),
        [reference_score(continuer, "ab", actual.text)],
        atol=1e-4,
    )


def reference_score(continuer, prompt, continuation):
    """Sum the log-probabilities of the continuation and its end."""
    prompt, continuation = continuer.source_tokenizer.encode([prompt, continuation])
    row = [1, *prompt, *continuation, 2]
    log_probs = np.array(keras.ops.log_softmax(continuer.model(np.array([row[:-1]]))[0], axis=-1))
    return sum(log_probs[place, row[place + 1]] for place in range(len(prompt), len(row) - 1))


def test_pair_scores_ignore_the_batch(continuer):
    prompts, continuations = ["ab", "bbaabba"], ["abab", "b"]
    expected = [
        reference_score(continuer, *pair) for pair in zip(prompts, continuations, strict=True)
    ]
    np.testing.assert_allclose(continuer.score(prompts, continuations), expected, atol=1e-4)


def test_cache_changes_no_text(continuer):
    cached, whole = (
        continuer.translate(PROMPTS, max_length=6, use_cache=use_cache)
        for use_cache in (True, False)
    )
    assert [t.text for t in cached] == [t.text for t in whole]


def test_prompt_and_output_share_limit(continuer, generate):
    prompt = "ab" * 10  # with the word mark 21 tokens, of 23
    prompt_ids = np.array([[*continuer.source_tokenizer.encode([prompt])[0], 2]], "int32")
    ids = generate(prompt_ids, setting_tensors(max_length=6, beam_size=2)).ids
    assert 1 <= np.count_nonzero(ids) <= 2
    with pytest.raises(ValueError, match="at most 23 tokens"):
        continuer.translate([prompt + "ab"])


def test_bundle_continues_alike(continuer, tmp_path):
    continuer.save(tmp_path / "bundle")
    loaded = Translator.load(tmp_path / "bundle")
    assert isinstance(loaded.model, LanguageModel)
    assert not isinstance(loaded.model, Transformer)
    assert loaded.translate(PROMPTS, max_length=6) == continuer.translate(PROMPTS, max_length=6)


# Exports, and compares the searches of each file with those of the model.
@pytest.mark.long
def test_export_continues_alike(continuer, tmp_path):
    from tfk_transformer.export.exporting import export
    from tfk_transformer.export.runtime.onnx_runtime import OnnxScorer
    from tfk_transformer.export.runtime.opening import load
    from tfk_transformer.export.runtime.saved_model_runtime import SavedModelTranslator

    figures = export(continuer, tmp_path / "export")
    assert figures["ids"] == "equal"
    for name in ("saved_model", "translate.onnx"):
        for prefixes in (None, ["ba", None, "bb", "a"]):
            actual = load(tmp_path / "export" / name).translate(
                PROMPTS, max_length=6, prefixes=prefixes
            )
            assert [t.text for t in actual] == [
                t.text for t in continuer.translate(PROMPTS, max_length=6, prefixes=prefixes)
            ]
    for settings in (
        {"max_length": 6},
        {"min_length": 4, "no_repeat_ngram_size": 2},
        {"temperature": 1.5, "seed": 5, "min_length": 3},
    ):
        expected = [t.text for t in continuer.translate(PROMPTS, beam_size=1, **settings)]
        for opened in (
            continuer,
            *(load(tmp_path / "export" / name) for name in ("saved_model", "translate.onnx")),
        ):
            assert ["".join(opened.stream(prompt, **settings)) for prompt in PROMPTS] == expected
    assert not (tmp_path / "export" / "encoder.onnx").exists()
    continuations = ["ba", "a b", "", "bab"]
    expected = continuer.score_tokens(PROMPTS, continuations, attention=True)
    for one, other in zip(
        expected,
        OnnxScorer(tmp_path / "export" / "score.onnx").score_tokens(
            PROMPTS, continuations, attention=True
        ),
        strict=True,
    ):
        assert (one.tokens, one.source_tokens) == (other.tokens, other.source_tokens)
        np.testing.assert_allclose(one.token_log_probs, other.token_log_probs, atol=1e-4)
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-5)
    np.testing.assert_allclose(
        SavedModelTranslator(tmp_path / "export" / "saved_model").score(PROMPTS, continuations),
        [h.log_probability for h in expected],
        atol=1e-4,
    )


def test_continuation_has_attention(continuer):
    (actual,) = continuer.translate(["ab"], max_length=6, token_scores=True, attention=True)[
        0
    ].hypotheses
    assert actual.source_tokens == ["<s>", "▁", "a", "b", *actual.tokens[:-1]]
    assert actual.attention.shape == (2, H, len(actual.tokens), 3 + len(actual.tokens))
    np.testing.assert_allclose(actual.attention.sum(-1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(actual.attention[:, :, 0, 4:], 0.0)  # the future
