"""`python -m tfk_transformer.beam` with Beam's runner of this machine, in one and two processes,
and through a job server.
"""

import gzip
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from beam_environment import PYTHON, needs_beam

import tfk_transformer as tfk
from tfk_transformer.runtime_environment import install_line

MODEL = Path(__file__).parents[1] / "saved_files" / "translate.onnx"
WORDS = [*MODEL.with_name("en.txt").read_text(encoding="utf-8").splitlines(), "", "naïve 7 🙂"]
BAD = [
    (
        b"not JSON",
        (
            "expected a JSON object, got a line that cannot be parsed (Expecting value: line 1 "
            "column 1 (char 0))."
        ),
    ),
    (b'["one"]', "expected a JSON object, got a value of type list."),
    (b'{"id": 5}', "expected a string in text, got nothing."),
    (b'{"text": 5}', "expected a string in text, got int."),
    (
        b'{"text": "one", "score": 1}',
        "expected an object without score, got one with it; choose another name for the new value.",
    ),
    (b'{"text": "caf\xe9"}', "expected UTF-8, got byte 0xe9 at column 14."),
    (
        rb'{"text": "\ud800"}',
        (
            "expected text, got the character U+D800 at position 1; remove it, or decode the bytes "
            "that "
            "it came from as UTF-8."
        ),
    ),
    (
        b'{"text": "%s"}' % b" ".join([b"one"] * 500),
        r"expected at most \d+ tokens, got more .*; split it into sentences.",
    ),
]
RUNNERS = {
    "one process": [],
    "two processes": ["--direct_running_mode", "multi_processing", "--direct_num_workers", "2"],
    "two processes that share a model": [
        "--direct_running_mode=multi_processing",
        "--direct_num_workers=2",
        "--share-model",
    ],
}
# Apache Beam takes seconds to import, and arguments are refused before it does anything.
IN_ONE_PROCESS = """
import json, runpy, sys
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["tfk_transformer.apps.beam", *arguments]
    try:
        runpy.run_module("tfk_transformer.apps.beam", run_name="__main__")
    except SystemExit as end:
        print("ended with status", end.code, file=sys.stderr)
"""


