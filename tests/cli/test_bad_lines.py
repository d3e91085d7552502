"""Lines that cannot be processed: named by their place in the input, and without cost for the other
lines.
"""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from classifier_folder import classifier_paths

from tfk_transformer.apps.cli import processing
from tfk_transformer.apps.cli.arguments import BadLines
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
from tfk_transformer.formats.lines import Line

LONG = "one " * 500
UTF_8 = "expected UTF-8, got byte 0xff at column 2."
NUL = (
    "expected text, got the character U+0000 at position 2; remove it, or decode the bytes that it "
    "came from as UTF-8."
)
TOO_LONG = (
    "expected at most 32 tokens, got more ('one one one one one one one on…', 500 words); "
    "split it into sentences."
)
SMALL = Path(__file__).parents[1] / "saved_files" / "translate.onnx"  # opens in a tenth of a second
# An input of seven lines, three of them bad: their numbers and the reason of each.
GIVEN = b"seven\nt\xffo\n\na\0b\n" + LONG.encode() + b"\nforty-two\nnine\n"
BAD = {2: UTF_8, 4: NUL, 5: TOO_LONG}
UNSPLIT = "--no-split-sentences"  # without it, no text is too long


def reports(file, bad, of, done):
    """The lines on standard error about bad lines."""
    return "".join(f"{file}:{number}: {reason}\n" for number, reason in bad.items()) + (
        f"{len(bad)} of {of} lines could not be processed and were {done}.\n"
    )


def test_bad_lines_are_left_out(run, model):
    actual = run("translate", model, UNSPLIT, "--on-error", "skip", stdin=GIVEN)
    assert actual == (
        0,
        "sieben\n\nzweiundvierzig\nneun\n",
        reports("standard input", BAD, 7, "left out"),
    )


def test_bad_lines_are_left_blank(run, model, tmp_path):
    (tmp_path / "in.txt").write_bytes(GIVEN)
    files = ["--input", tmp_path / "in.txt", "--output", tmp_path / "out.txt"]
    assert run("translate", model, UNSPLIT, *files, "--on-error", "blank") == (
        0,
        "",
        reports(tmp_path / "in.txt", BAD, 7, "left blank"),
    )
    assert (tmp_path / "out.txt").read_text() == "sieben\n\n\n\n\nzweiundvierzig\nneun\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "in.txt",
        "out.txt",
        "out.txt.errors.jsonl",
    ]
    actual = [
        json.loads(line) for line in (tmp_path / "out.txt.errors.jsonl").read_text().splitlines()
    ]
    assert actual == [
        {"file": f"{tmp_path}/in.txt", "line": number, "reason": reason}
        for number, reason in BAD.items()
    ]


@pytest.mark.parametrize(("number", "reason"), BAD.items())
def test_first_bad_line_stops_the_run(run, model, number, reason):
    lines = GIVEN.split(b"\n")
    short = [lines[0], b"", lines[number - 1], lines[5], lines[1]]
    assert run("translate", model, UNSPLIT, stdin=b"\n".join(short)) == (
        1,
        "sieben\n\n",
        f"error: standard input:3: {reason}\n",
    )


def test_line_numbers_span_chunks(run):
    """The default chunk of 2,000 lines, and the small ONNX file."""
    lines = [b"one"] * 4500
    lines[4004] = LONG.encode()
    lines[2500] = b"a\0b"
    reason = TOO_LONG.replace("32", "24")
    arguments = ["translate", SMALL, UNSPLIT, "--beam-size", 1]
    actual = run(*arguments, "--on-error", "skip", stdin=b"\n".join(lines))
    assert actual[0] == 0
    assert actual[1].count("\n") == 4498
    assert actual[2] == reports("standard input", {2501: NUL, 4005: reason}, "4,500", "left out")
    lines[2500] = b"two"
    status, out, error = run(*arguments, stdin=b"\n".join(lines))
    assert (status, out.count("\n"), error) == (1, 4004, f"error: standard input:4005: {reason}\n")


def test_good_lines_translate_once(capsys):
    """A translator that notes what it was calls."""
    translator = OnnxTranslator(SMALL)
    calls = []

    def translate(texts):
        calls.append(list(texts))
        return translator.try_translate(texts, beam_size=1, split_sentences=False)

    lines = (
        Line(("in",), n, (text,)) for n, text in enumerate(["one", LONG, "a\0b", "two", "three"], 1)
    )
    processing.write_results(
        lines,
        translate,
        lambda line: [line.outcome.text],
        None,
        BadLines.SKIP,
        input=None,
        quiet=True,
    )
    assert capsys.readouterr().out == "eins\nzwei\ndrei\n"
    assert calls == [["one", LONG, "a\0b", "two", "three"]]


