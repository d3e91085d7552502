"""`translate` from files to files: killed and resumed, tables and JSON lines, and what it
refuses.
"""

import gzip
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfk_transformer.apps.cli.terminal import pace
from tfk_transformer.formats.compression import compress, compression, open_decompressed
from tfk_transformer.runtime_environment import install_line

SAVED = Path(__file__).parents[1] / "saved_files"
SMALL = SAVED / "translate.onnx"  # opens in a tenth of a second
WORDS = (SAVED / "en.txt").read_text().splitlines()
LONG = "one " * 500
UNSPLIT = "--no-split-sentences"  # a long text is a bad line
FAST = ["--beam-size", 1, "--setting", "max_length=4", UNSPLIT]


def texts_of(path):
    with open_decompressed(path) as file:
        return file.read().decode().splitlines()


def record(output):
    """The record of an unfinished run, None if there is none."""
    path = output.with_name(f"{output.name}.partial.json")
    return json.loads(path.read_text()) if path.exists() else None


def write_lines(path, count):
    """Write an input with some bad lines; return the options that belong to it."""
    chance = random.Random(3)
    texts = [LONG if n % 1501 == 1500 else chance.choice([*WORDS, ""]) for n in range(count)]
    lines = (
        [json.dumps({"n": n, "text": text}) for n, text in enumerate(texts)]
        if ".jsonl" in path.name
        else texts
    )
    path.write_bytes(compress("".join(f"{line}\n" for line in lines).encode(), compression(path)))
    return ["--field", "text"] if ".jsonl" in path.name else []


@pytest.mark.parametrize(
    "name",
    [  # two runs each
        pytest.param("a.txt", marks=pytest.mark.long),
        pytest.param("a.gz", marks=pytest.mark.long),
        "a.zst",
        pytest.param("a.jsonl", marks=pytest.mark.long),
    ],
)
def test_killed_run_resumes_exactly(run, tmp_path, name):
    """A second process, killed after its first parts, at random moments; the last run is not
    killed.
    """
    source, whole, output = (
        tmp_path / f"in-{name}",
        tmp_path / f"whole-{name}",
        tmp_path / f"out-{name}",
    )
    options = ["--input", source, *write_lines(source, 9000), *FAST, "--on-error", "blank"]
    assert run("translate", SMALL, *options, "--output", whole)[0] == 0
    command = [
        sys.executable,
        "-m",
        "tfk_transformer",
        "translate",
        SMALL,
        *map(str, options),
        "--output",
        output,
        "--resume",
    ]
    chance, done = random.Random(name), 0
    for _ in range(2):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and (record(output) or {"lines": 0})["lines"] == done:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert not output.exists()
        done = record(output)["lines"]
        assert done
        assert done % 2000 == 0
    with output.with_name(f"{output.name}.partial").open("ab") as file:
        file.write(b"torn")
    status, _, error = run("translate", SMALL, *options, "--output", output, "--resume")
    assert status == 0
    assert error.endswith("5 of 9,000 lines could not be processed and were left blank.\n")
    assert output.read_bytes() == whole.read_bytes()
    assert len(texts_of(output)) == 9000
    assert Path(f"{output}.errors.jsonl").read_bytes() == Path(f"{whole}.errors.jsonl").read_bytes()
    kinds = [source, whole, output, *(Path(f"{path}.errors.jsonl") for path in (whole, output))]
    assert sorted(tmp_path.iterdir()) == sorted(kinds)
    status, _, error = run("translate", SMALL, *options, "--output", output, "--resume")
    assert (status, error) == (
        0,
        f"{output} exists, and no run is unfinished: nothing to do. --force starts again.\n",
    )


@pytest.fixture
def interrupted(run, tmp_path):
    """A run that a bad line in the second chunk stopped: its input, its output, its options."""
    source, output = tmp_path / "in.txt", tmp_path / "out.gz"
    lines = ["one", "two"] * 1500
    lines[2500] = LONG
    source.write_text("\n".join(lines) + "\n")
    options = ["--input", source, "--output", output, *FAST]
    status, _, error = run("translate", SMALL, *options)
    assert status == 1
    assert f"{output}.partial has the 2,500 finished lines" in error
    assert "--resume continues after line 2,000 of the input.\n" in error
    assert record(output)["lines"] == 2000
    return source, output, options


