"""The command line: the outermost shell, which alone knows both the library and `export/`.

Heavy imports stand inside the commands, so that `--help` is quick and an ONNX file is run without TensorFlow.
"""

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tfk_transformer import __version__
from tfk_transformer.cli.recipe_flags import named_value, read_recipe, with_recipe
from tfk_transformer.cli.text_lines import given_texts, line_pairs, print_streams, scores, translations, write_lines
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.runtime_environment import load_backend, load_tensorflow

app = typer.Typer(
    name="tfk-transformer",
    help="Train encoder-decoder Transformers with Keras, export them to SavedModel and ONNX, and translate with all three.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(highlight=False, soft_wrap=True)

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A bundle, a SavedModel folder or an .onnx file, told apart by itself.")]
BEAM_SIZE_HELP = "Open hypotheses a sentence; 1 is greedy search."
BeamSize = Annotated[int, typer.Option(help=BEAM_SIZE_HELP)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", metavar="NAME=VALUE", help=f"Of the search; may be repeated: {', '.join(list(SearchSettings.model_fields)[2:])}."
    ),
]
Data = Annotated[
    str,
    typer.Option(help="numbers:en-de | addition:2 | files:SOURCE,TARGET | folder:DIR:de-en | tfds:NAME:pt-en. Files are plain or .gz."),
]
EXPECTED = (ValueError, OSError, ImportError, FloatingPointError)  # errors whose words are for the user
DEFAULT_BEAM = SearchSettings.model_fields["beam_size"].default


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    pass


@app.command()
@with_recipe
def train(
    recipe: Annotated[
        Path | None, typer.Argument(metavar="[RECIPE]", help="A TOML file; options given here come before what it says.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the bundle; it must not exist.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an unfinished training after its last whole epoch.")] = False,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps what training needs of the data; once it is there, texts are not read any more.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="GPUs of this machine that share each batch. Default: all. See docs/scaling.md.")
    ] = None,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Train with other processes, which the environment names: see docs/scaling.md.")
    ] = False,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the recipe as TOML, and do nothing.")] = False,
    *,
    given: dict,
) -> None:
    """Train a model on text pairs and leave a bundle: configuration, tokenizers, weights, history."""
    chosen = read_recipe(recipe, given)
    if print_config:
        print(chosen.to_toml(), end="")
        return
    if out is None:
        raise ValueError("--out: expected a folder for the bundle, got none.")
    load_backend()
    from tfk_transformer.training.distribution import is_first
    from tfk_transformer.training.trainer import train as run

    try:
        run(chosen, out, resume=resume, say=console.print, cache=cache, devices=devices, distributed=distributed)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as error:
        if distributed:
            _leave_at_once(error)
        raise
    if is_first():
        console.print(f"bundle: {out}")


@app.command()
def translate(
    model: Model,
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT …]", help="Sentences. Default: lines of --input.")] = None,
    input: Annotated[Path | None, typer.Option(help="File with a sentence a line. Default: standard input.")] = None,
    output: Annotated[Path | None, typer.Option(help="File for the translations. Default: standard output.")] = None,
    prefix: Annotated[str | None, typer.Option(help="What every translation begins with.")] = None,
    beam_size: Annotated[int | None, typer.Option(help=f"{BEAM_SIZE_HELP} Default: {DEFAULT_BEAM}, and 1 of a stream.")] = None,
    setting: Settings = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print each translation while it comes, greedy or drawn.")] = False,
) -> None:
    """Translate sentences, a line each, in their order; a blank line stays blank."""
    settings = {**_settings(setting), "beam_size": (1 if stream else DEFAULT_BEAM) if beam_size is None else beam_size}
    if stream:
        print_streams(_open(model), given_texts(text, input), prefix, settings, output)
    else:
        write_lines(translations(_open(model), given_texts(text, input), prefix, settings), output)


@app.command()
def score(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A bundle, a SavedModel folder or score.onnx.")],
    source: Annotated[Path, typer.Option(help="File with a sentence a line.")],
    target: Annotated[Path, typer.Option(help="File with their translations, a line each.")],
    output: Annotated[Path | None, typer.Option(help="File for the scores. Default: standard output.")] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="Print a line of JSON for each pair, with the score of each token.")] = False,
) -> None:
    """Print the log-probability of given translations, a line each, in their order."""
    if model.is_dir():
        load_tensorflow()
    from tfk_transformer.export.runtime.opening import open_scorer

    write_lines(scores(open_scorer(model), line_pairs(source, target), tokens), output)


