"""The checks of scripts/release, the image's commands, and the workflows on GitHub.

Building and installing takes minutes and a network; the workflow `Tests` does it.
"""

import email
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
WORKFLOWS = REPOSITORY / ".github" / "workflows"
SERVING = REPOSITORY / "scripts" / "serving"
RELEASED = (
    "# Changelog\n\n## [0.2.0] - 2026-12-01\n- A change.\n\n## [0.1.0] - 2026-11-01\n- One.\n"
)
UNRELEASED = "# Changelog\n\n## [Unreleased]\n\n### Added\n- A change.\n"
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


class Release:
    """A repository with one commit, and the checks of its release."""

    def __init__(self, folder: Path, version: str, changelog: str):
        self.folder = folder
        (folder / "scripts").mkdir()
        for name in ("release", "release_checks"):
            shutil.copy(REPOSITORY / "scripts" / name, folder / "scripts")
        (folder / "tfk_transformer").mkdir()
        self.constants = folder / "tfk_transformer" / "constants.py"
        self.constants.write_text(f'"""Constants."""\n\n__version__ = "{version}"\n')
        (folder / "CHANGELOG.md").write_text(changelog)
        self.git("init", "--quiet")
        self.commit()

    def git(self, *arguments: str) -> None:
        names = ["-c", "user.name=Some", "-c", "user.email=some@example.org"]
        subprocess.run(["git", *names, *arguments], cwd=self.folder, check=True)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "Change")

    def check(self, *options: str) -> tuple[int, list[str]]:
        """Return the status and the lines of `scripts/release_checks`."""
        command = ["bash", self.folder / "scripts" / "release_checks", *options]
        done = subprocess.run(command, capture_output=True, text=True)
        assert not (self.folder / "dist").exists()
        assert not (self.folder / "build").exists()
        return done.returncode, (done.stdout + done.stderr).splitlines()


@needs_git
@pytest.mark.parametrize(
    ("version", "changelog", "options"),
    [
        ("0.2.0", RELEASED, []),
        ("0.2.0", RELEASED, ["--rehearse"]),
        ("0.2.0.dev0", UNRELEASED, ["--rehearse"]),
        ("0.3.0.dev1", UNRELEASED + RELEASED.partition("\n")[2], ["--rehearse"]),
    ],
)
def test_consistent_release_passes(version, changelog, options, tmp_path):
    release = Release(tmp_path, version, changelog)
    assert release.check(*options) == (0, [f"version {version}: the checks passed"])


@needs_git
@pytest.mark.parametrize(
    ("version", "changelog", "options", "message"),
    [
        (
            "0.2.0.dev0",
            UNRELEASED,
            [],
            "tfk_transformer/constants.py: expected a version such as 1.2.3, "
            'got "0.2.0.dev0"; correct __version__, or use --rehearse for one such as 1.2.3.dev0',
        ),
        (
            "v0.2",
            UNRELEASED,
            ["--rehearse"],
            'tfk_transformer/constants.py: expected a version such as 1.2.3, got "v0.2"; '
            "correct __version__, or use --rehearse for one such as 1.2.3.dev0",
        ),
        (
            "0.2.0",
            UNRELEASED,
            [],
            'CHANGELOG.md: expected the first section "## [0.2.0] - YYYY-MM-DD", '
            'got "## [Unreleased]"; write the version and the date',
        ),
        (
            "0.1.0",
            RELEASED,
            [],
            'CHANGELOG.md: expected the first section "## [0.1.0] - YYYY-MM-DD", '
            'got "## [0.2.0] - 2026-12-01"; write the version and the date',
        ),
        (
            "0.3.0.dev0",
            RELEASED,
            ["--rehearse"],
            'CHANGELOG.md: expected the first section "## [Unreleased]" for version 0.3.0.dev0, '
            'got "## [0.2.0] - 2026-12-01"; add it',
        ),
        (
            "0.2.0",
            RELEASED.replace("- A change.\n", ""),
            [],
            "CHANGELOG.md: expected entries in the first section, got none; list the changes",
        ),
    ],
)
def test_inconsistent_release_is_refused(version, changelog, options, message, tmp_path):
    release = Release(tmp_path, version, changelog)
    assert release.check(*options) == (1, [f"error: {message}"])