def test_resume_can_skip_the_bad_line(run, interrupted, tmp_path):
    source, output, options = interrupted
    assert run("translate", SMALL, *options, "--resume", "--on-error", "skip")[0] == 0
    assert (
        run(
            "translate",
            SMALL,
            *options[:2],
            "--output",
            tmp_path / "whole.gz",
            *FAST,
            "--on-error",
            "skip",
        )[0]
        == 0
    )
    assert output.read_bytes() == (tmp_path / "whole.gz").read_bytes()
    assert len(texts_of(output)) == 2999


def test_resume_takes_corrected_input(run, interrupted):
    source, output, options = interrupted
    source.write_text(source.read_text().replace(LONG, "three"))
    assert run("translate", SMALL, *options, "--resume") == (0, "", "")
    assert len(texts_of(output)) == 3000


def test_resume_refuses_changed_run(run, interrupted, exported):
    source, output, options = interrupted
    before = {path: path.read_bytes() for path in output.parent.iterdir() if path != source}

    def refused(model, *changed):
        status, out, error = run("translate", model, *options, *changed)
        assert (status, out, error.count("\n")) == (1, "", 1)
        assert {
            path: path.read_bytes() for path in output.parent.iterdir() if path != source
        } == before
        return error

    assert 'got prefix "n", was null; give the same, or --force to start over.' in refused(
        SMALL, "--resume", "--prefix", "n"
    )
    assert "got model " in refused(exported / "translate.onnx", "--resume")
    assert refused(SMALL).startswith(
        f"error: --output: expected no unfinished run, got an unfinished run for {output} after "
        "2,000 lines of its input; "
    )
    assert run("classify", SMALL, "one", "--output", output)[2] == refused(SMALL)
    assert "--resume: expected no --force" in refused(SMALL, "--resume", "--force")
    source.write_text(source.read_text().replace("one", "six", 1))
    assert f"got {source}, whose first 2,000 lines differ" in refused(SMALL, "--resume")


def test_force_restarts_the_run(run, interrupted):
    source, output, options = interrupted
    source.write_text("six\n")
    assert run("translate", SMALL, *options, "--force") == (0, "", "")
    assert len(texts_of(output)) == 1
    assert sorted(output.parent.iterdir()) == [source, output]


def test_existing_output_is_kept(run, tmp_path, exported):
    output = tmp_path / "out.txt"
    output.write_text("old\n")
    (tmp_path / "in.txt").write_text("one\n")
    files = {
        "translate": ["--input", tmp_path / "in.txt"],
        "score": ["--source", tmp_path / "in.txt", "--target", tmp_path / "in.txt"],
    }
    files |= {
        "classify": ["--input", tmp_path / "in.txt"],
        "evaluate": ["--data", f"files:{tmp_path}/in.txt,{tmp_path}/in.txt"],
    }
    for name, arguments in files.items():
        status, out, error = run(name, SMALL, *arguments, "--output", output)
        assert (status, out) == (1, "")
        assert error.startswith(
            f"error: --output: expected a new file, got {output}, which exists; give "
        )
        assert output.read_text() == "old\n"
    assert run(
        "score", exported / "score.onnx", *files["score"], "--output", output, "--force"
    ) == (0, "", "")
    assert float(output.read_text()) < 0


def test_dangling_link_is_kept(run, tmp_path):
    output = tmp_path / "out.txt"
    output.symlink_to("nowhere")
    (tmp_path / "in.txt").write_text("one\n")
    options = ["--input", tmp_path / "in.txt", "--output", output]
    status, _, error = run("translate", SMALL, *options)
    assert status == 1
    assert f"expected a new file, got {output}, which exists" in error
    assert output.is_symlink()
    assert not output.exists()


