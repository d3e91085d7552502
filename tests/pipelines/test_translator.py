import shutil

import keras
import numpy as np
import pytest
from random_translators import V, of_transformer

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import END_ID
from tfk_transformer.inference.signatures import SCORE_IDS
from tfk_transformer.inference.token_scoring import padded_ids
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines import bundle
from tfk_transformer.pipelines.bundle import PROBES, read_probes
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.search.signature_functions import signature_function
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer


def test_translates_training_data(translator):
    texts = ["forty-two", "seven", "one hundred ninety-nine"]
    assert [t.text for t in translator.translate(texts)] == [
        "zweiundvierzig",
        "sieben",
        "einhundertneunundneunzig",
    ]


@pytest.mark.long  # traces two searches
def test_new_seed_keeps_translations(translator):
    """Setting a seed drops TensorFlow's eager kernels, and the tokenizers that they own."""
    before = translator.translate(["forty-two"]), translator.score(["seven"], ["sieben"])
    keras.utils.set_random_seed(1)
    other = SubwordTokenizer.train(["one two three four"] * 9, vocab_size=20)
    assert other.decode(other.graph_encode(["one two"]).numpy()) == ["one two"]
    assert (translator.translate(["forty-two"]), translator.score(["seven"], ["sieben"])) == before


def test_results_ignore_batch_size(translator):
    texts = ["one", "one hundred twenty-three", "", "seventeen", "ninety"]
    whole, single = translator.translate(texts), translator.translate(texts, batch_size=1)
    assert [t.source for t in whole] == texts
    assert [t.text for t in whole] == [t.text for t in single]
    np.testing.assert_allclose([t.score for t in whole], [t.score for t in single], atol=1e-5)


def test_cache_gives_same_translations(translator):
    """Both ways of inference of "Transformer Details", section 1.5."""
    from tfk_transformer.datasets.numbers import spell

    texts = [spell(number, "en") for number in range(0, 200, 7)]
    for settings in ({"beam_size": 1}, {"beam_size": 3, "n_best": 3}):
        cached, whole = (
            translator.translate(texts, use_cache=use_cache, **settings)
            for use_cache in (True, False)
        )
        for one, other in zip(cached, whole, strict=True):
            assert [h.text for h in one.hypotheses] == [h.text for h in other.hypotheses]
            np.testing.assert_allclose(
                [h.score for h in one.hypotheses], [h.score for h in other.hypotheses], atol=1e-4
            )


def test_n_best_is_distinct_and_sorted(translator):
    actual = translator.translate(["sixty-six"], beam_size=4, n_best=3)[0].hypotheses
    assert len({h.text for h in actual}) == 3
    assert [h.score for h in actual] == sorted((h.score for h in actual), reverse=True)


def test_score_matches_translation(translator):
    actual = translator.translate(["eighty-one"], length_penalty=0.0)[0]
    np.testing.assert_allclose(
        actual.score, translator.score(["eighty-one"], [actual.text])[0], atol=1e-4
    )


def test_bad_pairs_are_refused(translator):
    with pytest.raises(ValueError, match="targets: expected a target for each of 2 sources, got 1"):
        translator.score(["one", "two"], ["eins"])
    for sources, targets in (
        (["one", "two " * 99], ["eins", "zwei"]),
        (["one", "two"], ["eins", "zwei " * 99]),
    ):
        with pytest.raises(
            ValueError, match="at most 32 tokens per side, got more in pair number 2"
        ):
            translator.score(sources, targets)


def test_score_isolates_too_long_pair(translator):
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    texts = (["seven", "one " * 99], ["sieben", "eins"])
    ids = [
        padded_ids(tokenizer.encode(side))
        for tokenizer, side in zip(tokenizers, texts, strict=True)
    ]
    scores = translator.score_ids(*ids)[1]
    np.testing.assert_allclose(scores[0], translator.score(["seven"], ["sieben"])[0], atol=1e-5)
    assert np.isnan(scores[1])


def test_score_graph_has_causal_mask(translator):
    scoring = signature_function(translator.functions, SCORE_IDS)
    operations = {op.type for op in scoring.get_concrete_function().graph.get_operations()}
    assert "MatrixBandPart" in operations


def test_blank_text_gives_blank_text(translator):
    assert [(t.text, t.score) for t in translator.translate(["", "  "])] == [("", 0.0)] * 2


def test_too_long_text_is_named(translator):
    with pytest.raises(
        ValueError,
        match=r"at most 32 tokens each, got more in 1: number 2 \('one one .*', 10000 words\)",
    ):
        translator.translate(["two", "one " * 10000], split_sentences=False)


def test_graph_isolates_too_long_source(translator):
    inputs = {
        "text": np.array(["forty-two", "one " * 99]),
        "prefix": np.array([""]),
        **SearchSettings(max_length=32).as_arrays(),
    }
    outputs = translator.runtime.run("translate", inputs)
    assert outputs["translations"].numpy().tolist() == [[b"zweiundvierzig"], [b""]]
    assert np.isnan(outputs["scores"].numpy()).tolist() == [[False], [True]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam_size": 0}, "beam_size: expected an integer of at least 1 and at most 80, got 0"),
        ({"n_best": 9}, "n_best: expected at most beam_size, got n_best 9 and beam_size 4"),
        ({"beamsize": 2}, "unknown name 'beamsize'. Did you mean 'beam_size'?"),
    ],
)
def test_bad_settings_are_refused(translator, settings, message):
    with pytest.raises(ValueError, match=message):
        translator.translate(["one"], **settings)