def test_n_best_keeps_sentence_numbers(run, model):
    arguments = ["translate", model, UNSPLIT, "--setting", "n_best=2"]
    skipped = run(*arguments, "--on-error", "skip", stdin=GIVEN)[1].splitlines()
    blank = run(*arguments, "--on-error", "blank", stdin=GIVEN)[1].splitlines()
    assert {int(line.split(" ||| ")[0]) for line in skipped} == {0, 2, 5, 6}
    assert [line for line in blank if line not in skipped] == [
        "1 |||  ||| nan",
        "3 |||  ||| nan",
        "4 |||  ||| nan",
    ]
    assert [int(line.split(" ||| ")[0]) for line in blank] == sorted(
        int(line.split(" ||| ")[0]) for line in blank
    )


def test_stream_reports_bad_lines(run, model):
    arguments = ["translate", model, UNSPLIT, "--stream"]
    too_long = (
        re.escape(TOO_LONG).replace("more\\ \\(", "[0-9]+ in ").replace(",\\ 500\\ words\\)", "")
    )
    status, out, error = run(*arguments, "--on-error", "blank", stdin=GIVEN)
    assert (status, out) == (0, "sieben\n\n\n\n\nzweiundvierzig\nneun\n")
    assert re.fullmatch(
        re.escape(reports("standard input", {**BAD, 5: "LONG"}, 7, "left blank")).replace(
            "LONG", too_long
        ),
        error,
    )
    assert (
        run(*arguments, "--on-error", "skip", stdin=GIVEN)[1] == "sieben\n\nzweiundvierzig\nneun\n"
    )
    assert run(*arguments, stdin=b"seven\na\0b\n") == (
        1,
        "sieben\n",
        f"error: standard input:2: {NUL}\n",
    )


def test_bad_argument_has_its_number(run, model):
    assert run("translate", model, UNSPLIT, "seven", LONG, "--on-error", "skip") == (
        0,
        "sieben\n",
        reports("TEXT", {2: TOO_LONG}, 2, "left out"),
    )


def test_bad_prefix_stops_despite_skip(run):
    status, out, error = run("translate", SMALL, "one", "--prefix", "\udcff", "--on-error", "skip")
    assert (status, out) == (1, "")
    assert error.startswith("error: --prefix: expected text, got the character U+DCFF")


@pytest.mark.parametrize("kind", ["bundle", "saved_model", "onnx"])
def test_bad_lines_have_no_label(run, kind):
    arguments = ["classify", classifier_paths()[kind], "--on-error"]
    skipped = run(*arguments, "skip", stdin=GIVEN)
    assert skipped[0] == 0
    assert skipped[2] == reports("standard input", BAD, 7, "left out")
    labels = skipped[1].split("\n")
    assert run(*arguments, "blank", stdin=GIVEN)[1].split("\n") == [
        labels[0],
        "",
        *["", "", ""],
        *labels[2:],
    ]
    status, out, _ = run(*arguments, "blank", "--json", stdin=GIVEN)
    records = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [record.get("text") for record in records] == [
        "seven",
        None,
        "",
        None,
        None,
        "forty-two",
        "nine",
    ]
    assert [record for record in records if "error" in record] == [
        {"error": f"standard input:{n}: {r}"} for n, r in BAD.items()
    ]
    assert run(*arguments, "stop", stdin=GIVEN) == (
        1,
        f"{labels[0]}\n",
        f"error: standard input:2: {UTF_8}\n",
    )


@pytest.mark.parametrize("kind", ["bundle", "saved_model", "translate.onnx", "score.onnx"])
@pytest.mark.parametrize("tokens", [[], ["--tokens"]])
def test_bad_pairs_have_no_score(run, bundle, exported, translator, tmp_path, kind, tokens):
    """The file of a pair's problem is the one whose line is bad; a pair that is too long is named
    by its source.
    """
    (tmp_path / "en").write_bytes(b"seven\nt\xffo\nnine\n" + LONG.encode() + b"\nforty-two\none\n")
    (tmp_path / "de").write_bytes(b"sieben\nzwei\nne\xffn\nzehn\nz\0ei\neins\n")
    files = ["--source", tmp_path / "en", "--target", tmp_path / "de"]
    arguments = [
        "score",
        bundle if kind == "bundle" else exported / kind,
        *files,
        *tokens,
        "--on-error",
    ]
    pair = "expected at most 32 tokens per side, got more in this pair; split it into sentences."
    problems = [
        f"{tmp_path}/en:2: {UTF_8}",
        f"{tmp_path}/de:3: {UTF_8.replace('2.', '3.')}",
        f"{tmp_path}/en:4: {pair}",
    ]
    problems.append(f"{tmp_path}/de:5: {NUL}")
    expected = translator.score(["seven", "one"], ["sieben", "eins"])
    status, out, error = run(*arguments, "skip")
    values = [
        json.loads(line)["log_probability"] if tokens else float(line) for line in out.splitlines()
    ]
    assert (status, values) == (0, pytest.approx(expected, abs=1e-4))
    assert (
        error
        == "".join(f"{problem}\n" for problem in problems)
        + "4 of 6 lines could not be processed and were left out.\n"
    )
    lines = run(*arguments, "blank")[1].splitlines()
    assert [lines[0], lines[5]] == out.splitlines()
    if tokens:
        assert [json.loads(line) for line in lines[1:5]] == [
            {"error": problem} for problem in problems
        ]
    else:
        assert all(math.isnan(float(line)) for line in lines[1:5])
    status, out, error = run(*arguments, "stop")
    assert (status, out.count("\n"), error) == (1, 1, f"error: {problems[0]}\n")