def test_score_reads_compressed_files(run, exported, tmp_path):
    for name, text in (
        ("en.gz", "seven\nnine\n"),
        ("de.zst", "sieben\nneun\n"),
        ("en", "seven\nnine\n"),
        ("de", "sieben\nneun\n"),
    ):
        (tmp_path / name).write_bytes(compress(text.encode(), compression(tmp_path / name)))
    options = [
        "--source",
        tmp_path / "en.gz",
        "--target",
        tmp_path / "de.zst",
        "--output",
        tmp_path / "scores.gz",
    ]
    assert run("score", exported / "score.onnx", *options) == (0, "", "")
    out = run(
        "score", exported / "score.onnx", "--source", tmp_path / "en", "--target", tmp_path / "de"
    )[1]
    assert texts_of(tmp_path / "scores.gz") == out.splitlines()
    assert len(out.splitlines()) == 2


def test_resume_needs_files(run, tmp_path):
    for arguments in (["one"], ["--output", tmp_path / "out.txt"], ["--input", SMALL]):
        status, _, error = run("translate", SMALL, *arguments, "--resume")
        assert (status, error) == (
            1,
            "error: --resume: expected --input and --output with the names of files; give both.\n",
        )


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python has the module itself")
def test_missing_package_fails_early(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "backports", None)
    for option in ("--input", "--output"):
        (tmp_path / "in.zst").write_bytes(b"")
        name = tmp_path / ("in.zst" if option == "--input" else "out.zst")
        line = f"error: backports is not installed. Install it with: {install_line('zstd')}\n"
        assert run("translate", SMALL, option, name, stdin=b"one\n") == (1, "", line)
    assert [path.name for path in tmp_path.iterdir()] == ["in.zst"]


def test_table_gets_output_column(run, exported, tmp_path):
    (tmp_path / "in.tsv.gz").write_bytes(
        gzip.compress(f'id\ten\n1\tseven\n2\n3\t{LONG}\n"4\tforty-two\n'.encode())
    )
    options = ["--input", tmp_path / "in.tsv.gz", "--field", "en", UNSPLIT]
    status, out, error = run(
        "translate",
        exported / "translate.onnx",
        *options,
        "--on-error",
        "blank",
        "--output-field",
        "de",
    )
    assert (status, out) == (
        0,
        f'id\ten\tde\n1\tseven\tsieben\n\n3\t{LONG}\t\n"4\tforty-two\tzweiundvierzig\n',
    )
    assert f"{tmp_path}/in.tsv.gz:3: expected 2 columns, as in the first line, got 1.\n" in error
    status, out, _ = run(
        "translate",
        exported / "translate.onnx",
        *options,
        "--on-error",
        "skip",
        "--output",
        tmp_path / "out.txt",
    )
    assert (tmp_path / "out.txt").read_text() == "sieben\nzweiundvierzig\n"
    actual = [
        json.loads(line) for line in (tmp_path / "out.txt.errors.jsonl").read_text().splitlines()
    ]
    assert [(each["line"], each["reason"][:18]) for each in actual] == [
        (3, "expected 2 columns"),
        (4, "expected at most 3"),
    ]
    status, _, error = run("translate", SMALL, *options, "--setting", "n_best=2")
    assert (status, error[:50]) == (1, "error: n_best: expected 1 with .tsv and .jsonl fil")


