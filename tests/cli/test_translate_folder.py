"""`translate-document` from folders to folders: what is translated, copied, skipped and refused."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminal import Terminal

from tfk_transformer.apps.cli.document_folder import RECORD

SAVED = Path(__file__).parents[1] / "saved_files"
SMALL = SAVED / "translate.onnx"  # opens in a tenth of a second
WORDS = (SAVED / "en.txt").read_text().split()
FAST = ["--beam-size", 1, "--setting", "max_length=8"]


@pytest.fixture
def docs(tmp_path):
    """A folder with documents and other files."""
    files = {
        "index.md": b"# one\n",
        "guide/page.html": b"<p>two</p>",
        "guide/notes.txt": b"\xef\xbb\xbfthree\r\n",
        "guide/picture.png": b"\x89PNG\xff",
        "requirements.txt": b"one==1\n",
        "Makefile": b"one:\n",
        ".nojekyll": b"",
        ".git/two.md": b"two\n",
    }
    for name, content in files.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_bytes(content)
    return tmp_path / "docs"


@pytest.fixture
def translate(run, tmp_path):
    """Translate files to the folder `de`; gives the exit status, the report and the error."""

    def call(*arguments):
        command = ["translate-document", SMALL, *arguments, *FAST, "--json"]
        status, out, error = run(*command, "--output", tmp_path / "de")
        return status, json.loads(out) if out else None, error

    return call


def done(report):
    """Return the numbers of files in a report by what was done, without zeros."""
    return {action: count for action, count in report["files"].items() if count}


def contents(folder):
    """Return the content of each file in a folder, by path."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def translations(folder):
    """Return the contents of a folder without its record."""
    return {name: content for name, content in contents(folder).items() if name != RECORD}


def test_a_folder_keeps_its_tree(translate, docs, tmp_path):
    status, report, error = translate(docs)
    assert (status, error) == (0, "")
    assert done(report) == {"translated": 3, "copied": 4}
    assert report["sentences"] == 3
    assert translations(tmp_path / "de") == {
        ".nojekyll": b"",
        "Makefile": b"one:\n",
        "guide/notes.txt": b"\xef\xbb\xbfdrei\r\n",
        "guide/page.html": b"<p>zwei</p>",
        "guide/picture.png": b"\x89PNG\xff",
        "index.md": b"# eins\n",
        "requirements.txt": b"one==1\n",
    }


def test_report_is_for_people(run, docs, tmp_path):
    arguments = ["translate-document", SMALL, docs, *FAST, "--output", tmp_path / "de"]
    (docs / "bad.md").write_bytes(b"\xff")
    status, out, error = run(*arguments)
    assert out.splitlines() == [
        "files      8: 3 translated, 4 copied, 1 refused",
        "sentences  3: 3 translated, 0 kept as source",
        "Documents with problems:",
        f"  {docs}/bad.md:1: expected UTF-8, got byte 0xff at column 1; convert it to UTF-8.",
    ]
    assert status == 1
    assert error == "error: FILE: expected no problems, got 1, which the report names.\n"


