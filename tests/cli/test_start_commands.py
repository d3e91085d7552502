"""`new` and `doctor`."""

import json
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest
from forked_programs import run_program

import tfk_transformer as tfk
from tfk_transformer.apps.cli import main
from tfk_transformer.apps.cli.commands import doctor
from tfk_transformer.apps.cli.commands.doctor import without_home
from tfk_transformer.apps.cli.commands.new import TEMPLATE

SMALL = Path(__file__).parents[1] / "saved_files" / "translate.onnx"
WITHOUT = (
    "import runpy, sys; sys.modules['tensorflow'] = sys.modules['keras'] = None; "
    "runpy.run_module('tfk_transformer')"
)


def test_new_project_is_complete(run, tmp_path, monkeypatch):
    """Its test split is there to evaluate on; tests/test_documents.py trains with its recipe."""
    status, out, error = run("new", tmp_path / "project")
    assert (status, error) == (0, "")
    assert f"cd {tmp_path / 'project'} && tfk-transformer train recipe.toml --out bundle" in out
    monkeypatch.chdir(tmp_path / "project")
    assert sorted(path.name for path in Path().rglob("*") if path.is_file()) == sorted(
        [
            "README.md",
            "fit.py",
            "recipe.toml",
            *(
                f"{side}.{split}.txt"
                for side in ("en", "de")
                for split in ("train", "validation", "test")
            ),
        ]
    )
    arguments = ["--data", "folder:data:en-de", "--beam-size", 1, "--json"]
    status, out, error = run("evaluate", SMALL, *arguments)
    assert (status, json.loads(out)["sentences"]) == (0, 50)


# A training of 900 pairs in plain Keras, then a search.
@pytest.mark.long
def test_new_keras_script_trains(run, tmp_path, monkeypatch):
    run("new", tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    script = Path("fit.py").read_text(encoding="utf-8").replace("EPOCHS = 30", "EPOCHS = 1")
    done = run_program([sys.executable, "-c", script])
    assert done.returncode == 0, done.stderr
    assert len(tfk.load("fit-bundle").translate(["one"])) == 1


def test_readme_commands_parse():
    text = (TEMPLATE / "README.md").read_text(encoding="utf-8")
    lines = [shlex.split(line) for line in re.findall(r"(?m)^tfk-transformer .*$", text)]
    assert [line[1] for line in lines] == ["train", "evaluate", "export", "translate"]
    for _, name, *rest in lines:
        main._imported(name).make_context(name, rest).close()


def test_new_refuses_existing_folder(run, tmp_path):
    status, _, error = run("new", tmp_path)
    assert status == 1
    assert error.startswith(f"error: DIR: expected a new folder, got {tmp_path}, which exists")


def test_new_splits_share_no_sentence(run, tmp_path):
    run("new", tmp_path / "p")
    splits = [
        (tmp_path / "p" / "data" / f"en.{split}.txt").read_text().splitlines()
        for split in ("train", "validation", "test")
    ]
    assert [len(lines) for lines in splits] == [900, 50, 50]
    assert len({line for lines in splits for line in lines}) == 1000


def check_report(report):
    """Check what every report of `doctor` has here."""
    assert report["versions"]["tfk-transformer"] == tfk.__version__
    assert report["versions"]["python"].startswith(platform.python_version())
    assert report["loads"]["text operators of onnxruntime-extensions"] == "yes"
    assert "CPUExecutionProvider" in report["loads"]["onnxruntime"]
    assert report["extras"]["tensorflow"] == "installed"
    assert set(report["machine"]) == {"system", "processor", "instructions", "memory", "disk"}


def test_doctor_reports_packages(run, monkeypatch):
    """With the parts that load within a second."""
    parts = dict(list(doctor.PACKAGE_PARTS.items())[:2])
    monkeypatch.setattr(doctor, "PACKAGE_PARTS", parts)
    status, out, error = run("doctor", "--json")
    assert (status, error) == (0, "")
    check_report(json.loads(out))
    assert str(Path.home()) not in out


@pytest.mark.long  # imports TensorFlow twice, and JAX
def test_doctor_runs_without_tensorflow():
    """In a process that itself cannot import TensorFlow, as in the light install."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, "doctor", "--json"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    check_report(report)
    assert "CPU:0" in report["loads"]["TensorFlow"]
    assert report["loads"]["TensorFlow Text, for SavedModels"] == "yes"


@pytest.mark.parametrize(
    ("package", "program", "expected"),
    [
        ("none_such", "", "not installed"),
        ("json", "raise ImportError('no such library')", "fails: ImportError: no such library"),
        (
            "json",
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "fails: ended by signal 11",
        ),
        ("json", "print('yes')", "yes"),
    ],
)
def test_doctor_reports_crashes(package, program, expected):
    assert doctor._load(package, program) == expected


def test_doctor_reads_the_processor(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(
        "model name\t: A Processor @ 3 GHz\nflags\t\t: fpu avx2 sse4_2 avx512_vnni\n"
    )
    actual = doctor.describe_machine(tmp_path)
    assert actual["processor"].startswith("A Processor @ 3 GHz; ")
    assert actual["instructions"] == "sse4_2 avx2 avx512_vnni"


def test_home_folder_is_not_printed():
    assert without_home("/home/me/x and /home/me", Path("/home/me")) == "~/x and ~"
    assert without_home("/usr/x", Path("/")) == "/usr/x"
    home = PureWindowsPath("C:\\Users\\me")
    texts = [r"C:\Users\me\x and C:\Users\me", json.dumps(str(home / "x"))]
    assert [without_home(text, home) for text in texts] == [r"~\x and ~", r'"~\\x"']
    assert without_home("C:\\x", PureWindowsPath("C:\\")) == "C:\\x"
