"""`tfk-transformer import`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfk_transformer.apps.cli.arguments import (
    OUTPUT,
    Json,
    Quiet,
    Verbose,
    check_input_files,
    check_new_folder,
    console,
)
from tfk_transformer.apps.cli.model_commands.import_report import comparison_lines, origin_lines
from tfk_transformer.apps.cli.model_commands.trim import KEEP_TEXT, VocabSize, open_texts
from tfk_transformer.apps.cli.progress import steps
from tfk_transformer.apps.cli.terminal import plain_warnings, print_line
from tfk_transformer.atomic_write import lock
from tfk_transformer.config.small_files import read_small_text
from tfk_transformer.pipelines.licenses import LicenseWarning
from tfk_transformer.runtime_environment import load_tensorflow

if TYPE_CHECKING:
    from tfk_transformer.pipelines.translator import Translator

MODEL = "Model"  # title of a group of options in the help
EXAMPLES = """
tfk-transformer import opus-mt-de-en --out de-en
# Download a model from the Hugging Face hub.
tfk-transformer import Helsinki-NLP/opus-mt-de-en --out de-en
# A multilingual model, for one pair of languages.
tfk-transformer import nllb-200 -o de-en --source-language deu_Latn \\
    --target-language eng_Latn
# Only the pieces that the sentences of two files use.
tfk-transformer import nllb-200 -o small --source-language deu_Latn \\
    --target-language eng_Latn --keep-text train.de --keep-text train.en
"""


def command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A folder in Hugging Face's layout, with config.json (MarianMT as in opus-mt, "
            "M2M100, NLLB, mBART, Pegasus, T5, mT5, ByT5), or of CTranslate2, with model.bin; the "
            "name of such a model on the Hugging Face hub, such as OWNER/MODEL; an .argosmodel "
            "file of Argos Translate; or a folder or an .npz or .bin file of Marian, such as a "
            "model of Firefox.",
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
    source_text_prefix: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help=(
                'A text that the model puts before every source, such as "summarize: " for T5. '
                "Default: none."
            ),
            rich_help_panel=MODEL,
        ),
    ] = None,
    vocab: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help=(
                "For a file of Marian, or a folder without it: the SentencePiece model of "
                "both sides. If the sides differ, repeat the option: source, then target."
            ),
            rich_help_panel=MODEL,
        ),
    ] = None,
    keep_text: Annotated[list[Path] | None, KEEP_TEXT] = None,
    vocab_size: VocabSize = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Also translate the example of the model's card, and compare tokens, translations "
            "and scores with transformers or CTranslate2 where these are installed. Exit status 1 "
            "if they differ.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    json_output: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Convert a model from another library to a bundle. No code from the model is run, and nothing
    is written unless all files of the model fit together.
    """
    from tfk_transformer.importing.hugging_face import model_folder
    from tfk_transformer.importing.model_paths import (
        check_model_path,
        is_ctranslate2_folder,
        is_hub_name,
        is_marian_folder,
    )

    check_input_files(probes=probes)
    check_new_folder(out)
    if not is_hub_name(model):
        check_model_path(Path(model))
    has_other_layout = is_ctranslate2_folder(Path(model)) or is_marian_folder(Path(model))
    if Path(model).is_dir() and not has_other_layout:
        model_folder.check_model_files(Path(model), [model_folder.CONFIG])
    texts = read_small_text(probes).splitlines() if probes else []
    if vocab_size is not None and not keep_text:
        raise ValueError(
            f"--vocab-size: expected none without --keep-text, got {vocab_size}; add --keep-text "
            "with sentences of the languages to keep."
        )
    keep_texts = open_texts("keep-text", keep_text) if keep_text else None
    with plain_warnings(LicenseWarning), lock(out), steps(quiet, verbose) as begin:
        check_new_folder(out)  # another run may have just ended
        begin("load TensorFlow")
        load_tensorflow()
        from tfk_transformer.importing.checking.comparison import compare_with_library
        from tfk_transformer.importing.checking.description import describe_model
        from tfk_transformer.importing.model_import import import_model

        begin(f"read {model}")
        languages = {"source_language": source_language, "target_language": target_language}
        translator = import_model(
            model,
            vocab=vocab or (),
            source_text_prefix=source_text_prefix,
            probes=texts,
            keep_texts=keep_texts,
            vocab_size=vocab_size,
            **languages,
        )
        begin(f"write {out}")
        translator.save(out)
        description = describe_model(model, translator, vocab or ())
        comparison = None
        if check:
            begin("compare translations")
            comparison = compare_with_library(model, translator, vocab or ())
    _print_report(out, translator, description, comparison, json_output)
    if comparison and comparison["agrees"] is False:
        print_line(
            f"warning: the imported model differs from {comparison['library']}. {out} was written; "
            "do not rely on it, and report this with the output above."
        )
        raise typer.Exit(1)


def _print_report(
    out: Path,
    translator: "Translator",
    description: Mapping[str, Any],
    comparison: Mapping[str, Any] | None,
    as_json: bool,
) -> None:
    """Print what was read and compared, as text or as one JSON object."""
    origin = translator.origin
    if as_json:
        source, target = translator.languages
        languages = {"source_language": source, "target_language": target}
        compared = {} if comparison is None else {"comparison": comparison}
        report = {"bundle": str(out), **origin, **languages, "read": description, **compared}
        print(json.dumps(report, indent=2))
        return
    for line in origin_lines(origin, translator.languages, description):
        console().print(line)
    for line in comparison_lines(comparison) if comparison else ():
        console().print(line)
    console().print(f"bundle: {out}")