def beam(*arguments, python=PYTHON):
    command = [python, "-m", "tfk_transformer.beam", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def lines(folder, name):
    return [
        line
        for path in sorted(folder.glob(f"{name}-*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files of JSON lines, of which one begins with a byte order mark, and the other is
    compressed and has the bad lines.
    """
    path = tmp_path_factory.mktemp("beam")
    good = [
        json.dumps({"id": number, "text": text, "more": [1.50]}, ensure_ascii=False) + "\n"
        for number, text in enumerate(WORDS)
    ]
    (path / "a.jsonl").write_text("".join(good[::2]), encoding="utf-8-sig")
    with gzip.open(path / "b.jsonl.gz", "wb") as file:
        file.write("".join(good[1::2]).encode() + b"\n".join(line for line, _ in BAD))
    return path


@pytest.fixture(scope="module")
def expected():
    translator = tfk.load(MODEL, threads=1)
    return translator.translate(WORDS, beam_size=2, max_length=12, split_sentences=False)


def translated(folder, output, *options):
    settings = ["--beam-size", "2", "--setting", "max_length=12", "--texts", "30"]
    settings += ["--no-split-sentences"]  # a long text is a bad line
    done = beam(
        "--model", MODEL, "--input", f"{folder}/*.jsonl*", "--output", output, *settings, *options
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (
        f"{len(WORDS)} texts translated; {len(BAD)} bad lines, see {output}/bad-lines-*.\n"
        in done.stderr
    )


def check(output, folder, expected):
    """Every line of the input is in one of the outputs, once: with its translation, or with the
    reason why it has none.
    """
    actual = sorted(
        (json.loads(line) for line in lines(output, "translations")), key=lambda line: line["id"]
    )
    assert [list(line) for line in actual] == [
        ["id", "text", "more", "translation", "score"]
    ] * len(WORDS)
    assert [(line["text"], line["translation"]) for line in actual] == [
        (each.source, each.text) for each in expected
    ]
    assert [line["score"] for line in actual] == pytest.approx(
        [each.hypotheses[0].score for each in expected], abs=1e-4
    )
    bad = {line["line"]: line for line in map(json.loads, lines(output, "bad-lines"))}
    assert len(lines(output, "bad-lines")) == len(BAD)
    for data, reason in BAD:
        line = bad[data.decode(errors="backslashreplace")]
        assert line["file"] == str(folder / "b.jsonl.gz")
        assert re.fullmatch(reason if "\\d" in reason else re.escape(reason), line["reason"])


@needs_beam
@pytest.mark.parametrize(
    "options",
    [
        # Each of two processes imports Apache Beam.
        pytest.param(options, id=name, marks=[pytest.mark.long] * ("two" in name))
        for name, options in RUNNERS.items()
    ],
)
def test_lines_get_text_or_reason(options, folder, expected, tmp_path):
    translated(folder, tmp_path / "out", *options)
    check(tmp_path / "out", folder, expected)


@needs_beam
def test_job_server_runs_pipeline(folder, expected, tmp_path):
    """Beam's own job server, with the protocol through which those of Flink and Spark receive
    pipelines.
    """
    port = tmp_path / "port"
    server = subprocess.Popen(
        [
            PYTHON,
            "-m",
            "apache_beam.runners.portability.local_job_service_main",
            "--port",
            "0",
            "--port_file",
            port,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            if port.exists() and port.read_text():
                break
            time.sleep(0.1)
        job = [
            "--runner",
            "PortableRunner",
            "--job_endpoint",
            f"localhost:{port.read_text()}",
            "--environment_type",
            "LOOPBACK",
        ]
        translated(folder, tmp_path / "out", *job)
    finally:
        server.terminate()
        server.wait()
    check(tmp_path / "out", folder, expected)


@needs_beam
def test_bad_arguments_fail_early(folder, tmp_path):
    (tmp_path / "translations-00000-of-00001.jsonl").touch()
    files = ["--model", MODEL, "--input", f"{folder}/*.jsonl"]
    messages = {
        (
            "--model",
            MODEL,
            "--input",
            f"{tmp_path}/*.txt",
            "--output",
            tmp_path / "new",
        ): "--input: expected the names of files, got",
        (
            *files,
            "--output",
            tmp_path,
        ): "--output: expected a folder without files of an earlier run, got",
        (
            *files,
            "--output",
            tmp_path / "new",
            "--ouput-field",
            "de",
        ): "options: expected options of --help or of FnApiRunner, got --ouput",
        (
            *files,
            "--output",
            tmp_path / "new",
            "--setting",
            "beam=2",
        ): "settings: unknown name 'beam'. Did you mean 'beam_size'?",
        (
            *files,
            "b.jsonl",
            "--output",
            tmp_path / "new",
        ): "--input: expected one pattern, got also b.jsonl;",
        (
            *files,
            "--output",
            tmp_path / "new",
            "--score-field",
            "translation",
        ): "--score-field: expected another name than --output-field",
    }
    commands = json.dumps([list(map(str, arguments)) for arguments in messages])
    done = subprocess.run(
        [PYTHON, "-c", IN_ONE_PROCESS, commands], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-3000:]
    ends = re.split(r"ended with status (\w+)\n", done.stderr)
    assert ends[1::2] == ["1"] * len(messages)
    for error, message in zip(ends[::2], messages.values(), strict=False):
        assert f"error: {message}" in error
    assert not (tmp_path / "new").exists()


def test_missing_beam_package_is_named():
    done = beam("--model", MODEL, "--input", "in/*.jsonl", "--output", "out", python=sys.executable)
    line = f"error: apache_beam is not installed. Install it with: {install_line('beam')}\n"
    assert (done.returncode, done.stderr) == (1, line)


# Starts Apache Beam several times.
@pytest.mark.long
@needs_beam
def test_benchmark_compares_workers(tmp_path):
    program, table = Path(__file__).parents[2] / "benchmarks" / "beam.py", tmp_path / "table.md"
    done = subprocess.run(
        [PYTHON, program, "--texts", "50", "--times", "1", "--markdown", table],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in table.read_text().splitlines()[4:]]
    assert [row[0] for row in rows] == [
        "| Beam, 1 worker",
        "| Beam, 2 workers",
        "| Beam, 2 workers, one model",
        "| OnnxTranslator, 1 thread",
    ]
    assert rows[0][3] == "1.00"