def test_score_stops_at_shorter_file(run, exported, tmp_path):
    (tmp_path / "en").write_text("seven\none\n")
    (tmp_path / "de").write_text("sieben\n")
    status, out, error = run(
        "score", exported / "score.onnx", "--source", tmp_path / "en", "--target", tmp_path / "de"
    )
    assert (status, out.count("\n")) == (1, 1)
    assert (
        error
        == f"error: {tmp_path}/de: expected a line for each line of {tmp_path}/en, got 1 lines.\n"
    )


def test_error_keeps_partial_output(run, tmp_path):
    (tmp_path / "out.txt").write_text("old\n")
    status, out, error = run(
        "translate", SMALL, "--force", "--output", tmp_path / "out.txt", stdin=b"seven\n\nt\xffo\n"
    )
    assert (status, out) == (1, "")
    kept = (
        f"{tmp_path}/out.txt.partial has the 2 finished lines; {tmp_path}/out.txt was not "
        "written.\n"
    )
    assert error == f"{kept}error: standard input:3: {UTF_8}\n"
    assert (tmp_path / "out.txt.partial").read_text() == "sieben\n\n"
    assert (tmp_path / "out.txt").read_text() == "old\n"


def test_early_error_leaves_no_file(run, tmp_path):
    assert run("translate", SMALL, "--output", tmp_path / "out.txt", stdin=b"t\xffo\n")[0] == 1
    assert list(tmp_path.iterdir()) == []


def test_output_folder_is_refused(run, tmp_path):
    status, _, error = run("translate", SMALL, "one", "--output", tmp_path)
    assert (status, error) == (
        1,
        f"error: output: expected a file, got the folder {tmp_path}; name a file in it.\n",
    )


def test_pipe_output_is_not_replaced(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as reader:
        read = reader.submit((tmp_path / "pipe").read_text)
        assert run("translate", SMALL, "one", "two", "--output", tmp_path / "pipe") == (0, "", "")
        assert read.result().count("\n") == 2
    assert [path.is_fifo() for path in tmp_path.iterdir()] == [True]


@pytest.mark.parametrize(("stop", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_run_keeps_its_lines(tmp_path, stop, status):
    """In a process of its own, which has translated a chunk and waits for more lines when the
    signal comes.
    """
    output, partial = tmp_path / "out.txt", tmp_path / "out.txt.partial"
    output.write_text("old\n")
    command = [
        sys.executable,
        "-m",
        "tfk_transformer",
        "translate",
        SMALL,
        "--beam-size",
        "1",
        "--force",
        "--output",
        output,
    ]
    # What runs in the background ignores Ctrl-C, and so would what it starts.
    as_in_front = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, **as_in_front
    ) as process:
        process.stdin.write(b"one\n" * processing.CHUNK)
        process.stdin.flush()
        while not partial.exists() or partial.read_bytes().count(b"\n") < processing.CHUNK:
            assert process.poll() is None
        time.sleep(0.5)  # a signal right before the process reads would wait for the next line
        process.send_signal(stop)
        error = process.stderr.read().decode()
        process.wait()
    assert process.returncode == status
    kept = partial.read_bytes().count(b"\n")
    assert kept == processing.CHUNK
    assert f"{partial} has the {kept:,} finished lines; {output} was not written.\n" in error
    assert output.read_text() == "old\n"


def test_full_disk_keeps_written_lines(run, small_disk):
    chunk = processing.CHUNK * len(run("translate", SMALL, "seven")[1])
    # And space for the record of the run.
    (small_disk / "ballast").write_bytes(bytes(6 * 2**20 - chunk * 3 // 2 - 2**14))
    source = small_disk.parent / "in.txt"
    source.write_text("seven\n" * 6000)
    status, out, error = run(
        "translate", SMALL, "--input", source, "--output", small_disk / "out.txt"
    )
    assert (status, out) == (1, "")
    report, line = error.splitlines()
    kept = (small_disk / "out.txt.partial").read_text().count("\n")
    assert report.startswith(
        f"{small_disk}/out.txt.partial has the {kept:,} finished lines; {small_disk}/out.txt was "
        "not written. --resume"
    )
    assert kept % processing.CHUNK == 0
    assert re.search(r"after line [24],000 of the input\.$", report)
    assert line == (
        "error: [Errno 28] No space left on device; free some space on the output's disk, and "
        "run the command again"
    )
    assert not (small_disk / "out.txt").exists()
    (small_disk / "ballast").unlink()
    assert run(
        "translate", SMALL, "--input", source, "--output", small_disk / "out.txt", "--resume"
    ) == (0, "", "")
    (whole,) = set((small_disk / "out.txt").read_text().splitlines())
    assert (small_disk / "out.txt").read_text() == f"{whole}\n" * 6000
    assert sorted(path.name for path in small_disk.iterdir()) == ["out.txt"]
