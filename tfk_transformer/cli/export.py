"""`tfk-transformer export`, and the commands that make bundles of bundles: `ensemble` and `upgrade`."""

from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.cli.arguments import DEFAULT_BEAM, check_new_folder, console
from tfk_transformer.runtime_environment import load_tensorflow

FORMATS = ("saved_model", "onnx", "onnx_steps", "onnx_fast", "onnx_int8")


def command(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that `train` wrote.")],
    out: Annotated[Path, typer.Option(help="The folder for the exported files. It must not exist.")],
    format: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT",
            help=f"{', '.join(FORMATS)}. May be repeated. Default: the first three, or all that a classifier has. "
            "onnx_steps is for streaming.",
        ),
    ] = None,
) -> None:
    """Export a bundle to SavedModel and ONNX. Nothing is written unless every file gives the same results as the Keras model."""
    _check(bundle, out, format)
    load_tensorflow()
    from tfk_transformer.export.exporting import export
    from tfk_transformer.export.runtime.opening import open_bundle

    figures = export(open_bundle(bundle), out, format)
    for name in sorted(path.name for path in out.iterdir()):
        console().print(out / name)
    ids = f"the same ids as Keras on {figures['sentences']} sentences, greedy and beam {DEFAULT_BEAM}"
    console().print(ids if "ids" in figures else f"the same labels as Keras on {figures['sentences']} texts")


def ensemble(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE...", help="Folders that `train` wrote, with the same tokenizers.")],
    out: Annotated[Path, typer.Option(help="The folder for the bundle of all. It must not exist.")],
) -> None:
    """Join the models of several bundles to an ensemble, and write its bundle.

    The ensemble translates as one model: the log-probability of each next token is the mean of the members' log-probabilities.
    """
    for bundle in bundles:
        _check_bundle(bundle)
    check_new_folder(out)
    load_tensorflow()
    from tfk_transformer.pipelines.translator import Translator

    Translator.ensemble([Translator.load(bundle) for bundle in bundles]).save(out)
    console().print(f"bundle: {out}")


def upgrade(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that `train` of an earlier version wrote.")],
) -> None:
    """Write the weights of a bundle anew, as safetensors. Its other files stay as they are."""
    _check_bundle(bundle)
    load_tensorflow()
    from tfk_transformer.pipelines.bundle import rewrite
    from tfk_transformer.pipelines.weights import WEIGHTS

    rewrite(bundle)
    console().print(bundle / WEIGHTS)


def _check_bundle(bundle: Path) -> None:
    if not (bundle / "config.json").is_file():
        raise ValueError(f"bundle: expected a folder that `train` wrote, got {bundle} without config.json.")


def _check(bundle: Path, out: Path, formats: list[str] | None) -> None:
    """Refuse wrong arguments before TensorFlow is loaded, which takes seconds."""
    _check_bundle(bundle)
    if unknown := sorted(set(formats or ()) - set(FORMATS)):
        raise ValueError(f"formats: expected some of {', '.join(FORMATS)}, got {', '.join(unknown)}.")
    check_new_folder(out)
