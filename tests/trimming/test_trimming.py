"""Translators with a part of their vocabulary: ids, probabilities, weights, bundles and exports."""

import keras
import numpy as np
import pytest
from keras import ops
from marian_folder import sentences, write_folder
from multilingual_folder import write_m2m100, write_nllb
from random_translators import SIZES, translator_of

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID, START_ID
from tfk_transformer.data.shortlist import learn_shortlist
from tfk_transformer.datasets.pairs import Pair
from tfk_transformer.export.exporting import export
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.trimming import trim

SOURCES = sentences("source", 23, seed=5)
TARGETS = sentences("target", 23, seed=6)
NLLB = {"source_language": "deu_Latn", "target_language": "eng_Latn"}
SIDES = ("source", "target")


def tokenizer_of(model_type="unigram", byte_fallback=False, sides=SIDES):
    texts = [text for side in sides for text in sentences(side, 300)]
    size = {"unigram": 89, "bpe": 113}[model_type] + 256 * byte_fallback
    return SubwordTokenizer.train(texts, size, model_type, byte_fallback)


def translator_of_two(source, target, **options):
    """A translator with random weights, and search settings and probes of its own."""
    config = TransformerConfig(
        source_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
        **{**SIZES, "max_length": 97, **options},
    )
    keras.utils.set_random_seed(3)
    model = Transformer(config)
    model.build()
    random = np.random.default_rng(5)
    model.set_weights(
        [weight + random.normal(scale=0.3, size=weight.shape) for weight in model.get_weights()]
    )
    return Translator(model, source, target, SOURCES[:3], search={"beam_size": 3})


@pytest.fixture(scope="module")
def joint():
    tokenizer = tokenizer_of()
    return translator_of_two(tokenizer, tokenizer, tie_embeddings="all", output_bias=True)


def old_ids(before, after):
    """The id before trimming of each id of a tokenizer."""
    pieces = before.ids_of(after.pieces_of(range(1, after.vocab_size)))
    return np.array([0, *pieces])


def log_probs(translator, source, target):
    """Log-probabilities (T, V) of the tokens after each target token."""
    ids = {"source": np.array([[*source, END_ID]]), "target": np.array([[START_ID, *target]])}
    logits = ops.convert_to_numpy(translator.model(ids))[0].astype("float64")
    return normalized(logits)


def normalized(logits):
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def assert_equal_on_kept_tokens(before, after, sources, targets):
    """Ids map one to one, and log-probabilities are equal after renormalizing."""
    source_ids = old_ids(before.source_tokenizer, after.source_tokenizer)
    target_ids = old_ids(before.target_tokenizer, after.target_tokenizer)
    for source, target in zip(sources, targets, strict=True):
        old = (
            before.source_tokenizer.encode([source])[0],
            before.target_tokenizer.encode([target])[0],
        )
        new = after.source_tokenizer.encode([source])[0], after.target_tokenizer.encode([target])[0]
        assert (source_ids[new[0]].tolist(), target_ids[new[1]].tolist()) == old
        expected = normalized(log_probs(before, *old)[:, target_ids])
        np.testing.assert_allclose(log_probs(after, *new), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("model_type", "byte_fallback", "separate", "options"),
    [
        ("unigram", False, False, {"tie_embeddings": "all", "output_bias": True}),
        ("unigram", True, False, {"tie_embeddings": "none"}),
        ("bpe", True, True, {"tie_embeddings": "none", "output_bias": True}),
        # The cases above have both kinds of tokenizers, shared and separate.
        pytest.param(
            *("bpe", False, False, {"tie_embeddings": "target", "source_prefix": (9, 7)}),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("unigram", False, True, {"tie_embeddings": "target", "target_prefix": (11,)}),
            marks=pytest.mark.long,
        ),
    ],
)
def test_log_probs_equal_over_kept(model_type, byte_fallback, separate, options):
    sides = [("source",), ("target",)] if separate else [SIDES, SIDES]
    before = translator_of_two(
        *(tokenizer_of(model_type, byte_fallback, names) for names in sides), **options
    )
    after = trim(before, SOURCES, TARGETS)
    assert after.model.count_params() < before.model.count_params()
    assert_equal_on_kept_tokens(before, after, SOURCES[:3], TARGETS[:3])


def test_sides_with_own_tokenizers_share_rows(tmp_path):
    """The sides of MarianMT have one table and two SentencePiece models."""
    before = import_model(write_folder(tmp_path / "opus", tags=[">>fra<<"]))
    after = trim(before, SOURCES[:5], TARGETS[:5])
    assert after.source_tokenizer.model != after.target_tokenizer.model
    sources = [*SOURCES[:2], f">>fra<< {SOURCES[0]}"]
    assert_equal_on_kept_tokens(before, after, sources, [*TARGETS[:2], TARGETS[0]])


def test_import_trims_as_trim_does(tmp_path):
    folder = write_nllb(tmp_path / "nllb")
    texts = [*SOURCES[:6], *TARGETS[:6]]
    before = import_model(folder, **NLLB)
    after = trim(before, texts, vocab_size=61)
    imported = import_model(folder, **NLLB, keep_texts=texts, vocab_size=61)
    assert imported.source_tokenizer.model == after.source_tokenizer.model
    assert imported.model.config == after.model.config
    assert imported.origin == after.origin
    for name, weight in after.model.named_weights.items():
        np.testing.assert_array_equal(imported.model.named_weights[name], weight)
    # The language of the sources is the same token.
    pieces = [
        translator.source_tokenizer.pieces_of(translator.model.config.source_prefix)
        for translator in (before, imported)
    ]
    assert pieces == [["deu_Latn"], ["deu_Latn"]]


