"""Compare the ids and texts of a vocabulary of tokens in every runtime with Python.

python benchmarks/token_vocabularies.py RULE TEXTS [--node-modules FOLDER]

RULE is characters, words or a regular expression; see `SubwordTokenizer.from_tokens`. TEXTS has a
text per line. The vocabulary is learned from them. 100 texts with an unknown character each are
added. The runtimes are a SavedModel, ONNX with onnxruntime-extensions and without, and Node.
"""

import argparse
import json
import operator
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnx_ir as ir
import tensorflow as tf
from onnx_ir import tape

from tfk_transformer import SubwordTokenizer
from tfk_transformer.constants import END_ID, UNKNOWN_ID
from tfk_transformer.export.runtime import sessions
from tfk_transformer.export.to_onnx import onnx_models, text_operators
from tfk_transformer.export.to_onnx.onnx_file import save
from tfk_transformer.export.to_web import web_files
from tfk_transformer.export.to_web.npm_packages import copy_sentencepiece, find_packages
from tfk_transformer.inference.token_scoring import padded_ids
from tfk_transformer.tokenizers.token_vocabulary import split_function

FIRST_UNKNOWN = 0x4E00  # code point
UNKNOWN = 100
Results = tuple[list[list[int]], list[str]]  # ids with the end token, and texts of them
NODE = """
import { readFileSync } from "node:fs";
const { openTokenizer } = await import(process.argv[1]);
const { model, texts } = JSON.parse(readFileSync(0, "utf8"));
const { encode, decode } = await openTokenizer(new Uint8Array(readFileSync(model)));
const ids = texts.map(encode);
console.log(JSON.stringify([ids, ids.map(decode)]));
"""


def in_saved_model(tokenizer: SubwordTokenizer, texts: list[str], folder: Path) -> Results:
    """Return the ids and texts of a SavedModel's tokenizer."""
    module = tf.Module()
    module.encode, module.decode = tokenizer._encode_function, tokenizer._decode_function
    tf.saved_model.save(module, str(folder))
    loaded = tf.saved_model.load(str(folder))
    ids = loaded.encode(tf.constant(texts))
    decoded = [text.decode() for text in loaded.decode(ids).numpy()]
    return [row[row > 0].tolist() for row in ids.numpy()], decoded


def in_onnx(tokenizer: SubwordTokenizer, texts: list[str], folder: Path) -> Results:
    """Return the ids and texts of an ONNX file with onnxruntime-extensions."""
    model = onnx_models.tokenizer_graph(tokenizer)
    op = tape.Tape(model.graph)
    (ids,) = model.graph.outputs
    rows = op.op("Unsqueeze", [ids, op.initializer(ir.tensor([1]), name="axis")])
    decoded = text_operators.write_detokenizer(op, rows, tokenizer.pieces())
    decoded.name, decoded.dtype, decoded.shape = "texts", ir.DataType.STRING, ir.Shape([None, 1])
    model.graph.outputs.append(decoded)
    save(model, folder / "both.onnx")
    session = sessions.open_session(folder / "both.onnx", text_operators=True)
    ids, decoded = session.run(None, {"text": np.array(texts, object)})
    return [row[row > 0].tolist() for row in ids], decoded[:, 0].tolist()


def in_light_onnx(tokenizer: SubwordTokenizer, texts: list[str], folder: Path) -> Results:
    """Return the ids and texts of an ONNX file where onnxruntime-extensions is not installed."""
    save(onnx_models.tokenizer_graph(tokenizer), folder / "tokenizer.onnx")
    library = sessions.text_operators_library
    sessions.text_operators_library = lambda: None
    try:
        session = sessions.open_session(folder / "tokenizer.onnx", text_operators=True)
        (ids,) = session.run(None, {"text": np.array(texts, object)})
    finally:
        sessions.text_operators_library = library
    return [row[row > 0].tolist() for row in ids], tokenizer.decode(ids.tolist())


def in_node(tokenizer: SubwordTokenizer, texts: list[str], folder: Path, packages: Path) -> Results:
    """Return the ids and texts of a web folder's tokenizer in Node."""
    (folder / "runtime").mkdir()
    copy_sentencepiece(packages, folder / "runtime")
    for name in ("tokenizer.mjs", "protobuf.mjs"):
        shutil.copy(web_files.PAGE_FILES / name, folder)
    tokenizer.save(folder / "source.model")
    url = (folder / "tokenizer.mjs").as_uri()
    ids, decoded = json.loads(
        subprocess.run(
            ["node", "--input-type=module", "-e", NODE, url],
            input=json.dumps({"model": str(folder / "source.model"), "texts": texts}),
            capture_output=True,
            encoding="utf-8",
            check=True,
        ).stdout
    )
    return ids, decoded


def main() -> None:
    """Print the number of equal ids and texts of each runtime; fail if one differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rule")
    parser.add_argument("texts", type=Path)
    parser.add_argument("--node-modules", type=Path)
    options = parser.parse_args()
    lines = options.texts.read_text(encoding="utf-8").splitlines()
    tokenizer = SubwordTokenizer.train(lines, 1_000_000, tokens=options.rule)
    texts = list(lines)
    split = split_function(options.rule)
    for number, text in enumerate(lines[:UNKNOWN]):
        tokens = split(text)
        tokens.insert(number % (len(tokens) + 1), chr(FIRST_UNKNOWN + number))
        texts.append((" " if options.rule == "words" else "").join(tokens))
    rows = tokenizer.encode(texts)
    expected = [[*row, END_ID] for row in rows], tokenizer.decode(padded_ids(rows).tolist())
    unknown = sum(row.count(UNKNOWN_ID) for row in rows)
    back = sum(map(operator.eq, expected[1][: len(lines)], lines))
    print(f"{tokenizer.vocab_size:,} pieces, {len(texts):,} texts, {unknown} unknown tokens")
    print(f"text given back: {back:,} of {len(lines):,}")
    runtimes = {
        "SavedModel": in_saved_model,
        "ONNX, onnxruntime-extensions": in_onnx,
        "ONNX, light install": in_light_onnx,
        "Node": lambda *task: in_node(*task, find_packages(options.node_modules)),
    }
    failed = back < len(lines) or unknown < UNKNOWN
    for name, run in runtimes.items():
        with tempfile.TemporaryDirectory() as folder:
            results = run(tokenizer, texts, Path(folder))
        counts = [
            sum(map(eq, *pair))
            for eq, pair in zip(
                (list.__eq__, str.__eq__), zip(expected, results, strict=True), strict=True
            )
        ]
        print(f"{name}: same ids {counts[0]:,}, same texts {counts[1]:,}")
        failed |= min(counts) < len(texts)
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
