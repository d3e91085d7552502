"""Imported files of Marian against a reference in NumPy float64 that is written from Marian's
source, and against CTranslate2.
"""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from marian_file_case import MarianFileCase, sinusoids
from marian_folder import sentences
from marian_npz_folder import DECODER_LAYERS, D, F, write_file
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.config import array_files
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.importing.checking.comparison import compare_with_library
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.pipelines.translator import Translator

UNTIED = {"tied-embeddings-all": "false"}
CASES = {
    "one table, rows that no piece has": {"spare": 3},
    "two vocabularies, tied output, relu": {
        "separate": True,
        "tied-embeddings": "true",
        "transformer-ffn-activation": "relu",
        "transformer-postprocess-emb": '""',
        **UNTIED,
    },
    "two vocabularies, nothing tied": {
        "separate": True,
        "tables": {
            "encoder_Wemb": ("source", D),
            "decoder_Wemb": ("target", D),
            "decoder_ff_logit_out_Wt": ("target", D),
        },
        **UNTIED,
    },
    "one input table, an output of an earlier version": {
        "tied-embeddings-src": "true",
        "tables": {"Wemb": ("source", D), "decoder_ff_logit_out_W": (D, "target")},
        **UNTIED,
    },
    "a student of Firefox in 8 bits": {
        "student": True,
        "dtype": "int8",
        "byte_fallback": True,
    },
    "a student with two vocabularies, no projections, GELU": {
        "student": True,
        "separate": True,
        "tied-embeddings": "true",
        "transformer-ffn-activation": "gelu",
        "transformer-no-projection": "true",
        **UNTIED,
    },
    "an untied file in 16 bits, an unlike width": {
        "separate": True,
        "dtype": "int16",
        "transformer-decoder-dim-ffn": F + 8,
        "tables": {
            "encoder_Wemb": ("source", D),
            "decoder_Wemb": ("target", D),
            "decoder_ff_logit_out_Wt": ("target", D),
        },
        **UNTIED,
    },
    "a binary file of half precision": {"dtype": "float16"},
}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    return MarianFileCase(tmp_path_factory.mktemp("marian"), **CASES[request.param])


def test_logits_equal_the_reference(case):
    random = np.random.default_rng(3)
    source, target = (random.integers(UNKNOWN_ID + 1, len(rows), 9) for rows in case.rows)
    logits = np.array(
        case.translator.model(
            {"source": np.array([[*source, END_ID]]), "target": np.array([[START_ID, *target]])}
        )
    )[0]
    expected = case.reference.logits(case.rows[0][[*source, END_ID]], case.rows[1][target])
    np.testing.assert_allclose(logits[:, END_ID:], expected[:, case.rows[1][END_ID:]], atol=3e-5)
    assert (logits[:, [PAD_ID, START_ID]] < -9e8).all()


def test_texts_have_the_file_ids(case):
    for tokenizer, path, rows in zip(
        (case.translator.source_tokenizer, case.translator.target_tokenizer),
        case.vocab,
        case.rows,
        strict=True,
    ):
        own = sentencepiece.SentencePieceProcessor(model_file=str(path))
        texts = [
            *sentences("source", 50, seed=4),
            *sentences("target", 50, seed=4),
            "ж x </s> <unk>",
            "  ",
        ]
        assert [rows[ids].tolist() for ids in tokenizer.encode(texts)] == own.encode(texts)


# A search. test_marian_folder.py compares searches of a student, and all logits are compared above.
@pytest.mark.parametrize("case", list(CASES)[:1], indirect=True)
@pytest.mark.long
def test_greedy_equals_the_reference(case):
    texts = sentences("source", 2, seed=9)
    actual = case.translator.translate(
        texts, beam_size=1, max_length=9, max_length_factor=1000, token_scores=True
    )
    for source, translation in zip(
        case.translator.source_tokenizer.encode(texts), actual, strict=True
    ):
        target = []
        while len(target) < 9 and END_ID not in target:
            row = case.reference.logits(case.rows[0][[*source, END_ID]], case.rows[1][target])[-1]
            target.append(int(np.argmax(row)) + END_ID)
        assert translation.hypotheses[0].tokens == case.translator.target_tokenizer.pieces_of(
            target
        )


def test_no_library_checks_the_import(translator, tmp_path):
    comparison = compare_with_library(write_file(tmp_path), translator)
    assert comparison["agrees"] is None
    assert comparison["reason"].startswith("no library reads this file with its search")