def test_translator_round_trip(translator, tmp_path):
    translator.save(tmp_path / "again")
    loaded = Translator.load(tmp_path / "again")
    for one, other in zip(translator.model.get_weights(), loaded.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert loaded.probes == translator.probes
    assert loaded.source_tokenizer.model == translator.source_tokenizer.model
    assert loaded.target_tokenizer.model == translator.target_tokenizer.model
    assert loaded.search == translator.search


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "source.model", "target.model"]
)
def test_incomplete_bundle_is_refused(bundle, tmp_path, name):
    copy = shutil.copytree(bundle, tmp_path / "copy")
    (copy / name).unlink()
    with pytest.raises(
        ValueError,
        match=(
            f"expected a folder that `train` or `Translator.save` wrote, got .*copy without {name}"
        ),
    ):
        Translator.load(copy)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("config.json", "expected JSON"),
        ("model.safetensors", "do not load"),
        ("source.model", "SentencePiece"),
    ],
)
def test_a_truncated_file_is_named(bundle, tmp_path, name, message):
    copy = shutil.copytree(bundle, tmp_path / "copy")
    (copy / name).write_bytes((copy / name).read_bytes()[:50])
    with pytest.raises(ValueError, match=message):
        Translator.load(copy)


def test_tokenizer_and_model_must_fit():
    tokenizer = SubwordTokenizer.train(["one two three"] * 9, vocab_size=12)
    model = Transformer(
        TransformerConfig.preset(
            "tiny", source_vocab_size=tokenizer.vocab_size, target_vocab_size=99
        )
    )
    with pytest.raises(ValueError, match="target_tokenizer: expected 99 pieces"):
        Translator(model, tokenizer)


class OnlyEncodes:
    def encode(self, texts):
        return [[4] for _ in texts]


@pytest.mark.parametrize("side", ["source_tokenizer", "target_tokenizer"])
def test_other_tokenizers_are_refused(translator, side):
    tokenizers = {"source_tokenizer": translator.source_tokenizer, side: OnlyEncodes()}
    problem = f"^{side}: expected .*, got OnlyEncodes without model, save and [0-9]+ more; "
    with pytest.raises(ValueError, match=problem):
        Translator(translator.model, **tokenizers)


def test_texts_are_ids_without_tokenizers(translator):
    rows = translator.source_tokenizer.encode(["forty-two"])
    (translation,) = Translator(translator.model).translate([" ".join(map(str, rows[0]))])
    ids, _ = translator.generate(padded_ids(rows))
    assert translation.text == " ".join(map(str, ids[0, 0][ids[0, 0] > END_ID]))


@pytest.mark.parametrize(
    ("beam_size", "layers"),
    # Searches in a graph and step by step.
    [
        (1, 1),
        pytest.param(1, 2, marks=pytest.mark.long),
        pytest.param(3, 1, marks=pytest.mark.long),
        pytest.param(3, 2, marks=pytest.mark.long),
    ],
)
def test_search_graph_matches_eager(translator, layers, beam_size):
    """TensorFlow's optimizer once gave nothing for a decoder of a single layer."""
    sizes = {"model_dim": 16, "num_heads": 2, "encoder_layers": 1, "decoder_layers": layers}
    keras.utils.set_random_seed(3)
    small = Transformer(translator.model.config.replace(**sizes, ff_dim=24))
    small.build()
    one = Translator(small, translator.source_tokenizer)
    texts = ["one", "ninety"]
    actual = one.translate(texts, beam_size=beam_size, max_length=7)
    source = one.source_tokenizer.graph_encode(np.array(texts))
    from tfk_transformer.search.search_state import Limits

    eager = one.functions.generate(
        source, Limits(*SearchSettings(beam_size=beam_size, max_length=7).as_arrays().values())
    )
    assert [t.text for t in actual] == one.target_tokenizer.decode(eager.ids[:, 0].numpy())
    np.testing.assert_allclose([t.score for t in actual], eager.scores[:, 0], rtol=1e-5)


def test_replaced_bundle_is_read_whole(tmp_path, monkeypatch):
    tokenizer = SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, V)
    first, second = of_transformer(tokenizer), of_transformer(tokenizer, decoder_layers=1)
    first.save(tmp_path / "bundle", metrics={"epoch": 1})
    read_model = bundle.read_model

    def read_and_replace(folder, bundle_type):
        model = read_model(folder, bundle_type)
        monkeypatch.setattr(bundle, "read_model", read_model)
        second.save(folder, metrics={"epoch": 2})
        return model

    monkeypatch.setattr(bundle, "read_model", read_and_replace)
    loaded = Translator.load(tmp_path / "bundle")
    assert loaded.metrics == {"epoch": 2}
    assert loaded.model.config == second.model.config


def test_linked_probes_are_refused(tmp_path):
    revision = tmp_path / "model" / "snapshots" / "1"
    revision.mkdir(parents=True)
    (tmp_path / "secret").write_text("password\n")
    (revision / PROBES).symlink_to("../../../secret")
    with pytest.raises(ValueError, match="got .*probes.txt, which is a link to .*secret; replace"):
        read_probes(revision / PROBES)
    # The layout of Hugging Face's cache.
    (tmp_path / "model" / "blobs").mkdir()
    (tmp_path / "model" / "blobs" / "abc").write_text("one\n")
    (revision / PROBES).unlink()
    (revision / PROBES).symlink_to("../../blobs/abc")
    assert read_probes(revision / PROBES) == ["one"]
    (tmp_path / "link").symlink_to(revision)
    assert read_probes(tmp_path / "link" / PROBES) == ["one"]
