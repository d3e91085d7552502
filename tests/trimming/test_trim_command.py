"""The command `trim`, and `import` with `--keep-text`: output, bundles and errors."""

import gzip
import json

import pytest
from marian_folder import sentences, write_folder
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.pipelines.translator import Translator


def run(*arguments):
    return CliRunner().invoke(main.app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "num_beams": 6}
    path = tmp_path_factory.mktemp("marian")
    for side in ("source", "target"):
        text = "".join(f"{line}\n" for line in sentences(side, 20))
        (path / side).write_text(text, encoding="utf-8")
    (path / "source.gz").write_bytes(gzip.compress((path / "source").read_bytes()))
    (path / "blank").write_text("\n \n")
    (path / "latin").write_bytes(b"kalo\n\xe9\n")
    write_folder(path / "opus", separate=True, **sizes)
    done = run("import", path / "opus", "--out", path / "bundle")
    assert done.exit_code == 0, done.output
    return path


def test_trim_prints_sizes_and_check(folder, tmp_path):
    out = tmp_path / "small"
    texts = ("--keep-text", folder / "source.gz", "--keep-target-text", folder / "target")
    done = run("trim", folder / "bundle", *texts, "--vocab-size", 50, "--out", out)
    assert done.exit_code == 0, done.output
    source, target, parameters, *checks, bundle = done.output.splitlines()
    assert (source, target) == ("source: 72 to 50 pieces", "target: 68 to 50 pieces")
    assert parameters.startswith("parameters: ")
    assert parameters.endswith(" MB")
    assert [line.partition(":")[0] for line in checks] == [
        "check of 2 texts (source)",
        "check of 2 texts (target)",
    ]
    assert bundle == f"bundle: {out}"
    kept = Translator.load(out)
    assert kept.model.config.source_vocab_size == 50
    assert kept.search == Translator.load(folder / "bundle").search


def test_trim_json_has_figures(folder, tmp_path):
    texts = ("--keep-text", folder / "source", "--check-text", folder / "target")
    done = run("trim", folder / "bundle", *texts, "--out", tmp_path / "small", "--json")
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["bundle"] == str(tmp_path / "small")
    assert result["trimming"]["check"]["target"]["texts"] == 20
    assert Translator.load(tmp_path / "small").origin["trimming"] == result["trimming"]


def test_import_keeps_pieces_of_texts(folder, tmp_path):
    texts = ("--keep-text", folder / "source", "--keep-text", folder / "target")
    done = run("import", folder / "opus", *texts, "--vocab-size", 55, "-o", tmp_path / "small")
    assert done.exit_code == 0, done.output
    assert "source: 72 to 55 pieces" in done.output.splitlines()
    assert Translator.load(tmp_path / "small").model.config.target_vocab_size == 55


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["trim", "bundle"], 2, "Missing option '--keep-text'"),
        (
            ["trim", "bundle", "--keep-text", "no"],
            1,
            "--keep-text: No such file or directory: 'no'",
        ),
        (
            ["trim", "bundle", "--keep-text", "blank"],
            1,
            "--keep-text: expected sentences, one per line, got only blank lines in blank.",
        ),
        (
            ["trim", "bundle", "--keep-text", "latin"],
            1,
            "--keep-text: latin:2: expected UTF-8, got byte 0xe9 at column 1.",
        ),
        (
            ["trim", "bundle", "--keep-text", "source", "--vocab-size", "9"],
            1,
            "vocab_size: expected at least ",
        ),
        (["trim", "opus", "--keep-text", "source"], 1, "got opus, which has no source.model; "),
        (
            ["import", "opus", "--vocab-size", "50"],
            1,
            "--vocab-size: expected none without --keep-text, got 50; add --keep-text",
        ),
    ],
)
def test_trim_errors_write_nothing(
    folder, tmp_path, monkeypatch, capsys, arguments, status, message
):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["tfk-transformer", *arguments, "--out", str(tmp_path / "x")])
    with pytest.raises(SystemExit) as stopped:
        main.main()
    assert stopped.value.code == status
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "x").exists()