@needs_git
def test_every_problem_is_reported(tmp_path):
    release = Release(tmp_path, "0.2.0", "# Changelog\n")
    (tmp_path / "new.txt").write_text("new")
    release.constants.write_text('__version__ = "0.3.0"\n')
    status, lines = release.check()
    assert status == 1
    assert [line.split(":")[1] for line in lines] == [" CHANGELOG.md", " CHANGELOG.md", " git"]
    assert lines[2] == (
        "error: git: expected no uncommitted changes, got 2; commit them, because the files are "
        "built from the last commit"
    )


@needs_git
def test_tag_belongs_to_the_version(tmp_path):
    release = Release(tmp_path, "0.2.0", RELEASED)
    release.git("tag", "v0.2.0")
    assert release.check()[0] == 0
    release.commit()
    assert release.check() == (
        1,
        [
            "error: git: expected the tag v0.2.0 at the last commit or none, got it at another "
            "commit; a version is released once, so raise __version__"
        ],
    )
    release.git("tag", "--delete", "v0.2.0")
    release.git("tag", "v0.3.0")
    assert release.check() == (
        1,
        [
            "error: git: expected the tag v0.2.0 at the last commit, got v0.3.0; correct "
            "__version__ or the tag"
        ],
    )


@needs_git
def test_unknown_option_is_refused(tmp_path):
    release = Release(tmp_path, "0.2.0", RELEASED)
    assert release.check("--publish") == (
        2,
        ["error: option: expected --rehearse, got --publish; correct it"],
    )


@needs_git
def test_current_version_can_be_rehearsed(tmp_path):
    from tfk_transformer import __version__

    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert Release(tmp_path, __version__, changelog).check("--rehearse")[0] == 0


def test_image_commands_translate():
    pytest.importorskip("uvicorn")
    model = REPOSITORY / "tests" / "saved_files" / "translate.onnx"
    command = [sys.executable, SERVING / "try_image.py", sys.prefix, model, "seven"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "sieben\n"), done.stderr


def workflow(name: str) -> dict:
    if not WORKFLOWS.is_dir():
        pytest.skip("needs the workflows")
    return yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text(encoding="utf-8"))


def steps(name: str) -> list[dict]:
    return [step for job in workflow(name)["jobs"].values() for step in job["steps"]]


def test_actions_are_pinned_alike():
    workflow("tests")
    text = "".join(path.read_text() for path in sorted(WORKFLOWS.glob("*.yml")))
    pinned = re.findall(r"uses: ([\w/-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)\n", text)
    assert len(pinned) == text.count("uses:") > 0
    assert len(set(pinned)) == len({action for action, _, _ in pinned})


def test_permissions_are_minimal():
    granted = {}
    for name in ("tests", "publish"):
        assert workflow(name)["permissions"] == {}
        for job, content in workflow(name)["jobs"].items():
            granted[f"{name}.{job}"] = content["permissions"]
    writing = {job: rights for job, rights in granted.items() if "write" in rights.values()}
    assert writing == {
        "publish.pypi": {"id-token": "write"},
        "publish.npm": {"id-token": "write"},
        "publish.github": {"contents": "write"},
    }
    checkouts = [
        step
        for step in steps("tests") + steps("publish")
        if step.get("uses", "").startswith("actions/checkout@")
    ]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_publishing_follows_the_checks():
    jobs = workflow("publish")["jobs"]
    # YAML 1.1 reads the key `on` as true.
    assert workflow("publish")[True] == {"push": {"tags": ["v*"]}}
    assert "scripts/release" in [step.get("run") for step in jobs["build"]["steps"]]
    # From what can be removed again to what cannot.
    needs = {name: job.get("needs") for name, job in jobs.items()}
    assert needs == {"build": None, "github": "build", "npm": "github", "pypi": "npm"}
    assert {name: jobs[name]["environment"]["name"] for name in ("pypi", "npm")} == {
        "pypi": "pypi",
        "npm": "npm",
    }
    assert "NODE_AUTH_TOKEN" not in (WORKFLOWS / "publish.yml").read_text(encoding="utf-8")
    (upload,) = [step for step in jobs["pypi"]["steps"] if "pypi-publish" in step["uses"]]
    assert upload["with"]["attestations"] is True
    assert set(upload["with"]) & {"user", "password"} == set()


