"""`tfk-transformer export`, and the commands that make bundles without training: `import`, `ensemble` and `upgrade`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.cli.arguments import DEFAULT_BEAM, check_bundle, check_files, check_new_folder, console
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
            "onnx_steps is for streaming; ctranslate2 and huggingface (MarianMT) are folders for these libraries.",
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
        yield f"MarianMT: the same log-probabilities within {difference:.1g} on {family['sentences']} sentences"


def import_model(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A folder in Hugging Face's layout, with config.json (MarianMT as in opus-mt, M2M100, NLLB, mBART-50); the name of such a "
            "model on the Hugging Face hub, OWNER/MODEL; or an .npz file of Marian.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder for the bundle. It must not exist.")],
    vocab: Annotated[
        list[Path] | None,
        typer.Option(help="Of an .npz file: the SentencePiece model of both sides. Repeat it for source and target, if they differ."),
    ] = None,
    source_language: Annotated[
        str | None,
        typer.Option(
            help="Of a multilingual model: the language of the sources, such as de (M2M100), deu_Latn (NLLB) or de_DE (mBART-50)."
        ),
    ] = None,
    target_language: Annotated[str | None, typer.Option(help="Of a multilingual model: the language to translate to.")] = None,
    probes: Annotated[
        Path | None,
        typer.Option(
            help="A UTF-8 file of source texts, one per line, on which `export` compares files with the model. Default: random pieces."
        ),
    ] = None,
) -> None:
    """Make a bundle of a model of another library. No code of the model is run, and nothing is written unless everything fits."""
    from tfk_transformer.importing.hub import is_name
    from tfk_transformer.importing.hugging_face import model_folder

    check_files(probes=probes)
    check_new_folder(out)
    if not (is_name(model) or Path(model).is_file()):
        model_folder.check_files(Path(model), [model_folder.CONFIG])
    texts = probes.read_text(encoding="utf-8").splitlines() if probes else []
    load_tensorflow()
    from tfk_transformer.importing.model_import import import_model

    translator = import_model(model, vocab=vocab or (), source_language=source_language, target_language=target_language, probes=texts)
    translator.save(out)
    for line in _origin_lines(translator.origin):
        console().print(line, markup=False)
    console().print(f"bundle: {out}")


def _origin_lines(origin: Mapping[str, Any]) -> Iterator[str]:
    """Yield what users should know of the folder that a model came from."""
    languages = f", from {origin['source_language']} to {origin['target_language']}" if "source_language" in origin else ""
    yield f"{origin['family']}: {origin['name']}, licence: {origin['license'] or 'not stated'}{languages}"
    if settings := " ".join(f"--setting {name}={value}" for name, value in origin["search"].items()):
        yield f"search settings of the folder, which a bundle does not hold: {settings}"
    yield from (f"note: {note}" for note in origin["notes"])


def ensemble(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE...", help="Folders that `train` wrote, with the same tokenizers.")],
    out: Annotated[Path, typer.Option(help="The folder for the bundle of all. It must not exist.")],
) -> None:
    """Join the models of several bundles to an ensemble, and write its bundle.

    The ensemble translates as one model: the log-probability of each next token is the mean of the members' log-probabilities.
    """
    for bundle in bundles:
        check_bundle(bundle)
    check_new_folder(out)
    load_tensorflow()
    from tfk_transformer.pipelines.translator import Translator

    Translator.ensemble([Translator.load(bundle) for bundle in bundles]).save(out)
    console().print(f"bundle: {out}")


def upgrade(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that `train` of an earlier version wrote.")],
) -> None:
    """Write the weights of a bundle anew, as safetensors. Its other files stay as they are."""
    check_bundle(bundle)
    load_tensorflow()
    from tfk_transformer.pipelines.bundle import rewrite
    from tfk_transformer.pipelines.weights import WEIGHTS

    rewrite(bundle)
    console().print(bundle / WEIGHTS)


def _check(bundle: Path, out: Path, formats: list[str] | None) -> None:
    """Refuse wrong arguments before TensorFlow is loaded, which takes seconds."""
    check_bundle(bundle)
    if unknown := sorted(set(formats or ()) - set(FORMATS)):
        raise ValueError(f"formats: expected some of {', '.join(FORMATS)}, got {', '.join(unknown)}.")
    from tfk_transformer.export.formats import check_packages

    check_packages(formats or ())
    check_new_folder(out)
