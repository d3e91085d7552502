"""Tokenizers of whole tokens in SavedModels and ONNX files, with and without extensions.

`benchmarks/token_vocabularies.py` compares 10,000 texts, in Node too.
"""

import numpy as np
import onnx_ir as ir
import pytest
import tensorflow as tf
from onnx_ir import tape

from tfk_transformer.constants import END_ID
from tfk_transformer.export.runtime import sessions
from tfk_transformer.export.to_onnx import onnx_models, text_operators
from tfk_transformer.export.to_onnx.onnx_file import save
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

SMILES = r"\[[^\]]+]|Br?|Cl?|N|O|S|c|n|\(|\)|=|#|[0-9]"
TEXTS = {
    "characters": ["forty-two", "Zürich  東京", "a🙂b", " a ", ""],
    "words": ["HH AH0 L OW1", "W ER1 L D", "OW1  D", ""],
    SMILES: ["CCC1=[O+][Cu-3]2([O+]=C(CC)C1)", "O=C1NC(=O)C(Br)(C(Cl)Cl)N1", ""],
}
UNKNOWN = ["今", "今天", "C今N", "OW1 今 D", "D 今 天", "forty今-two"]


@pytest.fixture(params=TEXTS, ids=["characters", "words", "smiles"])
def tokenizer(request):
    return SubwordTokenizer.train(TEXTS[request.param], 100, tokens=request.param)


@pytest.fixture
def texts():
    return [text for texts in TEXTS.values() for text in texts] + UNKNOWN


def with_ends(tokenizer, texts):
    return [[*row, END_ID] for row in tokenizer.encode(texts)]


def test_saved_model_splits_alike(tokenizer, texts, tmp_path):
    module = tf.Module()
    module.encode = tf.function(
        tokenizer.graph_encode, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    module.decode = tf.function(
        tokenizer.graph_decode, input_signature=[tf.TensorSpec([None, None], tf.int32)]
    )
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    ids = loaded.encode(tf.constant(texts))
    expected = with_ends(tokenizer, texts)
    assert [row[row > 0].tolist() for row in ids.numpy()] == expected
    actual = [text.decode() for text in loaded.decode(ids).numpy()]
    assert actual == tokenizer.decode(expected)


def test_onnx_splits_alike(tokenizer, texts, tmp_path):
    model = onnx_models.tokenizer_graph(tokenizer)
    op = tape.Tape(model.graph)
    (ids,) = model.graph.outputs
    rows = op.op("Unsqueeze", [ids, op.initializer(ir.tensor([1]), name="axis")])
    decoded = text_operators.write_detokenizer(op, rows, tokenizer.pieces())
    decoded.name, decoded.dtype, decoded.shape = "texts", ir.DataType.STRING, ir.Shape([None, 1])
    model.graph.outputs.append(decoded)
    save(model, tmp_path / "texts.onnx")
    session = sessions.open_session(tmp_path / "texts.onnx", text_operators=True)
    ids, actual = session.run(None, {"text": np.array(texts, object)})
    expected = with_ends(tokenizer, texts)
    assert [row[row > 0].tolist() for row in ids] == expected
    assert actual[:, 0].tolist() == tokenizer.decode(expected)


def test_onnx_splits_alike_without_extensions(tokenizer, texts, tmp_path, monkeypatch):
    save(onnx_models.tokenizer_graph(tokenizer), tmp_path / "tokenizer.onnx")
    monkeypatch.setattr(sessions, "text_operators_library", lambda: None)
    session = sessions.open_session(tmp_path / "tokenizer.onnx", text_operators=True)
    (ids,) = session.run(None, {"text": np.array(texts, object)})
    assert [row[row > 0].tolist() for row in ids] == with_ends(tokenizer, texts)
