"""The benchmarks of documents and glossaries, on number words."""

import re
import sys
from pathlib import Path

import pytest
from forked_programs import run_program

from tfk_transformer.datasets.numbers import spell

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(exported):
    """Run a benchmark with the exported ONNX file, and return what it prints."""

    def start(name, *options):
        command = [
            sys.executable,
            REPOSITORY / "benchmarks" / name,
            exported / "translate.onnx",
            *options,
        ]
        done = run_program(command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return start


def test_document_lines_score_as_alone(run, recipe):
    pytest.importorskip("sentencex")
    printed = run("documents.py", "--data", recipe.data, "--documents", "2", "--beam-size", "1")
    rows = dict(re.findall(r"│ (alone|one per line|paragraphs of 10) +│ +([\d.]+)", printed))
    assert set(rows) == {"alone", "one per line", "paragraphs of 10"}
    assert rows["one per line"] == rows["alone"]
    count = int(re.search(r"(\d+) texts in 2 documents", printed)[1])
    assert printed.count(f"{count} of {count}") == 2  # alone, and one per line


def test_the_glossary_keeps_every_term(run, tmp_path):
    numbers = [tens + ones for tens in (20, 30, 40, 50) for ones in range(1, 10)]
    # In words of their own, unlike the model's.
    german = [f"{spell(n % 10, 'de')} und {spell(n - n % 10, 'de')}" for n in numbers]
    for name, lines in (
        ("en", [spell(n, "en").replace("-", " ") for n in numbers]),
        ("de", german),
    ):
        for split in ("train", "test"):
            (tmp_path / f"{name}.{split}.txt").write_text("\n".join(lines))
    printed = run(
        "glossary.py", "--data", f"folder:{tmp_path}:en-de", "--beam-size", "1", "--sentences", "12"
    )
    kept = dict(re.findall(r"│ (without|with) +│ +([\d.]+)%", printed))
    assert float(kept["without"]) < float(kept["with"]) == 100
