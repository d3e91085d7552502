"""`tfk-transformer export`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.cli.arguments import DEFAULT_BEAM, check_bundle, check_new_folder, console
from tfk_transformer.runtime_environment import load_tensorflow

FORMATS = ("saved_model", "onnx", "onnx_steps", "onnx_fast", "onnx_int8", "ctranslate2", "huggingface")


def command(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that `train` wrote.")],
    out: Annotated[Path, typer.Option(help="The folder for the exported files. It must not exist.")],
    format: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMAT",
            help=f"{', '.join(FORMATS)}. May be repeated. Default: the first three, or all that a classifier has. "
            "onnx_steps is for streaming; ctranslate2 and huggingface (MarianMT, M2M100) are folders for these libraries.",
        ),
    ] = None,
) -> None:
    """Export a bundle to SavedModel, ONNX and others. Nothing is written unless every file gives the same results as the Keras model."""
    _check(bundle, out, format)
    load_tensorflow()
    from tfk_transformer.export.exporting import export
    from tfk_transformer.export.runtime.opening import open_bundle

    figures = export(open_bundle(bundle), out, format)
    for name in sorted(path.name for path in out.iterdir()):
        console().print(out / name)
    for line in _agreements(figures):
        console().print(line)


def _agreements(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield how closely the files agree with the Keras model."""
    if "ids" in figures:
        yield f"the same ids as Keras on {figures['sentences']} sentences, greedy and beam {DEFAULT_BEAM}"
    if "labels" in figures:
        yield f"the same labels as Keras on {figures['sentences']} texts"
    if engine := figures.get("ctranslate2"):
        same = ", ".join(
            f"{engine[f'same_in_{search}_search']} of {engine['sentences']} in {search} search" for search in ("greedy", "beam")
        )
        yield f"CTranslate2: the same translations without length penalty, {same}"
    if family := figures.get("huggingface"):
        difference = family["largest_token_score_difference"]
        yield f"{family['family']}: the same log-probabilities within {difference:.1g} on {family['sentences']} sentences"


def _check(bundle: Path, out: Path, formats: list[str] | None) -> None:
    """Refuse wrong arguments before TensorFlow is loaded, which takes seconds."""
    check_bundle(bundle)
    if unknown := sorted(set(formats or ()) - set(FORMATS)):
        raise ValueError(f"formats: expected some of {', '.join(FORMATS)}, got {', '.join(unknown)}.")
    from tfk_transformer.export.formats import check_packages

    check_packages(formats or ())
    check_new_folder(out)
