"""The side of benchmarks/firefox_engine.py that runs without Bergamot."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SAVED = Path(__file__).parents[1] / "saved_files"
sys.path.insert(0, str(BENCHMARKS))

import firefox_engine  # noqa: E402
from engines.process import EngineSpec  # noqa: E402


def test_text_engine_translates_texts():
    spec = EngineSpec("ONNX", "onnx_text", SAVED / "translate.onnx", ("2",))
    engine = firefox_engine.TextEngine(spec, threads=1)
    try:
        for one_by_one in (True, False):
            answer = engine.ask(texts=["seven", "forty-two"], one_by_one=one_by_one)
            assert answer["texts"] == ["sieben", "zweundvierzig"]
            assert answer["seconds"] > 0
    finally:
        engine.close()
