"""`tfk-transformer import`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.atomic_write import lock
from tfk_transformer.cli.arguments import (
    OUTPUT,
    Json,
    Quiet,
    Verbose,
    check_input_files,
    check_new_folder,
    console,
)
from tfk_transformer.cli.progress import steps
from tfk_transformer.config.small_files import read_small_text
from tfk_transformer.runtime_environment import load_tensorflow
from tfk_transformer.sentences.languages import Languages

MODEL = "Model"  # title of a group of options in the help
EXAMPLES = """
tfk-transformer import opus-mt-de-en --out de-en
# Download a model from the Hugging Face hub.
tfk-transformer import Helsinki-NLP/opus-mt-de-en --out de-en
# A multilingual model, for one pair of languages.
tfk-transformer import nllb-200 -o de-en --source-language deu_Latn \\
    --target-language eng_Latn
"""


def command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A folder in Hugging Face's layout, with config.json (MarianMT as in opus-mt, "
            "M2M100, NLLB, mBART-50), or of CTranslate2, with model.bin; the name of such a model "
            "on the Hugging Face hub, such as OWNER/MODEL; an .argosmodel file of Argos Translate; "
            "or a Marian .npz file.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="The folder for the bundle. It must not exist.",
            rich_help_panel=OUTPUT,
        ),
    ],
    probes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "A UTF-8 file of source texts, one per line. `export` compares the exported files "
                "with the model on these texts. Default: texts of random tokens."
            ),
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    source_language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help=(
                "The language of the sources, such as de (M2M100), deu_Latn (NLLB) or de_DE "
                "(mBART-50). Default: the language that the folder or its name states; required "
                "for a multilingual model."
            ),
            rich_help_panel=MODEL,
        ),
    ] = None,
    target_language: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help="The language of the translations.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    vocab: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help=(
                "For an .npz file, or a CTranslate2 folder without it: the SentencePiece model of "
                "both sides. If the sides differ, repeat the option: source, then target."
            ),
            rich_help_panel=MODEL,
        ),
    ] = None,
    json_output: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Convert a model from another library to a bundle. No code from the model is run, and nothing
    is written unless all files of the model fit together.
    """
    from tfk_transformer.importing.hub import is_name
    from tfk_transformer.importing.hugging_face import model_folder, path_problems
    from tfk_transformer.importing.hugging_face.path_problems import is_ctranslate2_folder

    check_input_files(probes=probes)
    check_new_folder(out)
    if not is_name(model):
        path_problems.check_model_path(Path(model))
    if Path(model).is_dir() and not is_ctranslate2_folder(Path(model)):
        model_folder.check_model_files(Path(model), [model_folder.CONFIG])
    texts = read_small_text(probes).splitlines() if probes else []
    with lock(out), steps(quiet, verbose) as begin:
        check_new_folder(out)  # another run may have just ended
        begin("load TensorFlow")
        load_tensorflow()
        from tfk_transformer.importing.model_import import import_model

        begin(f"read {model}")
        languages = {"source_language": source_language, "target_language": target_language}
        translator = import_model(model, vocab=vocab or (), probes=texts, **languages)
        begin(f"write {out}")
        translator.save(out)
    if json_output:
        source, target = translator.languages
        facts = {**translator.origin, "source_language": source, "target_language": target}
        print(json.dumps({"bundle": str(out), **facts}, indent=2))
        return
    for line in _origin_lines(translator.origin, translator.languages):
        console().print(line)
    console().print(f"bundle: {out}")


def _origin_lines(origin: Mapping[str, Any], languages: Languages) -> Iterator[str]:
    """Yield the lines that describe the folder that a model was imported from."""
    directions = zip(("from", "to"), languages, strict=True)
    license_name = f"license: {origin['license'] or 'not stated'}"
    direction = " ".join(f"{word} {language}" for word, language in directions if language)
    facts = (f"{origin['family']}: {origin['name']}", license_name, direction)
    yield ", ".join(filter(None, facts))
    if settings := " ".join(
        f"--setting {name}={value}" for name, value in origin["search"].items()
    ):
        yield f"search settings of the folder, which the bundle does not contain: {settings}"
    yield from (f"note: {note}" for note in origin["notes"])
