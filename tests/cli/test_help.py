"""Help pages: what is on them, and that their examples are command lines that the program takes."""

import itertools
import re
import shlex

import pytest
import typer

from tfk_transformer.apps.cli import main as cli

NAMES = list(itertools.chain(*cli.COMMANDS.values()))
COMMANDS = {name: cli._imported(name) for name in NAMES}
PLOTS = {f"plot {name}": command for name, command in COMMANDS["plot"].commands.items()}
ALL = {**COMMANDS, **PLOTS}


def words(command):
    """The words of each example of a command."""
    for line in command.epilog.replace("\\\n", " ").strip().splitlines():
        if not line.startswith(("#", "cd ")):
            yield shlex.split(line)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["", *ALL])
def test_help_pages_fit_the_terminal(run, monkeypatch, width, name):
    monkeypatch.setenv("COLUMNS", str(width))
    status, out, error = run(*name.split(), "-h")
    assert (status, error) == (0, "")
    assert all(len(line) <= width for line in out.splitlines()), [
        line for line in out.splitlines() if len(line) > width
    ]
    assert re.match(rf"Usage: .*tfk-transformer {name}", out)
    assert "\nExamples\n" in out
    assert f"  tfk-transformer {name}" in out.partition("\nExamples\n")[2]
    assert not re.search(r"<\w+>|\.{4}|\[\[|[{}]|…", out)


@pytest.mark.parametrize("name", ALL)
def test_help_examples_parse(name):
    """Each is parsed as the program parses it; nothing runs."""
    examples = list(words(ALL[name]))
    assert examples
    for program, first, *rest in examples:
        assert program == "tfk-transformer"
        command = COMMANDS[first]
        if first == "plot":
            first, *rest = rest
            command = command.commands[first]
        command.make_context(first, rest).close()


@pytest.mark.parametrize("name", ALL)
def test_options_have_help_and_metavar(name):
    for param in ALL[name].params:
        assert (
            param.help
            and param.help[0] in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0-'`"
            or param.help.startswith(("skip", "saved_model"))
        )
        assert param.help.endswith("."), param.help
        if param.param_type_name == "argument" or not param.is_flag:
            assert re.fullmatch(r"[A-Z=_ ]+", param.metavar), (name, param.name)


def test_output_options_have_short_o():
    outputs = {
        name: param.opts
        for name in ALL
        for param in ALL[name].params
        if param.name in ("out", "output")
    }
    assert set(outputs) == {
        "train",
        "distill",
        "import",
        "ensemble",
        "trim",
        "export",
        "translate",
        "translate-document",
        "classify",
        "score",
        "evaluate",
        *PLOTS,
    }
    assert all("-o" in names for names in outputs.values())


def test_recipe_and_option_help_agree():
    from tfk_transformer.training.recipe import Recipe

    helps = {param.name: param.help for param in COMMANDS["train"].params}
    for name, field in Recipe.model_fields.items():
        if name != "options":
            assert helps[name].lower().startswith(field.description.lower())


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["trian"], 2, "No such command 'trian'. Did you mean 'train', 'trim'?"),
        (
            ["translate", "m", "--beamsize", "3"],
            2,
            "No such option: --beamsize (Possible options: --as-lines, --beam-size)",
        ),
        (
            ["train", "--data", "numbers:en-de", "--preset", "tinny", "--out", "x"],
            1,
            "got 'tinny'. Did you mean 'tiny'?",
        ),
        (["train", "--data", "number:en-de", "--out", "x"], 1, "Did you mean 'numbers'?"),
        (
            ["export", "{bundle}", "--format", "onx", "--out", "x"],
            1,
            "formats: unknown name 'onx'. Did you mean 'onnx'?",
        ),
        (
            ["translate", "{bundle}", "one", "--setting", "lenght_penalty=1"],
            1,
            "'lenght_penalty'. Did you mean 'length_penalty'?",
        ),
    ],
)
def test_typo_suggests_nearest_name(run, bundle, tmp_path, monkeypatch, arguments, status, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    actual, out, error = run(*(argument.format(bundle=bundle) for argument in arguments))
    assert (actual, out) == (status, "")
    assert message in " ".join(error.split())


def test_shell_completes_command_line(monkeypatch, capsys):
    """As bash asks for it, through the variable that its script sets."""

    def completed(line):
        *before, _ = line.split(" ")
        monkeypatch.setenv("_TFK_TRANSFORMER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(before)))
        with pytest.raises(SystemExit):
            typer.main.get_command(cli.app).main(prog_name="tfk-transformer")
        return capsys.readouterr().out.split()

    assert completed("tfk-transformer tra") == ["train", "translate", "translate-document"]
    assert completed("tfk-transformer translate --beam") == ["--beam-size"]
    assert completed("tfk-transformer export b --format onnx_i") == ["onnx_int8"]
    assert "tiny" in completed("tfk-transformer train --preset t")