@app.command()
def evaluate(
    model: Model,
    data: Data,
    split: Annotated[str, typer.Option(help="Split to evaluate on.")] = "test",
    beam_size: BeamSize = DEFAULT_BEAM,
    setting: Settings = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    output: Annotated[Path | None, typer.Option(help="File for the translations.")] = None,
) -> None:
    """Measure BLEU, chrF (sacreBLEU), exact match and speed on a split."""
    from tfk_transformer import datasets
    from tfk_transformer.atomic_write import written_whole
    from tfk_transformer.evaluation import evaluate as run

    report = datasets.Report()
    pairs = list(datasets.load(data).pairs(split, report))
    settings = {**_settings(setting), "beam_size": beam_size}
    found, translations = run(_open(model), pairs, **settings)
    if output is not None:
        with written_whole(output) as new:
            new.write_text("".join(f"{line}\n" for line in translations), encoding="utf-8")
    if json_output:
        print(json.dumps({**found._asdict(), "dropped": report.dropped, **settings}, indent=2))
        return
    for line in report.lines():
        console.print(line)
    _print_figures(found)


@app.command()
def export(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="What `train` left.")],
    out: Annotated[Path, typer.Option(help="Folder of the artefacts; it must not exist.")],
    format: Annotated[
        list[str] | None,
        typer.Option(
            help="saved_model, onnx, onnx_steps (to stream with), onnx_fast or onnx_int8; may be repeated. Default: the first three."
        ),
    ] = None,
) -> None:
    """Export a bundle to SavedModel and ONNX, after checking that each gives the same translations."""
    load_tensorflow()
    from tfk_transformer.export.runtime.opening import open_bundle

    fitted = open_bundle(bundle)
    from tfk_transformer.export.exporting import export as run

    figures = run(fitted, out, format)
    for name in sorted(path.name for path in out.iterdir()):
        console.print(out / name)
    what = f"ids as Keras on {figures['sentences']} sentences, greedy and beam {DEFAULT_BEAM}"
    console.print(f"the same {what}" if "ids" in figures else f"the same labels as Keras on {figures['sentences']} texts")


@app.command()
def serving(
    saved_model: Annotated[Path, typer.Argument(metavar="SAVED_MODEL", help="The folder saved_model/ that `export` left.")],
    models: Annotated[Path, typer.Option(help="Folder of all models that the server serves; made if it is missing.")],
    name: Annotated[str, typer.Option(help="Of the model; part of the URL.")],
    version: Annotated[int | None, typer.Option(help="Default: one more than the newest.")] = None,
    mounted: Annotated[str, typer.Option(help="The path under which the server sees the folder of models.")] = "/models",
) -> None:
    """Lay a SavedModel out for TensorFlow Serving: MODELS/NAME/VERSION, with the server's configuration."""
    from tfk_transformer.export.to_saved_model.serving import write_serving

    console.print(write_serving(saved_model, models, name, version, mounted))


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An exported .onnx file, a SavedModel folder or a bundle.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a file is: signatures, sizes, version, configuration, and how far it agrees with the Keras model."""
    if file.is_dir():
        load_tensorflow()
    from tfk_transformer.export.inspection import inspect as run
    from tfk_transformer.export.inspection import tables

    found = run(file)
    if json_output:
        print(json.dumps(found, indent=2))
        return
    for table in tables(found):
        console.print(table)


def _open(model: Path):
    """Open MODEL, with TensorFlow only where it is needed."""
    from tfk_transformer.export.runtime.opening import open_translator

    if model.is_dir():
        load_tensorflow()
    return open_translator(model)


def _settings(given: list[str] | None) -> dict:
    return dict(named_value(text, "--setting", "length_penalty=1") for text in given or [])


def _print_figures(found) -> None:
    console.print(f"sentences    {found.sentences:,}")
    console.print(f"BLEU         {found.bleu:.2f}  {found.bleu_signature}")
    console.print(f"chrF         {found.chrf:.2f}  {found.chrf_signature}")
    console.print(f"exact match  {found.exact_match:.1f} %")
    console.print(f"speed        {found.sentences_per_second:.1f} sentences/s")


def main() -> None:
    """Run the command line; a wrong input is one line on standard error and exit status 1."""
    try:
        app()
    except EXPECTED as error:
        _print_error(error)
        sys.exit(1)


def _leave_at_once(error: Exception) -> None:
    """End a process of several without a farewell, for which JAX would wait, and abort when it does not come."""
    if isinstance(error, EXPECTED):
        _print_error(error)
    else:
        traceback.print_exception(error)
    sys.stdout.flush()
    os._exit(1)


def _print_error(error: Exception) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]error:[/] {_one_line(error)}")


def _one_line(error: Exception) -> str:
    from rich.markup import escape

    return escape(" ".join(str(error).split()))