def test_unnamed_rows_are_dropped(tmp_path):
    before = import_model(write_nllb(tmp_path / "nllb"), **NLLB)
    after = trim(before, SOURCES)
    pieces = [
        translator.source_tokenizer.pieces_of(range(1, translator.source_tokenizer.vocab_size))
        for translator in (before, after)
    ]
    unnamed = [sum(piece.startswith("<row ") for piece in row) for row in pieces]
    assert unnamed == [3, 0]
    assert "zho_Hans" in pieces[1]


def test_origin_has_sizes_and_check(joint):
    kept = trim(joint, SOURCES, TARGETS, vocab_size=50, check_texts=["kalo mi.", "ж"])
    figures = kept.origin["trimming"]
    assert figures["source_vocab_size"] == {"before": 89, "after": 50}
    assert figures["target_vocab_size"] == {"before": 89, "after": 50}
    # Rows of the table of width 18, and of the bias.
    assert figures["parameters"] == {
        "before": joint.model.count_params(),
        "after": joint.model.count_params() - 39 * (18 + 1),
    }
    check = figures["check"]["source"]
    assert (check["texts"], check["unknown_pieces"]) == (2, {"before": 1, "after": 1})
    assert list(figures["check"]) == ["source"]


def test_check_uses_pieces_of_other_texts(joint):
    """The pieces of the text that is held out are kept, but the check is without them."""
    texts = [*["ka lo"] * 9, "▁mirute vésona"]
    kept = trim(joint, texts)
    encoded = [pipeline.source_tokenizer.encode(texts) for pipeline in (joint, kept)]
    assert list(map(len, encoded[0])) == list(map(len, encoded[1]))
    check = kept.origin["trimming"]["check"]["source"]
    assert (check["texts"], check["same_segmentation"]) == (1, 0.0)


def test_trimming_keeps_search_and_probes(joint, tmp_path):
    joint.origin = {"family": "MarianMT", "license": "apache-2.0"}
    trim(joint, SOURCES).save(tmp_path / "bundle")
    kept = Translator.load(tmp_path / "bundle")
    assert kept.search == {"beam_size": 3}
    assert kept.probes == SOURCES[:3]
    assert kept.origin["license"] == "apache-2.0"


def test_trims_a_decoder_only_model():
    tokenizer = tokenizer_of()
    options = {**SIZES, "vocab_size": tokenizer.vocab_size, "tie_embeddings": "all"}
    del options["encoder_layers"]
    before = translator_of(tokenizer, LanguageModel, **options)
    after = trim(before, SOURCES)
    ids = old_ids(tokenizer, after.source_tokenizer)
    tokens = after.source_tokenizer.encode(SOURCES[:1])[0][:13]
    logits = [
        ops.convert_to_numpy(model(np.array([row])))
        for model, row in ((before.model, ids[tokens]), (after.model, tokens))
    ]
    np.testing.assert_allclose(logits[1], logits[0][:, :, ids], atol=1e-5)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, "texts: expected sentences such as those to translate, got none"),
        ([" ", ""], {}, "texts: expected sentences such as those to translate, got none"),
        ("kalo", {}, "texts: expected a list of texts, got a text of 4 characters"),
        (SOURCES, {"target_texts": "kalo"}, "target_texts: expected a list of texts"),
        (SOURCES, {"check_texts": [" "]}, "check_texts: expected texts that are not blank"),
        (
            SOURCES,
            {"vocab_size": 90},
            "vocab_size: expected at most 89, the pieces of the source and target, got 90",
        ),
        (SOURCES, {"vocab_size": 20}, r"expected at least \d\d, the special tokens.*got 20;"),
    ],
)
def test_trimming_errors_are_clear(joint, texts, options, message):
    with pytest.raises(ValueError, match=message):
        trim(joint, texts, **options)


def test_ensembles_and_shortlists_are_refused(joint):
    with pytest.raises(ValueError, match="LanguageModel, got one of Ensemble; trim the members"):
        trim(Translator.ensemble([joint]), SOURCES)
    pairs = [Pair(source, source, "here") for source in SOURCES]
    tokenizer = joint.source_tokenizer
    listed = Translator(
        joint.model, tokenizer, shortlist=learn_shortlist(pairs, tokenizer, tokenizer)
    )
    with pytest.raises(ValueError, match="without a shortlist.* of 23 text pairs"):
        trim(listed, SOURCES)


# Traces a search, and converts it to ONNX.
@pytest.mark.long
def test_exports_equal_trimmed_model(tmp_path):
    before = import_model(write_nllb(tmp_path / "nllb"), **NLLB)
    after = trim(before, SOURCES, TARGETS)
    export(after, tmp_path / "files", ["onnx"])
    expected = [translation.text for translation in after.translate(SOURCES)]
    translations = load(tmp_path / "files" / "translate.onnx").translate(SOURCES)
    assert [translation.text for translation in translations] == expected


# Two imports and an export, which compares the texts of random pieces.
@pytest.mark.long
def test_trimmed_m2m100_exports_to_its_library(tmp_path):
    folder = write_m2m100(tmp_path / "m2m100")
    languages = {"source_language": "de", "target_language": "en"}
    kept = import_model(folder, **languages, keep_texts=SOURCES)
    figures = export(kept, tmp_path / "files", ["huggingface"])["huggingface"]
    assert (figures["family"], figures["largest_token_score_difference"]) == ("M2M100", 0.0)
