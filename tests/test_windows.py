"""What Windows does differently, as far as other systems can show it: paths with drives and
backslashes, consoles with few characters, a locale that is not UTF-8, and folders that cannot be
renamed while a file in them is open.
"""

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest

import tfk_transformer as tfk
from tfk_transformer import atomic_write, datasets
from tfk_transformer.apps.cli import terminal
from tfk_transformer.datasets.pairs import name_and_languages, spec_languages
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
from tfk_transformer.export.to_onnx.onnx_file import OnnxFiles
from tfk_transformer.training.recipe import Recipe

FILES = Path(__file__).parent / "saved_files"
FOLDER = str(PureWindowsPath("C:/data/of me"))  # C:\data\of me


def test_specs_have_drives_and_backslashes(tmp_path, monkeypatch):
    spec = rf"folder:{FOLDER}:de-en"
    assert name_and_languages(spec, spec.partition(":")[2]) == (FOLDER, "de", "en")
    assert spec_languages(spec) == ("de", "en")
    monkeypatch.chdir(tmp_path)
    Path(FOLDER).mkdir()
    for language, text in {"de": "eins\n", "en": "one\n"}.items():
        Path(FOLDER, f"{language}.train.txt").write_bytes(text.replace("\n", "\r\n").encode())
        Path(rf"D:\{language}.txt").write_text(text)
    for opened in (datasets.load(spec), datasets.load(r"files:D:\de.txt, D:\en.txt")):
        assert [pair[:2] for pair in opened.pairs("train")] == [("eins", "one")]


def test_recipe_keeps_backslashes(tmp_path):
    recipe = Recipe(data=rf"folder:{FOLDER}:de-en", source_language="de", target_language="en")
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    assert Recipe.read(tmp_path / "recipe.toml").data == recipe.data


def test_lines_to_run_are_quoted_for_the_shell(monkeypatch):
    words = ["tfk-transformer", "translate", rf"{FOLDER}\translate.onnx", "forty-two"]
    expected = r'tfk-transformer translate "C:\data\of me\translate.onnx" forty-two'
    assert terminal.command_line(words) == expected.replace('"', "'")
    monkeypatch.setattr(sys, "platform", "win32")
    assert terminal.command_line(words) == expected


@pytest.mark.parametrize(
    "arguments", [["--help"], ["translate", "--help"], ["inspect", str(FILES / "translate.onnx")]]
)
def test_console_with_few_characters(arguments):
    """A terminal in code page 1252, which lacks the characters of tables."""
    command = [sys.executable, "-m", "tfk_transformer", *arguments]
    console, terminal_side = pty.openpty()
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0", "COLUMNS": "80"}
    with subprocess.Popen(
        command, stdin=terminal_side, stdout=terminal_side, stderr=terminal_side, env=environment
    ) as process:
        os.close(terminal_side)
        output = b""
        with contextlib.suppress(OSError):  # Linux reports the end as an error
            while part := os.read(console, 100_000):
                output += part
    os.close(console)
    assert process.returncode == 0
    assert "\\u" not in output.decode("cp1252")
    assert "Traceback" not in output.decode("cp1252")


def opened_files(folder: Path) -> set[str]:
    """Names of the files in a folder that this process has open or mapped."""
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of this listing
            links.append(os.readlink(descriptor))
    maps = Path("/proc/self/maps").read_text().splitlines()
    paths = links + [line.split(maxsplit=5)[-1] for line in maps]
    return {Path(path).name for path in paths if path.startswith(f"{folder.resolve()}/")}


@pytest.mark.long  # exports a model that is large enough for its weights to be mapped
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_file_is_open_when_its_folder_is_renamed(translator, tmp_path, monkeypatch):
    """Windows does not rename a folder while a file in it is open, or truncate a mapped file."""
    renamed, truncated = {}, {}
    replace, add_metadata = os.replace, OnnxFiles.add_metadata

    def watched(source, target):
        renamed[Path(target).name] = opened_files(Path(source))
        replace(source, target)

    def watched_metadata(files, **metadata):
        for path in files._graph_bytes:
            truncated.setdefault(path.name, []).append(opened_files(path.parent))
        add_metadata(files, **metadata)

    monkeypatch.setattr(OnnxFiles, "add_metadata", watched_metadata)
    monkeypatch.setattr(os, "replace", watched)
    monkeypatch.setattr(atomic_write, "_exchange", lambda first, second: False)
    translator.save(tmp_path / "bundle")
    tfk.load(tmp_path / "bundle").save(tmp_path / "bundle")
    tfk.export(translator, tmp_path / "files", ["onnx", "onnx_steps", "onnx_int8"])
    assert len(truncated) == 8
    for name, opened_each_time in truncated.items():
        # 8-bit files that exceed their limits are written again: three times or more.
        assert len(opened_each_time) >= 2, name
        assert not any(opened_each_time), name
    assert renamed == {"bundle": set(), "bundle.old": set(), "files": set()}

    opened = OnnxTranslator(tmp_path / "files" / "translate.onnx")
    assert opened_files(tmp_path / "files") == {"translate.onnx"}
    del opened
    assert opened_files(tmp_path / "files") == set()


WITH_WARNINGS = """
import sys, warnings
warnings.filterwarnings("error", category=EncodingWarning, module="tfk_transformer")
import tfk_transformer as tfk
tfk.load(sys.argv[1]).save("bundle")
tfk.export(tfk.load("bundle"), "files", ["onnx_steps"])
from tfk_transformer.apps.cli.main import main
sys.argv = ["tfk-transformer", "new", "project"]
main()
"""


@pytest.mark.long  # a process of its own, which exports
def test_no_file_has_the_encoding_of_the_locale(tmp_path):
    command = [sys.executable, "-X", "warn_default_encoding", "-c", WITH_WARNINGS]
    done = subprocess.run(
        [*command, str(FILES / "bundle")], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"bundle", "files", "project"}