@pytest.mark.parametrize("name", ["in.tsv", "in.jsonl"])
def test_rows_keep_their_line_ends(run, exported, tmp_path, name):
    rows = {
        "in.tsv": b"en\tn\r\nseven\t1\r\n\tnone\nnine\t2",
        "in.jsonl": b'{"n": 1, "en": "seven"}\r\n{"en": ""}\n{"en": "nine"}\r\n',
    }
    (tmp_path / name).write_bytes(rows[name])
    options = ["--input", tmp_path / name, "--field", "en", "--output-field", "de"]
    arguments = ["translate", exported / "translate.onnx", *options]
    assert run(*arguments, "--output", tmp_path / f"out-{name}") == (0, "", "")
    expected = {
        "in.tsv": b"en\tn\tde\r\nseven\t1\tsieben\r\n\tnone\t\nnine\t2\tneun\n",
        "in.jsonl": b'{"n": 1, "en": "seven", "de": "sieben"}\r\n{"en": "", "de": ""}\n'
        b'{"en": "nine", "de": "neun"}\r\n',
    }
    assert (tmp_path / f"out-{name}").read_bytes() == expected[name]
    assert run(*arguments)[1].encode() == expected[name]
    assert run(*arguments, "--output", tmp_path / "out.txt")[0] == 0
    assert (tmp_path / "out.txt").read_bytes() == b"sieben\n\nneun\n"


def test_json_lines_get_a_new_field(run, exported, tmp_path):
    (tmp_path / "in.jsonl").write_text(
        f'{{"text":"seven", "n": 1.0}}\nno object\n{{"text": "{LONG}"}}\n'
    )
    options = [
        "--input",
        tmp_path / "in.jsonl",
        "--field",
        "text",
        UNSPLIT,
        "--on-error",
        "blank",
        "--output",
        tmp_path / "out.jsonl",
    ]
    assert run("translate", exported / "translate.onnx", *options)[0] == 0
    first, second, third = (tmp_path / "out.jsonl").read_text().splitlines()
    assert first == '{"text":"seven", "n": 1.0, "translation": "sieben"}'
    assert json.loads(second)["error"].startswith(f"{tmp_path}/in.jsonl:2: expected a JSON object")
    assert json.loads(third) == {"text": LONG, "translation": None}


def on_terminal(*arguments):
    """Run the command line with a terminal as standard error; gives the status and what it
    shows.
    """
    control, terminal = pty.openpty()
    command = [sys.executable, "-m", "tfk_transformer", *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                shown += os.read(control, 2**16)
            except OSError:  # closed by its process
                break
    os.close(control)
    return process.returncode, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())


@pytest.mark.long  # a process
def test_terminal_shows_progress(tmp_path):
    write_lines(tmp_path / "in.gz", 20_000)  # some tenths of a second, also on a fast machine
    options = [
        "translate",
        SMALL,
        "--input",
        tmp_path / "in.gz",
        *FAST,
        "--on-error",
        "skip",
        "--output",
    ]
    status, shown = on_terminal(*options, tmp_path / "out.gz")
    assert status == 0
    assert f"{tmp_path}/in.gz:1501: expected at most 24 tokens" in "".join(shown.split("\r\n"))
    counts = [
        int(count) for count in re.findall(r"(\d+)/20000 lines  [\d,.]+/s, 0:\d\d:\d\d left", shown)
    ]
    # Not always sorted: Rich's thread may write a line that it made before a newer one was written.
    assert 0 < counts[0] < counts[-1] == max(counts) == 20_000
    assert "/20000 lines" not in on_terminal(*options, tmp_path / "quiet.gz", "--quiet")[1]
    assert (tmp_path / "out.gz").read_bytes() == (tmp_path / "quiet.gz").read_bytes()


def test_progress_shows_mean_pace():
    assert [pace(2000, 4.0, 10_000), pace(20, 10.0, None), pace(0, 1.0, 5)] == [
        "500/s, 0:00:20 left",
        "2.0/s",
        "",
    ]


# Five runs of the command.
@pytest.mark.long
def test_bulk_benchmark_runs():
    """Killed and resumed, and memory, with few lines."""
    program = Path(__file__).parents[2] / "benchmarks" / "endurance.py"
    for arguments, message in (
        (["resume", "--count", "5000", "--times", "1", "--end", ".gz"], "equal"),
        (["lines", "--count", "4000", "--than", "3000"], "MB"),
    ):
        done = subprocess.run([sys.executable, program, *arguments], capture_output=True, text=True)
        assert done.returncode == 0 and message in done.stdout, done.stdout + done.stderr
