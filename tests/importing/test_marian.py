"""Imported models of MarianMT against a reference in NumPy float64 that is written from the
family's definition.
"""

import json

import marian_reference as reference
import numpy as np
import pytest
import safetensors.numpy
from id_rows import padded
from marian_case import MarianCase
from marian_folder import TAGS, D, sentences, write_folder

from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.importing.model_import import import_model

CASES = {
    "scaled, swish, tags, pieces that the vocabulary lacks": {
        "tags": TAGS,
        "dropped": ["▁ka", "lo", "▁ba"],
    },
    "unscaled, relu": {"scale_embedding": False, "activation_function": "relu"},
    "two vocabularies, gelu": {"separate": True, "activation_function": "gelu"},
    "two vocabularies, nothing tied": {"separate": True, "tie_word_embeddings": False},
    "unlike widths, gelu_new": {"activation_function": "gelu_new", "decoder_ffn_dim": 31},
    "quick_gelu": {"activation_function": "quick_gelu", "encoder_ffn_dim": 23},
}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    return MarianCase(
        write_folder(tmp_path_factory.mktemp("marian") / "folder", **CASES[request.param])
    )


def test_logits_equal_the_reference(case):
    random = np.random.default_rng(3)
    sizes = [
        tokenizer.vocab_size
        for tokenizer in (case.translator.source_tokenizer, case.translator.target_tokenizer)
    ]
    sources = [[*random.integers(UNKNOWN_ID, sizes[0], length), END_ID] for length in (7, 1, 12)]
    targets = [[START_ID, *random.integers(UNKNOWN_ID, sizes[1], length)] for length in (5, 13, 2)]
    logits = np.array(case.translator.model({"source": padded(sources), "target": padded(targets)}))
    for source, target, actual in zip(sources, targets, logits, strict=True):
        expected = case.expected(source, target)
        known = ~np.isnan(expected)
        np.testing.assert_allclose(actual[: len(target)][known], expected[known], atol=1e-4)
        assert (actual[: len(target)][~known] < -9e8).all()


# A search, as test_transformers.py compares. All logits are compared above.
@pytest.mark.parametrize("case", list(CASES)[:1], indirect=True)
@pytest.mark.long
def test_greedy_equals_the_reference(case):
    texts = sentences("source", 3, seed=9)
    actual = case.translator.translate(
        texts, beam_size=1, max_length=11, max_length_factor=1000, token_scores=True
    )
    for source, translation in zip(
        case.translator.source_tokenizer.encode(texts), actual, strict=True
    ):
        target = [START_ID]
        while len(target) <= 11 and target[-1] != END_ID:
            logits = case.expected([*source, END_ID], target)[-1]
            logits[PAD_ID] = np.nan
            target.append(int(np.nanargmax(logits)))
        assert translation.hypotheses[0].tokens == case.translator.target_tokenizer.pieces_of(
            target[1:]
        )


@pytest.mark.parametrize("case", ["two vocabularies, nothing tied"], indirect=True)
def test_scores_equal_the_reference(case):
    """Padding has its part of the probabilities, and the start token none."""
    source, target = sentences("source", 1, seed=5)[0], sentences("target", 1, seed=5)[0]
    (scored,) = case.translator.score_tokens([source], [target])
    ids = [*case.translator.target_tokenizer.encode([target])[0], END_ID]
    logits = case.expected(
        [*case.translator.source_tokenizer.encode([source])[0], END_ID], [START_ID, *ids[:-1]]
    )
    log_probs = logits - np.log(np.nansum(np.exp(logits), axis=1, keepdims=True))
    np.testing.assert_allclose(
        scored.token_log_probs, log_probs[np.arange(len(ids)), ids], atol=1e-4
    )


def test_position_table_must_match(tmp_path):
    folder = write_folder(tmp_path / "folder")
    path = folder / "model.safetensors"
    arrays, table = safetensors.numpy.load_file(path), reference.positions(47, D).astype("float32")
    names = [f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")]
    safetensors.numpy.save_file(
        {**arrays, **dict.fromkeys(names, table), "lm_head.weight": arrays["model.shared.weight"]},
        path,
    )
    import_model(folder)
    safetensors.numpy.save_file({**arrays, names[1]: table[::-1].copy()}, path)
    with pytest.raises(
        ValueError,
        match=r"expected the sinusoids of MarianMT as 'model.decoder.embed_positions.weight'",
    ):
        import_model(folder)
    safetensors.numpy.save_file(
        {**arrays, "lm_head.weight": arrays["model.shared.weight"] + 1}, path
    )
    with pytest.raises(
        ValueError,
        match=(
            r"one array under the names model.shared.weight, lm_head.weight in .*, got arrays that "
            r"differ"
        ),
    ):
        import_model(folder)


def test_narrow_decoder_fits_its_file(tmp_path):
    """The size of a file is checked with the width of each stack."""
    widths = {"encoder_ffn_dim": 997, "decoder_ffn_dim": 3}
    folder = write_folder(tmp_path / "folder", encoder_layers=1, decoder_layers=4, **widths)
    config = import_model(folder).model.config
    assert (config.ff_width, config.decoder_options().ff_width) == (997, 3)


@pytest.mark.parametrize(
    ("name", "tokenizer", "languages"),
    [
        ("opus-mt-en-de", {}, ("en", "de")),
        ("opus-mt-tc-big-en-pt", {"source_lang": None}, ("en", "pt")),
        ("opus-mt-tc-big-en-pt", {"source_lang": "eng", "target_lang": "por"}, ("eng", "por")),
        ("opus-mt-en-ROMANCE", {"target_lang": "ROMANCE"}, ("en", None)),
        ("opus-mt-tc-bible-big-deu_eng-mul", {}, (None, None)),
        ("my-model-de", {"source_lang": ["de"]}, (None, None)),
    ],
)
def test_folders_state_their_languages(tmp_path, name, tokenizer, languages):
    folder = write_folder(tmp_path / name, encoder_layers=1, decoder_layers=1)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **tokenizer}))
    assert import_model(folder).languages == languages
