"""`tfk-transformer import`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.apps.cli.arguments import (
    OUTPUT,
    Json,
    Quiet,
    Verbose,
    check_input_files,
    check_new_folder,
    option,
)
from tfk_transformer.apps.cli.model_commands.trim import (
    KEEP_TEXT,
    VocabSize,
    open_texts,
    trimming_lines,
)
from tfk_transformer.apps.cli.progress import new_folder
from tfk_transformer.apps.cli.terminal import plain_warnings, print_line, print_report
from tfk_transformer.config.setting_values import setting_text
from tfk_transformer.config.small_files import read_small_text
from tfk_transformer.config.words import shorten
from tfk_transformer.pipelines.licenses import LicenseWarning

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
    model: Annotated[str, typer.Argument(metavar="MODEL")],
    out: Annotated[Path, option(OUTPUT, "--out", "-o", metavar="DIR")],
    probes: Annotated[Path | None, option(OUTPUT, metavar="FILE")] = None,
    source_language: Annotated[str | None, option(MODEL, metavar="CODE")] = None,
    target_language: Annotated[str | None, option(MODEL, metavar="CODE")] = None,
    source_text_prefix: Annotated[str | None, option(MODEL, metavar="TEXT")] = None,
    vocab: Annotated[list[Path] | None, option(MODEL, metavar="FILE")] = None,
    keep_text: Annotated[list[Path] | None, KEEP_TEXT] = None,
    vocab_size: VocabSize = None,
    check: Annotated[bool, option(OUTPUT, "--check")] = False,
    json_output: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Convert a model from another library to a bundle. No code from the model is run, and nothing
    is written unless all files of the model fit together.

    Args:
        model: A folder in Hugging Face's layout, with config.json (MarianMT as in opus-mt, M2M100,
            NLLB, mBART, Pegasus, T5, mT5, ByT5), or of CTranslate2, with model.bin; the name of
            such a model on the Hugging Face hub, such as OWNER/MODEL; an .argosmodel file of Argos
            Translate; or a folder or an .npz or .bin file of Marian, such as a model of Firefox.
        out: The folder for the bundle. It must not exist.
        probes: A UTF-8 file of source texts, one per line. `export` compares the exported files
            with the model on these texts. Default: texts of random tokens.
        source_language: The language of the sources, such as de (M2M100), deu_Latn (NLLB) or de_DE
            (mBART-50). Default: the language that the folder or its name states; required for a
            multilingual model.
        target_language: The language of the translations.
        source_text_prefix: A text that the model puts before every source, such as "summarize: "
            for T5. Default: none.
        vocab: For a file of Marian, or a folder without it: the SentencePiece model of both sides.
            If the sides differ, repeat the option: source, then target.
        check: Also translate the example of the model's card, and compare tokens, translations and
            scores with transformers or CTranslate2 where these are installed. Exit status 1 if they
            differ.
    """
    check_input_files(probes=probes)
    check_new_folder(out)
    _check_model(model)
    texts = read_small_text(probes).splitlines() if probes else []
    if vocab_size is not None and not keep_text:
        raise ValueError(
            f"--vocab-size: expected none without --keep-text, got {vocab_size}; add --keep-text "
            "with sentences of the languages to keep."
        )
    keep_texts = open_texts("keep-text", keep_text) if keep_text else None
    with plain_warnings(LicenseWarning), new_folder(out, quiet, verbose) as begin:
        from tfk_transformer.importing.checking.comparison import compare_with_library
        from tfk_transformer.importing.checking.description import describe_model
        from tfk_transformer.importing.model_import import import_model

        begin(f"read {model}")
        translator = import_model(
            model,
            vocab=vocab or (),
            source_text_prefix=source_text_prefix,
            probes=texts,
            keep_texts=keep_texts,
            vocab_size=vocab_size,
            source_language=source_language,
            target_language=target_language,
        )
        begin(f"write {out}")
        translator.save(out)
        description = describe_model(model, translator, vocab or ())
        comparison = None
        if check:
            begin("compare translations")
            comparison = compare_with_library(model, translator, vocab or ())
    source, target = translator.languages
    report = {
        "bundle": str(out),
        **translator.origin,
        "source_language": source,
        "target_language": target,
        "read": description,
        **({"comparison": comparison} if comparison else {}),
    }
    print_report(report, _lines(report), json_output)
    if comparison and comparison["agrees"] is False:
        print_line(
            f"warning: the imported model differs from {comparison['library']}. {out} was written; "
            "do not rely on it, and report this with the output above."
        )
        raise typer.Exit(1)


def _check_model(model: str) -> None:
    """Refuse a path without a model that can be imported, before TensorFlow is loaded."""
    from tfk_transformer.importing.hugging_face import model_folder
    from tfk_transformer.importing.model_paths import (
        check_model_path,
        is_ctranslate2_folder,
        is_hub_name,
        is_marian_folder,
    )

    if not is_hub_name(model):
        check_model_path(Path(model))
    has_other_layout = is_ctranslate2_folder(Path(model)) or is_marian_folder(Path(model))
    if Path(model).is_dir() and not has_other_layout:
        model_folder.check_model_files(Path(model), [model_folder.CONFIG])


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe an imported model, the settings taken over, a comparison."""
    from tfk_transformer.importing.checking.description import describe_line
    from tfk_transformer.training.trimming.trimming import TRIMMING

    languages = (("from", report["source_language"]), ("to", report["target_language"]))
    direction = " ".join(f"{word} {language}" for word, language in languages if language)
    license_name = f"license: {report['license'] or 'not stated'}"
    facts = (f"{report['family']}: {report['name']}", license_name, direction)
    yield ", ".join(filter(None, facts))
    yield describe_line(report["read"])
    if settings := ", ".join(
        f"{name}={setting_text(value)}" for name, value in report["search"].items()
    ):
        yield f"search settings of the folder, with which the bundle translates: {settings}"
    yield from (f"note: {note}" for note in report["notes"])
    if TRIMMING in report:
        yield from trimming_lines(report[TRIMMING])
    if "comparison" in report:
        yield from _comparison_lines(report["comparison"])
    yield f"bundle: {report['bundle']}"


def _comparison_lines(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a result of `compare_with_library`."""
    quoted = [
        json.dumps(shorten(comparison[name]), ensure_ascii=False)
        for name in ("source", "translation")
    ]
    yield f"example from the {comparison['source_from']}: {' → '.join(quoted)}"
    if comparison["agrees"] is None:
        library = comparison["library"] or "a library"
        yield f"not compared with {library}: {comparison['reason']}"
        return
    texts = comparison["texts"]
    largest = comparison["largest_score_difference"]
    scores = "" if largest is None else f", scores at most {largest:.1g} apart"
    yield (
        f"compared with {comparison['library']}: the same tokens for "
        f"{comparison['equal_tokens']} of {texts} texts, the same translations for "
        f"{comparison['equal_translations']} of {texts}{scores}"
    )
    for name, value in comparison.get("first_difference", {}).items():
        yield f"  {name.replace('_', ' ')}: {json.dumps(value, ensure_ascii=False)}"