ADDRESS = "https://github.com/OWNER/NAME"


@needs_git
def test_release_needs_the_address_of_the_repository(tmp_path):
    release = Release(tmp_path, "0.2.0", RELEASED)
    command = ["bash", tmp_path / "scripts" / "release"]
    environment = {name: value for name, value in os.environ.items() if name != "REPOSITORY"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert done.stderr.startswith("error: REPOSITORY: expected the address of the repository")
    assert not (release.folder / "dist").exists()


def metadata(folder, **environment):
    """Return the metadata of a wheel as email headers, whose payload is the description."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder)
    for name in ("tfk_transformer", "export"):
        (folder / name).mkdir()
    shutil.copy(REPOSITORY / "tfk_transformer" / "constants.py", folder / "tfk_transformer")
    code = "from setuptools import build_meta as b; print(b.prepare_metadata_for_build_wheel('.'))"
    environment = {**os.environ, **environment}
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, env=environment)
    (file,) = folder.glob("*.dist-info/METADATA")
    return email.message_from_string(file.read_text(encoding="utf-8"))


def test_description_on_pypi_has_absolute_links(tmp_path):
    described = metadata(tmp_path, REPOSITORY=ADDRESS)
    version = described["Version"]
    links = re.findall(r"\]\(([^)#]+)", described.get_payload())
    assert f"{ADDRESS}/blob/v{version}/docs/start.md" in links
    assert f"{ADDRESS}/raw/v{version}/docs/_static/web-page.png" in links
    assert [link for link in links if not link.startswith("https://")] == []
    assert f"Source, {ADDRESS}" in described.get_all("Project-URL")


def test_description_without_an_address_is_the_readme(tmp_path):
    described = metadata(tmp_path, REPOSITORY="")
    assert described.get_payload() == (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert described["Project-URL"] is None


def test_pythons_of_workflows():
    jobs = workflow("tests")["jobs"]
    light = jobs["light"]["strategy"]["matrix"]["python"]
    tensorflow = jobs["tensorflow"]["strategy"]["matrix"]["python"]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={light[0]}"
    platforms = (REPOSITORY / "scripts" / "platforms").read_text()
    assert light == re.search(r"for python in ([\d. ]+);", platforms)[1].split()
    bootstrap = (REPOSITORY / "scripts" / "bootstrap").read_text()
    assert tensorflow == sorted(set(re.findall(r"python(3\.\d+)", bootstrap)))
    (full,) = [
        step["with"]["python-version"].split()
        for step in jobs["full"]["steps"]
        if "setup-python" in step.get("uses", "")
    ]
    assert sorted(full) == tensorflow


def test_files_of_workflows_exist():
    commands = "\n".join(step.get("run", "") for step in steps("tests") + steps("publish"))
    names = set(re.findall(r"(?:scripts|tests|\.ci)/[\w./-]+\w", commands))
    assert {"scripts/release", "scripts/platforms", ".ci/run"} <= names
    names -= {".ci/run"}  # not in the sdist
    assert [name for name in names if not (REPOSITORY / name).is_file()] == []
