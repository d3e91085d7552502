"""ONNX files over texts where onnxruntime-extensions is not installed."""

import random
from pathlib import Path

import numpy as np
import onnx
import pytest

from tfk_transformer.export.runtime import sessions
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
from tfk_transformer.export.runtime.protobuf import graph_with_external_weights
from tfk_transformer.export.runtime.text_session import TextSession, without_text_operators

TEXTS = 2_000
# Code points of Latin and other letters, ideographs, emoji, and of blanks and marks.
RANGES = [(32, 127), (0x80, 0x3000), (0x4E00, 0x9FFF), (0x1F300, 0x1FAFF)]
BLANKS = " \t\u00a0\u200b\u0301\ufeff\u0085"


def strange_texts(count):
    chance = random.Random(0)
    characters = [
        *BLANKS,
        *(chr(chance.randrange(*RANGES[number % len(RANGES)])) for number in range(2000)),
        *"twenty-three eight " * 100,
    ]
    return ["".join(chance.choices(characters, k=chance.randrange(12))) for _ in range(count)]


@pytest.fixture
def without_extensions(monkeypatch):
    monkeypatch.setattr(sessions, "text_operators_library", lambda: None)


@pytest.mark.long  # 4,000 translations, so that rare characters occur
def test_texts_are_the_same_without_extensions(exported, monkeypatch):
    words = ["one", "seven", "forty-two", "hundred", "and", "three."]
    chance = random.Random(1)
    texts = [" ".join(chance.choices(words, k=chance.randrange(1, 6))) for _ in range(TEXTS // 2)]
    texts += strange_texts(TEXTS // 2)
    settings = {"max_length": 8, "batch_size": 128, "split_sentences": False}
    expected = OnnxTranslator(exported / "translate.onnx").translate(texts, **settings)
    monkeypatch.setattr(sessions, "text_operators_library", lambda: None)
    assert OnnxTranslator(exported / "translate.onnx").translate(texts, **settings) == expected


def test_ids_are_the_same_without_extensions(exported, monkeypatch):
    texts = {"text": np.array(["", *strange_texts(1000)], object)}
    path = exported / "tokenizer.onnx"
    (expected,) = sessions.open_session(path, text_operators=True).run(["source_ids"], texts)
    monkeypatch.setattr(sessions, "text_operators_library", lambda: None)
    session = sessions.open_session(path, text_operators=True)
    assert isinstance(session, TextSession)
    assert [value.name for value in session.get_inputs()] == ["text"]
    np.testing.assert_array_equal(session.run(["source_ids"], texts)[0], expected)


def test_options_work_without_extensions(exported, monkeypatch):
    def results():
        opened = OnnxTranslator(exported / "translate.onnx")
        texts = ["forty-two", "", "seven"]
        return [
            opened.translate(texts, beam_size=3, n_best=2),
            opened.translate(texts, prefixes=["drei", "", "sie"]),
            opened.translate(texts, token_scores=True),
            opened.translate([]),
            [*opened.stream("forty-two")],
        ]

    expected = results()
    monkeypatch.setattr(sessions, "text_operators_library", lambda: None)
    assert results() == expected
    assert "".join(expected[-1]) == "zweiundvierzig"


def test_equal_tokenizers_are_in_a_file_once(exported):
    graph = onnx.load(exported / "translate.onnx").graph
    assert [node.op_type for node in graph.node].count("SentencepieceTokenizer") == 1


def test_old_file_opens_without_extensions(without_extensions):
    path = Path(__file__).parents[1] / "saved_files" / "translate.onnx"
    assert OnnxTranslator(path).translate(["forty-two"])[0].text


def test_file_without_text_operators_is_kept(exported):
    model = graph_with_external_weights(exported / "generate.onnx")
    over_ids, text_inputs = without_text_operators(model)
    assert text_inputs == []
    assert onnx.load_from_string(over_ids) == onnx.load_from_string(model)


def test_strange_operators_are_refused(exported, tmp_path, without_extensions):
    model = onnx.load(exported / "translate.onnx")
    (tokenizer, *_) = [
        node for node in model.graph.node if node.op_type == "SentencepieceTokenizer"
    ]
    tokenizer.attribute[0].s = b"not a SentencePiece model"
    onnx.save(model, tmp_path / "translate.onnx")
    with pytest.raises(ValueError, match="translate.onnx does not load: tokenizer model: expected"):
        OnnxTranslator(tmp_path / "translate.onnx")
    del tokenizer.attribute[0]
    onnx.save(model, tmp_path / "translate.onnx")
    with pytest.raises(ValueError, match="translate.onnx does not load: "):
        OnnxTranslator(tmp_path / "translate.onnx")
