"""The notebooks of docs/notebooks/ run in a kernel, from the first cell to the last, as a reader
would run them.
"""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
# Smaller data and training, as in tests/test_documents.py.
SMALL = {
    "numbers:en-de": "files:numbers.en,numbers.de",
    "vocab_size=200": "vocab_size=80",
    "batch_tokens=2048": "batch_tokens=512",
}
SMALL |= {"2e-3, warmup_steps=300": "3e-3, warmup_steps=30", "epochs=6": "epochs=3"}


def executed(name, folder):
    """Run a notebook in a folder; gives the outputs of its cells, by type."""
    notebook = nbformat.read(next(path for path in NOTEBOOKS if path.stem == name), as_version=4)
    for cell in notebook.cells:
        for whole, small in SMALL.items():
            cell.source = cell.source.replace(whole, small)
    # The history of IPython is a file in the home folder.
    environment = {**os.environ, "IPYTHONDIR": str(folder / "ipython"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=environment)
    return [
        output.data
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    ]


@pytest.fixture
def folder(exported, tmp_path):
    """A folder with the export that the notebooks name."""
    (tmp_path / "numbers-files").symlink_to(exported)
    return tmp_path


def pictures(outputs):
    return [output["image/png"] for output in outputs if "image/png" in output]


def texts(outputs):
    return [output["text/plain"] for output in outputs]


# The notebook's kernel imports TensorFlow, trains, and searches.
@pytest.mark.long
def test_keras_notebook_runs(tmp_path):
    from tfk_transformer.datasets.numbers import spell

    for language in ("en", "de"):
        (tmp_path / f"numbers.{language}").write_text(
            "".join(f"{spell(number, language)}\n" for number in range(200)), encoding="utf-8"
        )
    outputs = executed("keras-fit", tmp_path)
    assert "Pair(source='forty-two', target='zweiundvierzig', " in texts(outputs)[0]
    assert len(pictures(outputs)) == 4
    shown = next(output["text/html"] for output in outputs if "text/html" in output)
    assert re.search(r'title="[^"]*(one|hundred|twenty|three)[^"]* \d\.\d\d', shown)
    assert (tmp_path / "my-numbers" / "config.json").is_file()


# The notebook's kernel and the server that it starts each import TensorFlow and open a SavedModel.
@pytest.mark.long
def test_server_notebook_runs(folder):
    outputs = executed("saved-model-server", folder)
    assert texts(outputs)[0] == "['zweiundvierzig', 'sieben']"
    assert "einhundertneunundneunzig" in re.sub("<.*?>", "", outputs[1]["text/html"])
    assert len(pictures(outputs)) == 1
    assert "'zweiundvierzig'" in texts(outputs)[-2]
    assert texts(outputs)[-1] == "0"


# Starts a kernel, and draws; the examples of docs/exports.md use the same file without one.
@pytest.mark.long
def test_onnxruntime_notebook_runs(folder):
    outputs = executed("onnxruntime", folder)
    assert texts(outputs)[0].startswith("([['zweiundvierzig'], ['sieben']],")
    assert "einhundertneunundneunzig" in re.sub("<.*?>", "", outputs[1]["text/html"])
    assert len(pictures(outputs)) == 1
    assert "decoder to source" in (folder / "attention.html").read_text(encoding="utf-8")
    assert "('</s>', " in texts(outputs)[-1]


def test_notebooks_have_no_outputs():
    assert [path.stem for path in NOTEBOOKS] == ["keras-fit", "onnxruntime", "saved-model-server"]
    cells = [
        cell
        for path in NOTEBOOKS
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code"
    ]
    assert [cell for cell in cells if cell.outputs or cell.execution_count] == []
