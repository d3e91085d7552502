"""The number of processors from files of the kernel, missing packages, and standard error while
TensorFlow is imported.
"""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tfk_transformer.runtime_environment import (
    EXTRAS,
    install_line,
    usable_processors,
    with_install_line,
)

ALLOWED = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def system(root: Path, own: str, **files: str) -> Path:
    """Write what /proc and /sys hold: `own` is the text of /proc/self/cgroup, and `files` stand
    below /sys/fs/cgroup.
    """
    for path, text in {
        "proc/self/cgroup": own,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.fixture
def many(monkeypatch):
    """A machine of 64 processors, as the affinity mask has it."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)


def test_affinity_without_cgroups(tmp_path):
    assert usable_processors(tmp_path) == ALLOWED


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000\n", 64),
        ("100000 100000\n", 1),
        ("50000 100000\n", 1),
        ("250000 100000\n", 3),
        ("800000 100000\n", 8),
        ("", 64),
    ],
)
def test_a_pods_quota_is_rounded_up(tmp_path, many, quota, expected):
    """In a container the group is the root of its own hierarchy."""
    assert usable_processors(system(tmp_path, "0::/\n", **{"cpu.max": quota})) == expected


def test_smallest_nested_quota_counts(tmp_path, many):
    files = {
        "a/b/cpu.max": "600000 100000\n",
        "a/cpu.max": "200000 100000\n",
        "cpu.max": "max 100000\n",
        "c/cpu.max": "100000 100000\n",
    }
    assert usable_processors(system(tmp_path, "0::/a/b\n", **files)) == 2


def test_host_path_falls_back_to_root(tmp_path, many):
    assert (
        usable_processors(
            system(tmp_path, "0::/kubepods/pod7/1f\n", **{"cpu.max": "150000 100000\n"})
        )
        == 2
    )


def test_version_1_quota_and_period(tmp_path, many):
    own = "5:memory:/docker/7\n4:cpu,cpuacct:/docker/7\n1:name=systemd:/\n0::/\n"
    names = ("cpu,cpuacct/docker/7", "cpu,cpuacct")
    periods = {f"{name}/cpu.cfs_period_us": "100000\n" for name in names}
    quotas = {
        f"{names[0]}/cpu.cfs_quota_us": "310000\n",
        f"{names[1]}/cpu.cfs_quota_us": "-1\n",
        "memory/docker/7/cpu.cfs_quota_us": "1\n",
    }
    assert usable_processors(system(tmp_path, own, **periods, **quotas)) == 4


def test_affinity_limits_the_quota(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 5}, raising=False)
    assert usable_processors(system(tmp_path, "0::/\n", **{"cpu.max": "400000 100000\n"})) == 2


def test_missing_package_install_line():
    for name in ("tensorflow", "tensorflow.python"):
        error = with_install_line(ModuleNotFoundError(f"No module named {name!r}", name=name))
        line = f"tensorflow is not installed. Install it with: {install_line('tensorflow')}"
        assert str(error) == line
    other = ModuleNotFoundError("No module named 'mine'", name="mine")
    assert with_install_line(other) is other


CLONE = "file:///home/me/clone"
COMMIT = {"vcs": "git", "requested_revision": "main", "commit_id": "0f3a"}


@pytest.mark.parametrize(
    ("origin", "prefix", "line"),
    [
        (None, "/venv", 'pip install "tfk-transformer[serve]"'),
        (
            {"url": CLONE, "dir_info": {}},
            "/venv",
            f'pip install "tfk-transformer[serve] @ {CLONE}"',
        ),
        (
            {"url": CLONE, "dir_info": {"editable": True}},
            "/venv",
            f'pip install --editable "{CLONE}[serve]"',
        ),
        (
            {"url": "https://example.org/name", "vcs_info": COMMIT},
            "/venv",
            'pip install "tfk-transformer[serve] @ git+https://example.org/name@0f3a"',
        ),
        (
            None,
            "/home/me/.cache/uv/archive-v0/r5Xq",
            'uvx --from "tfk-transformer[serve]" tfk-transformer …',
        ),
        (
            {"url": CLONE, "dir_info": {}},
            r"C:\uv\cache\archive-v0\r5Xq",
            f'uvx --from "tfk-transformer[serve] @ {CLONE}" tfk-transformer …',
        ),
    ],
)
def test_install_line_has_the_origin(tmp_path, monkeypatch, origin, prefix, line):
    """An index leaves no file; the metadata of a build in the working directory has none either."""
    for name in ("built", "installed"):
        folder = tmp_path / name / "tfk_transformer-0.1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text("Name: tfk-transformer\nVersion: 0.1.0\n")
    if origin is not None:
        (folder / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "built"), str(tmp_path / "installed")])
    monkeypatch.setattr(sys, "prefix", prefix)
    assert install_line("serve") == line


def test_named_extras_have_the_package():
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())[
        "project"
    ]
    for package, extra in EXTRAS.items():
        expected = {"tensorflow_serving": "tensorflow-serving-api", "yaml": "pyyaml"}.get(
            package, package.replace("_", "-")
        )
        assert any(
            line.startswith(expected) for line in _all_of(extra, project["optional-dependencies"])
        ), (package, extra)


def _all_of(extra: str, extras: dict) -> list[str]:
    """Return the requirements of an extra, those of the extras that it names included."""
    actual = []
    for line in extras[extra]:
        own = line.startswith("tfk-transformer[")
        actual += (
            [line]
            if not own
            else [
                deep
                for name in line[len("tfk-transformer[") : -1].split(",")
                for deep in _all_of(name, extras)
            ]
        )
    return actual


@pytest.mark.parametrize("name", ["Transformer", "train", "TokenAccuracy"])
def test_import_error_names_extra(name):
    code = (
        "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None\nfrom "
        f"tfk_transformer import {name}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"Install it with: {install_line('tensorflow')}" in done.stderr.splitlines()[-1]


def test_start_up_notes_are_dropped(tmp_path):
    """Notes as TensorFlow 2.18 and 2.21 write them, straight to the descriptor."""
    code = """
import os, sys
from tfk_transformer.runtime_environment import without_start_up_notes
with without_start_up_notes():
    os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written to "
                b"STDERR\\n")
    os.write(2, b"I0000 00:00:1795382271.138388   26646 cudart_stub.cc:31] Could not find cuda "
                b"drivers on your machine.\\n")
    os.write(2, b"E0000 00:00:1795772200.939065   29307 cuda_dnn.cc:8310] Unable to register cuDNN "
                b"factory: Attempting to register factory for plugin cuDNN when one has already\\n")
    os.write(2, b"E0000 00:00:1795382271.138388   26646 cuda.cc:31] an error\\n")
    print("a warning", file=sys.stderr)
print("after", file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines() == [
        "E0000 00:00:1795382271.138388   26646 cuda.cc:31] an error",
        "a warning",
        "after",
    ]
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"},
    )
    assert len(shown.stderr.splitlines()) == 6


def test_import_errors_are_shown():
    code = """
import sys
from tfk_transformer.runtime_environment import without_start_up_notes
with without_start_up_notes():
    print("before the error", file=sys.stderr)
    raise RuntimeError("the error")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.startswith("before the error\n")
    assert done.stderr.endswith("RuntimeError: the error\n")


def test_closed_stderr_is_accepted():
    code = (
        "import os; os.close(2); from tfk_transformer import SearchSettings; "
        "print(SearchSettings().beam_size)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout
        == "4\n"
    )


@pytest.mark.long  # starts TensorFlow; test_start_up_notes_are_dropped has notes of its versions
@pytest.mark.parametrize(
    "program", ["from tfk_transformer import Transformer", "import tfk_transformer, keras"]
)
def test_script_has_no_start_up_notes(program):
    environment = {
        name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
