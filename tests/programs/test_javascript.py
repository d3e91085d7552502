"""generate.onnx in Node, over ids, with the program that users get. tests/web has the tests over
text, in Node and in a browser.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.export.parity import probe_ids
from tfk_transformer.inference.signatures import GENERATE
from tfk_transformer.search.signature_functions import signature_function

SCRIPTS = Path(__file__).parents[2] / "scripts"
TEXTS = ["forty-two", "one hundred ninety-nine", "seven", "no number at all", "eighty"]
SETTINGS = [
    {},
    {"beam_size": 1},
    {"beam_size": 3, "n_best": 3, "length_penalty": 0.25},
    {
        "n_best": 2,
        "coverage_penalty": 0.4,
        "repetition_penalty": 1.5,
        "no_repeat_ngram_size": 2,
        "min_length": 3,
        "max_length": 7,
    },
    {"n_best": 4, "temperature": 1.3, "top_k": 20, "top_p": 0.9, "seed": 7},
]
INSTALL = f"npm ci --ignore-scripts --prefix {SCRIPTS.name}"


def needs_package(name):
    return pytest.mark.skipif(
        not (SCRIPTS / "node_modules" / name).is_dir(), reason=f"{name} is not installed: {INSTALL}"
    )


@pytest.fixture(scope="module")
def rows(translator):
    ids = probe_ids(TEXTS, translator.source_tokenizer, 32)
    return [row[row > 0].tolist() for row in ids]


@pytest.fixture(scope="module")
def expected(translator):
    """Results of Keras under each of SETTINGS: for each row a list of (ids, score), without
    padding.
    """
    generate = signature_function(translator.functions, GENERATE)
    source = probe_ids(TEXTS, translator.source_tokenizer, 32)
    results = []
    for settings in SETTINGS:
        outputs = generate(
            source, np.zeros((1, 0), "int32"), *SearchSettings(**settings).as_numbers().values()
        )
        ids, scores = outputs["ids"].numpy(), outputs["scores"].numpy()
        results.append(
            [
                [(row[row > 0].tolist(), score) for row, score in zip(*pair, strict=True)]
                for pair in zip(ids, scores, strict=True)
            ]
        )
    return results


def check(actual, expected):
    """Compare rows of (ids, score) pairs: every id, and scores to 1e-4."""
    actual_ids, expected_ids = (
        [[ids for ids, _ in row] for row in rows] for rows in (actual, expected)
    )
    assert actual_ids == expected_ids
    scores = [[score for row in rows for _, score in row] for rows in (actual, expected)]
    np.testing.assert_allclose(*scores, atol=1e-4)


def node(path, rows, settings):
    words = [",".join(map(str, row)) for row in rows] + [
        f"{name}={value}" for name, value in settings.items()
    ]
    return subprocess.run(
        ["node", SCRIPTS / "onnx_generate.mjs", path, *words], capture_output=True, text=True
    )


@pytest.mark.skipif(not shutil.which("node"), reason="Node is not installed")
@needs_package("onnxruntime-node")
class TestNode:
    @pytest.mark.parametrize("number", range(len(SETTINGS)))
    def test_node_matches_keras(self, exported, rows, expected, number):
        done = node(exported / "generate.onnx", rows, SETTINGS[number])
        assert (done.returncode, done.stderr) == (0, "")
        actual = [
            [(hypothesis["ids"], hypothesis["score"]) for hypothesis in json.loads(line)]
            for line in done.stdout.splitlines()
        ]
        check(actual, expected[number])

    @pytest.mark.parametrize(
        ("rows", "settings", "message"),
        [
            ([[4, 2]], {"beams": 2}, "settings: expected some of beam_size, .*, got beams"),
            ([["a"]], {}, "expected numbers, got NaN"),
        ],
    )
    def test_node_refuses_wrong_input(self, exported, rows, settings, message):
        done = node(exported / "generate.onnx", rows, settings)
        assert done.returncode == 1
        assert done.stdout == ""
        assert re.search(message, done.stderr)
        assert len(done.stderr.splitlines()) == 1