def test_kept_sentences_stay_in_the_report(run, exported, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# seven\n\n_nine_ _thousand_\n")
    command = ["translate-document", exported / "translate.onnx", tmp_path / "docs", "--json"]
    reports = [json.loads(run(*command, "--output", tmp_path / "de")[1]) for _ in range(2)]
    assert [report["kept"] for report in reports] == [
        [f"{tmp_path}/docs/a.md:3: _nine_ _thousand_"]
    ] * 2
    assert [report["files"]["unchanged"] for report in reports] == [0, 1]


@pytest.mark.parametrize("action", ["link", "omit"])
def test_other_files_are_an_option(translate, docs, tmp_path, action):
    assert translate(docs, "--other-files", action)[0] == 0
    picture = tmp_path / "de" / "guide" / "picture.png"
    assert picture.is_symlink() == (action == "link")
    assert picture.exists() == (action == "link")
    assert not (tmp_path / "de" / "index.md").is_symlink()
    assert done(translate(docs, "--other-files", action)[1]) == {
        "unchanged": {"link": 7, "omit": 3}[action]
    }


def test_excluded_documents_are_other_files(translate, docs, tmp_path):
    arguments = ["--exclude", "guide/*", "--exclude", "*.rst"]
    assert translate(docs, *arguments)[1]["files"]["translated"] == 1
    assert (tmp_path / "de" / "guide" / "page.html").read_bytes() == b"<p>two</p>"


def test_several_sources_keep_their_paths(translate, docs, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.md").write_text("four\n")
    assert translate(tmp_path / "a" / "index.md", tmp_path / "b" / "index.md")[0] == 0
    assert set(translations(tmp_path / "de")) == {"a/index.md", "b/index.md"}
    status, _, _ = translate(docs / "guide", tmp_path / "a")
    assert status == 0
    assert "docs/guide/page.html" in contents(tmp_path / "de")


def test_only_changes_are_translated(translate, docs, tmp_path):
    translate(docs)
    before = contents(tmp_path / "de")
    assert done(translate(docs)[1]) == {"unchanged": 7}
    assert contents(tmp_path / "de") == before
    (docs / "index.md").write_text("# four\n")
    (docs / "guide" / "picture.png").write_bytes(b"new")
    (tmp_path / "de" / "guide" / "page.html").unlink()
    assert done(translate(docs)[1]) == {"translated": 2, "copied": 1, "unchanged": 4}
    assert (tmp_path / "de" / "index.md").read_text() == "# vier\n"
    assert translate(docs, "--setting", "length_penalty=2")[1]["files"]["translated"] == 3
    assert translate(docs, "--force")[1]["files"]["translated"] == 3


def test_gone_sources_are_reported(translate, docs, tmp_path):
    translate(docs)
    (docs / "index.md").unlink()
    for _ in range(2):
        status, report, _ = translate(docs)
        assert (status, report["without_source"]) == (0, [f"{tmp_path}/de/index.md"])
    (tmp_path / "de" / "index.md").unlink()
    assert translate(docs)[1]["without_source"] == []


def test_edited_translations_stay(translate, docs, tmp_path):
    translate(docs)
    edited = tmp_path / "de" / "index.md"
    edited.write_text("# Eins!\n")
    assert done(translate(docs)[1]) == {"unchanged": 7}
    (docs / "index.md").write_text("# two\n")
    status, report, _ = translate(docs)
    assert status == 1
    assert report["problems"] == [
        f"{edited}: expected the file as this command wrote it, got an edited one; to replace it, "
        "move it away, and run the command again."
    ]
    assert edited.read_text() == "# Eins!\n"
    edited.unlink()
    assert translate(docs)[0] == 0
    assert edited.read_text() == "# zwei\n"


def test_bad_documents_are_copied_and_reported(translate, docs, tmp_path):
    (docs / "bad.md").write_bytes(b"one\ntwo \xff\n")
    (docs / "deep.html").write_text("<i>" * 4000)
    for _ in range(2):
        status, report, _ = translate(docs)
        assert status == 1
        assert [problem.partition(", got")[0] for problem in report["problems"]] == [
            f"{docs}/bad.md:2: expected UTF-8",
            f"{docs}/deep.html: expected HTML",
        ]
    for name in ("bad.md", "deep.html"):
        assert (tmp_path / "de" / name).read_bytes() == (docs / name).read_bytes()
    (docs / "bad.md").write_text("one\n")
    (docs / "index.md").write_bytes(b"\xff")
    assert len(translate(docs)[1]["problems"]) == 2
    assert (tmp_path / "de" / "bad.md").read_text() == "eins\n"
    assert (tmp_path / "de" / "index.md").read_text() == "# eins\n"  # the last translation


@pytest.mark.skipif(sys.platform == "win32", reason="links need a permission there")
def test_links_do_not_leave_the_folder(translate, docs, tmp_path):
    (tmp_path / "secret.md").write_text("one\n")
    (docs / "out.md").symlink_to(tmp_path / "secret.md")
    (docs / "loop").symlink_to(".")
    (docs / "same.md").symlink_to("index.md")
    os.mkfifo(docs / "pipe.md")
    status, report, _ = translate(docs)
    assert (status, report["left_out"]) == (
        0,
        [
            f"{docs}/loop: a link to a folder, or out of the folder",
            f"{docs}/out.md: a link to a folder, or out of the folder",
            f"{docs}/pipe.md: not a file",
        ],
    )
    assert (tmp_path / "de" / "same.md").read_text() == "# eins\n"
    assert not os.path.lexists(tmp_path / "de" / "out.md")


def test_outputs_among_sources_are_refused(run, docs, tmp_path):
    before = contents(tmp_path)
    for sources, output in (
        ([docs], docs),
        ([docs], docs / "de"),
        ([docs / "guide"], docs / "guide" / "x" / ".."),
        ([docs / "index.md", docs / "requirements.txt"], docs),
    ):
        status, out, error = run("translate-document", SMALL, *sources, "--output", output)
        assert (status, out) == (1, "")
        assert error.startswith("error: --output: expected a folder ")
    assert contents(tmp_path) == before


def test_files_of_others_are_not_replaced(translate, docs, tmp_path):
    (tmp_path / "de").mkdir()
    (tmp_path / "de" / "index.md").write_text("mine")
    status, report, error = translate(docs)
    assert (status, report) == (1, None)
    assert f"got {tmp_path}/de/index.md, which is not in {RECORD}; name another" in error
    assert contents(tmp_path / "de") == {"index.md": b"mine"}
    assert translate(docs, "--force")[0] == 0
    assert (tmp_path / "de" / "index.md").read_text() == "# eins\n"


def test_damaged_record_is_refused(translate, docs, tmp_path):
    translate(docs)
    (tmp_path / "de" / RECORD).write_text('{"files": {"index.md": 3}}')
    status, _, error = translate(docs)
    assert status == 1
    assert f"error: {tmp_path}/de/{RECORD}: expected the record of a folder" in error


def test_options_apply_to_their_formats(translate, docs, tmp_path):
    (docs / "guide" / "page.html").write_text("<html lang=en><p>two</p>")
    assert translate(docs, "--target-language", "de", "--lines")[0] == 0
    assert (tmp_path / "de" / "guide" / "page.html").read_text() == '<html lang="de"><p>zwei</p>'


def test_problems_of_all_documents_end_the_run(translate, docs, tmp_path):
    (docs / "index.md").write_text("one *two*\n")  # needs files that this model does not have
    status, report, error = translate(docs)
    assert (status, report) == (1, None)
    assert "expected score.onnx next to" in error


def write_pages(folder, count):
    """Write small pages with a few words, others for each count, and some other files."""
    chance = random.Random(count)
    for number in range(count):
        page = folder / f"part{number % 7}" / f"page{number}.{'png' if number % 9 == 0 else 'md'}"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("".join(f"{chance.choice(WORDS)}\n\n" for _ in range(chance.randint(1, 9))))


# Seven runs of the command.
@pytest.mark.long
@pytest.mark.parametrize("is_update", [False, True])
def test_killed_run_ends_equal(run, tmp_path, is_update):
    """Killed five times after some new files, at random moments; also where files are replaced."""
    arguments = ["translate-document", SMALL, tmp_path / "docs", *FAST, "--output"]
    killed = tmp_path / "killed"
    if is_update:
        write_pages(tmp_path / "docs", 80)
        assert run(*arguments, killed)[0] == 0
    write_pages(tmp_path / "docs", 90)
    assert run(*arguments, tmp_path / "whole")[0] == 0
    command = [sys.executable, "-m", "tfk_transformer", *map(str, [*arguments, killed])]
    chance = random.Random(3)
    for _ in range(5):
        before = modified(killed)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and len(modified(killed) - before) < 9:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)
    assert run(*arguments, killed)[0] == 0
    assert contents(killed) == contents(tmp_path / "whole")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def modified(folder):
    """Return the pages in a folder that another process writes, with the times of their change."""
    pages = set()
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # a temporary file
                pages.add((name, Path(parent, name).stat().st_mtime_ns))
    return {page for page in pages if page[0].endswith(".md")}


def test_terminal_shows_files(tmp_path):
    write_pages(tmp_path / "docs", 20)
    arguments = ["translate-document", SMALL, tmp_path / "docs", *FAST]
    status, seen = Terminal(*arguments, "--output", tmp_path / "de").end()
    assert status == 0
    assert "/17 files" in seen
    assert "20: 17 translated, 3 copied" in seen
