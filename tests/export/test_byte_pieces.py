"""Files of models with byte fallback: single bytes are joined to characters, as in Python."""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
from marian_folder import sentences, trained, write_folder
from onnx_ir import tape

from tfk_transformer.export.exporting import export
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.runtime.sessions import text_operators_library
from tfk_transformer.export.runtime.text_session import TEXT_OPERATORS
from tfk_transformer.export.to_onnx.conversion import OPSET
from tfk_transformer.export.to_onnx.text_operators import write_detokenizer
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

pytestmark = pytest.mark.usefixtures("few_probes")
TEXTS = ["Ein Mann läuft im Schnee.", "Eine Frau schläft auf dem Sofa.", "Zwei Hunde spielen."] * 9


def detokenizer(pieces):
    """Return a session of only these operators, which takes ids (N, 1, T)."""
    ids = ir.Value(name="ids", shape=ir.Shape(["N", 1, "T"]), type=ir.TensorType(ir.DataType.INT32))
    graph = ir.Graph([ids], [], nodes=[], opset_imports={"": OPSET, TEXT_OPERATORS: 1}, name="text")
    texts = write_detokenizer(tape.Tape(graph), ids, pieces)
    texts.type = ir.TensorType(ir.DataType.STRING)
    graph.outputs.append(texts)
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(text_operators_library())
    model = ir.to_proto(ir.Model(graph, ir_version=8)).SerializeToString()
    return onnxruntime.InferenceSession(model, options)


def test_onnx_joins_bytes():
    """Bytes outside of UTF-8 sequences become U+FFFD each, as in SentencePiece."""
    tokenizer = SubwordTokenizer.train(TEXTS, 300, byte_fallback=True)
    session = detokenizer(tokenizer.pieces())
    first = tokenizer.ids_of(["<0x00>"])[0]
    random = np.random.default_rng(0)
    chosen = bytes.fromhex(
        "41 80 82 8f 9f a0 ac bf c0 c2 e0 e2 ed f0 f4 f5"
    )  # with bounds of UTF-8
    rows = [[*(first + int(byte) for byte in random.choice([*chosen], 9)), 0] for _ in range(2_000)]
    for text in ("€uro", "a中文b", "é½ \ud7ff\ue000\uffff", "🎈x"):
        rows.append((tokenizer.encode([text])[0] + [0] * 10)[:10])
    texts = session.run(None, {"ids": np.array(rows, "int32")[:, None]})[0].ravel().tolist()
    assert texts == tokenizer.decode(rows)
    assert {"\ufffd", "🎈"} <= set("".join(texts))


# An export to ONNX.
@pytest.mark.long
def test_imported_bytes_are_exported(tmp_path):
    """The export's own texts have no NUL, and its file spells characters in bytes."""
    options = {"byte_fallback": True}
    models = [trained("source", 350, **options), trained("target", 350, **options)]
    folder = write_folder(tmp_path / "folder", models=models, encoder_layers=1, decoder_layers=1)
    translator = import_model(folder)
    export(translator, tmp_path / "files", ["onnx"])
    texts = [*sentences("source", 5), "ka €"]
    expected = [translation.text for translation in translator.translate(texts)]
    translations = load(tmp_path / "files" / "translate.onnx").translate(texts)
    assert [translation.text for translation in translations] == expected