@pytest.mark.long  # a search; folders that CTranslate2 converted are compared in every run
def test_ctranslate2_translates_alike(tmp_path):
    """CTranslate2 reads Marian's files too. It takes other sinusoids, so it is given Marian's as a
    table.
    """
    ctranslate2 = pytest.importorskip("ctranslate2")
    pytest.importorskip("yaml")
    case = MarianFileCase(tmp_path)
    with np.load(case.path) as arrays:
        text = (
            bytes(arrays["special:model.yml"]).rstrip(b"\0")
            + b"transformer-guided-alignment-layer: last\n\0"
        )
        np.savez(
            tmp_path / "peer.npz",
            **{
                **arrays,
                "Wpos": sinusoids(64).astype("float32"),
                "special:model.yml": np.frombuffer(text, "int8"),
            },
        )
    names = ["</s>", "<unk>", *map(str, range(2, 67))]
    (tmp_path / "vocab.yml").write_text(
        "".join(f'"{name}": {row}\n' for row, name in enumerate(names))
    )
    ctranslate2.converters.MarianConverter(
        str(tmp_path / "peer.npz"), [str(tmp_path / "vocab.yml")] * 2
    ).convert(str(tmp_path / "peer"))
    config = tmp_path / "peer" / "config.json"  # its converter leaves out Marian's epsilon
    config.write_text(json.dumps({**json.loads(config.read_text()), "layer_norm_epsilon": 1e-6}))
    texts = sentences("source", 200, seed=6)
    limits = {"max_length": 30, "max_length_factor": 1000}
    ours = case.translator.translate(
        texts, beam_size=4, length_penalty=0.0, token_scores=True, **limits
    )
    sources = [
        [names[case.rows[0][i]] for i in ids]
        for ids in case.translator.source_tokenizer.encode(texts)
    ]
    peer = ctranslate2.Translator(str(tmp_path / "peer"), intra_threads=1)
    theirs = peer.translate_batch(
        sources,
        beam_size=4,
        length_penalty=1e-6,
        min_decoding_length=0,
        max_decoding_length=30,
        return_scores=True,
    )
    piece_to_id = case.translator.target_tokenizer._processor.piece_to_id
    for actual, other in zip(ours, theirs, strict=True):
        best = actual.hypotheses[0]
        assert [
            names[case.rows[1][i]] for i in piece_to_id(best.tokens) if i != END_ID
        ] == other.hypotheses[0]
        assert best.score == pytest.approx(other.scores[0], abs=1e-3)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"type": "amun", "enc-depth": "x"},
            "type: Input should be 'transformer', got 'amun'; enc-depth: .*valid integer",
        ),
        (
            {"transformer-decoder-autoreg": "average-attention"},
            "transformer-decoder-autoreg: Input should be 'self-attention' or 'rnn', got 'average",
        ),
        (
            {"transformer-decoder-autoreg": "rnn", "dec-cell": "gru"},
            "dec-cell: expected 'ssru' without layer-normalization .* got 'gru'",
        ),
        (
            {"student": True, "layer-normalization": "true"},
            "dec-cell: expected 'ssru' without layer-normalization .* got 'ssru' with it",
        ),
        ({"student": True, "transformer-rnn-projection": "true"}, "transformer-rnn-projection: "),
        (
            {"tied-embeddings-all": "false"},
            "no 'encoder_Wemb' .*no 'decoder_Wemb' .*an unexpected 'Wemb'",
        ),
        ({"dec-depth": DECODER_LAYERS - 1}, f"an unexpected 'decoder_l{DECODER_LAYERS}_self_Wq'"),
        ({"dim-vocabs": "[10, 10]"}, "at most 10 pieces"),
        (
            {"transformer-no-projection": "true", "enc-depth": 10**9},
            "there are 1,000,000,00. layers",
        ),
        ({"dim-emb": "[" * 3000}, "does not load"),
    ],
    ids=str,
)
def test_unsupported_values_are_named(tmp_path, changes, part):
    write_file(tmp_path, **changes)
    with pytest.raises(ValueError, match=part) as error:
        import_model(tmp_path / "model.npz", vocab=[tmp_path / "source.spm"])
    assert "\n" not in str(error.value)
    opened = map(os.path.realpath, Path("/proc/self/fd").glob("*"))  # a folder that only Linux has
    assert str(tmp_path / "model.npz") not in opened


def test_unreadable_files_are_named(tmp_path):
    path = write_file(tmp_path)
    for vocab, part in (
        ([], "got 0 files"),
        ([tmp_path / "a", tmp_path / "b"], f"got no {tmp_path / 'a'}, {tmp_path / 'b'}"),
    ):
        with pytest.raises(ValueError, match=re.escape(part)):
            import_model(path, vocab=vocab)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"model.npz does not load"):
        import_model(path, vocab=[tmp_path / "source.spm"])
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(
        ValueError,
        match=r"model.npz does not load: File is not a zip file",
    ):
        import_model(path, vocab=[tmp_path / "source.spm"])
    np.savez(path, Wemb=np.zeros((3, 3), "float32"))
    with pytest.raises(ValueError, match="without 'special:model.yml'"):
        import_model(path, vocab=[tmp_path / "source.spm"])


def test_many_arrays_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "MAX_MEMBERS", 3)
    path = write_file(tmp_path)
    with pytest.raises(ValueError, match=r"model.npz does not load: expected at most 3 files"):
        import_model(path, vocab=[tmp_path / "source.spm"])


def test_import_writes_a_bundle(tmp_path):
    path = write_file(tmp_path)
    arguments = [
        "import",
        str(path),
        "--vocab",
        str(tmp_path / "source.spm"),
        "--out",
        str(tmp_path / "bundle"),
        "--source-language",
        "de",
    ]
    done = CliRunner().invoke(main.app, arguments)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0] == "Marian: model.npz, license: not stated, from de"
    assert Translator.load(tmp_path / "bundle").languages == ("de", None)
    assert Translator.load(tmp_path / "bundle").origin["family"] == "Marian"
