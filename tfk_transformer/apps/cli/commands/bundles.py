"""The commands `import`, `ensemble` and `trim`, which make bundles of other models."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.apps.cli import arguments
from tfk_transformer.apps.cli.arguments import OUTPUT, check_bundle, option
from tfk_transformer.apps.cli.terminal import new_folder, plain_warnings, print_line, print_report
from tfk_transformer.atomic_write import check_new
from tfk_transformer.config.setting_values import setting_text
from tfk_transformer.config.small_files import read_small_text
from tfk_transformer.config.words import shorten
from tfk_transformer.formats.lines import LineReader, Texts
from tfk_transformer.pipelines.licenses import LicenseWarning

MODEL, VOCABULARY = "Model", "Vocabulary"  # titles of groups of options in the help
IMPORT_EXAMPLES = """
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
ENSEMBLE_EXAMPLES = """
tfk-transformer ensemble numbers numbers-2 --out both
"""
TRIM_EXAMPLES = """
tfk-transformer trim nllb-de-en --keep-text train.de --keep-text train.en \\
    --vocab-size 20000 --out small-de-en
# Sides with separate vocabularies.
tfk-transformer trim de-en --keep-text train.de --keep-target-text train.en \\
    -o small-de-en
"""
HELP = {  # of options of `import` and `trim`
    "keep_text": "A UTF-8 file of sentences, one per line: plain, .gz or .zst. The vocabulary "
    "keeps the pieces that they use, all single characters and special tokens. Repeat the option "
    "for the files of all languages.",
    "vocab_size": "The maximum number of pieces; the most frequent are kept. Default: all pieces "
    "that the sentences use.",
}
KEEP_TEXT = option(VOCABULARY, metavar="FILE", help=HELP["keep_text"])
VocabSize = Annotated[int | None, option(VOCABULARY, metavar="N", help=HELP["vocab_size"])]


def import_command(
    model: Annotated[str, typer.Argument(metavar="MODEL")],
    out: Annotated[Path, option(OUTPUT, "--out", "-o", metavar="DIR")],
    probes: Annotated[Path | None, option(OUTPUT, metavar="FILE")] = None,
    source_language: Annotated[str | None, option(MODEL, metavar="CODE")] = None,
    target_language: Annotated[str | None, option(MODEL, metavar="CODE")] = None,
    source_text_prefix: Annotated[str | None, option(MODEL, metavar="TEXT")] = None,
    vocab: Annotated[list[Path] | None, option(MODEL, metavar="FILE")] = None,
    tokens: Annotated[str | None, option(MODEL, metavar="RULE")] = None,
    layout: Annotated[str | None, option(MODEL, metavar="NAME")] = None,
    special_id: Annotated[list[str] | None, option(MODEL, metavar="NAME=ID")] = None,
    model_option: Annotated[
        list[str] | None, option(MODEL, "--option", metavar="NAME=VALUE")
    ] = None,
    keep_text: Annotated[list[Path] | None, KEEP_TEXT] = None,
    vocab_size: VocabSize = None,
    check: Annotated[bool, option(OUTPUT, "--check")] = False,
    setting: arguments.Settings = None,
    json_output: arguments.Json = False,
    quiet: arguments.Quiet = False,
    verbose: arguments.Verbose = False,
) -> None:
    """Convert a model from another library to a bundle. No code from the model is run, and nothing
    is written unless all files of the model fit together.

    Args:
        model: A folder in Hugging Face's layout, with config.json (MarianMT as in opus-mt, M2M100,
            NLLB, mBART, Pegasus, T5, mT5, ByT5), or of CTranslate2, with model.bin; the name of
            such a model on the Hugging Face hub, such as OWNER/MODEL; an .argosmodel file of Argos
            Translate; a folder or an .npz or .bin file of Marian, such as a model of Firefox; or,
            with --layout, a file of torch.save.
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
            If the sides differ, repeat the option: source, then target. With --tokens, for a file
            of PyTorch: its tokens by id, one a line, or a JSON list.
        tokens: How texts are split into the tokens of a vocabulary that is no SentencePiece model:
            characters, words, or a regular expression whose matches are the tokens. For CTranslate2
            and PyTorch.
        layout: The names of the weights in a file of PyTorch: torch (nn.Transformer), annotated
            (The Annotated Transformer) or seq2seq (bentrevett/pytorch-seq2seq).
        special_id: With --layout: the id of pad, start, end or unknown. May be repeated. Default:
            as the vocabulary states.
        model_option: With --layout: num_heads, or an option in which the module differs from its
            layout, such as norm=pre. May be repeated.
        check: Also translate the example of the model's card, and compare tokens, translations and
            scores with transformers or CTranslate2 where these are installed. Exit status 1 if they
            differ.
    """
    arguments.check_input_files(probes=probes)
    check_new(out)
    if layout is None:
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
            tokens=tokens,
            layout=layout,
            special_ids=arguments.named_values(special_id, "--special-id", "pad=1") or None,
            options=arguments.named_values(model_option, "--option", "num_heads=8"),
            source_text_prefix=source_text_prefix,
            search=arguments.search_settings(setting, None),
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
    print_report(report, _import_lines(report), json_output)
    if comparison and comparison["agrees"] is False:
        print_line(
            f"warning: the imported model differs from {comparison['library']}. {out} was written; "
            "do not rely on it, and report this with the output above."
        )
        raise typer.Exit(1)


def _check_model(model: str) -> None:
    """Refuse a path without a model that can be imported, before TensorFlow is loaded."""
    from tfk_transformer.importing import model_paths
    from tfk_transformer.importing.hugging_face import model_folder

    path = Path(model)
    if not model_paths.is_hub_name(model):
        model_paths.check_model_path(path)
    has_other_layout = model_paths.is_ctranslate2_folder(path) or model_paths.is_marian_folder(path)
    if path.is_dir() and not has_other_layout:
        model_folder.check_model_files(path, [model_paths.CONFIG])


def _import_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Describe an imported model, the settings taken over, and a comparison."""
    from tfk_transformer.importing.checking.description import describe_line
    from tfk_transformer.training.trimming import TRIMMING

    languages = (("from", report["source_language"]), ("to", report["target_language"]))
    direction = " ".join(f"{word} {language}" for word, language in languages if language)
    license_name = f"license: {report['license'] or 'not stated'}"
    facts = (f"{report['family']}: {report['name']}", license_name, direction)
    yield ", ".join(filter(None, facts))
    yield describe_line(report["read"])
    if settings := ", ".join(
        f"{name}={setting_text(value)}" for name, value in report["search"].items()
    ):
        yield f"search settings, with which the bundle translates: {settings}"
    yield from (f"note: {note}" for note in report["notes"])
    if TRIMMING in report:
        yield from trimming_lines(report[TRIMMING])
    if "comparison" in report:
        yield from _comparison_lines(report["comparison"])
    yield f"bundle: {report['bundle']}"


def _comparison_lines(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Describe a result of `compare_with_library`."""
    texts = (shorten(comparison["source"]), shorten(comparison["translation"]))
    quoted = " → ".join(json.dumps(text, ensure_ascii=False) for text in texts)
    yield f"example from the {comparison['source_from']}: {quoted}"
    if comparison["agrees"] is None:
        library = comparison["library"] or "a library"
        yield f"not compared with {library}: {comparison['reason']}"
        return
    count = comparison["texts"]
    largest = comparison["largest_score_difference"]
    scores = "" if largest is None else f", scores at most {largest:.1g} apart"
    lacking = comparison["unknown_tokens"]
    unknown = f", {lacking} unknown tokens" if lacking else ""
    yield (
        f"compared with {comparison['library']}: the same tokens for "
        f"{comparison['equal_tokens']} of {count} texts, the same translations for "
        f"{comparison['equal_translations']} of {count}{scores}{unknown}"
    )
    for name, value in comparison.get("first_difference", {}).items():
        yield f"  {name.replace('_', ' ')}: {json.dumps(value, ensure_ascii=False)}"


def ensemble_command(
    bundles: Annotated[list[Path], typer.Argument(metavar="BUNDLE")],
    out: Annotated[Path, option(None, "--out", "-o", metavar="DIR")],
    json_output: arguments.Json = False,
    quiet: arguments.Quiet = False,
    verbose: arguments.Verbose = False,
) -> None:
    """Combine the models of several bundles into an ensemble, and write it as a bundle.

    The ensemble translates as one model: the log-probability of each next token is the mean of the
    members' log-probabilities.

    Args:
        bundles: Folders that `train` wrote, with the same tokenizers.
        out: The folder for the new bundle. It must not exist.
    """
    for bundle in bundles:
        check_bundle(bundle)
    check_new(out)
    with new_folder(out, quiet, verbose) as begin:
        from tfk_transformer.pipelines.translator import Translator

        members = []
        for bundle in bundles:
            begin(f"open {bundle}")
            members.append(Translator.load(bundle))
        begin(f"write {out}")
        Translator.ensemble(members).save(out)
    report = {"bundle": str(out), "members": [str(bundle) for bundle in bundles]}
    print_report(report, [f"bundle: {out}"], json_output)


def trim_command(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE")],
    out: Annotated[Path, option(OUTPUT, "--out", "-o", metavar="DIR")],
    keep_text: Annotated[list[Path], KEEP_TEXT],
    keep_target_text: Annotated[list[Path] | None, option(VOCABULARY, metavar="FILE")] = None,
    vocab_size: VocabSize = None,
    check_text: Annotated[list[Path] | None, option(VOCABULARY, metavar="FILE")] = None,
    json_output: arguments.Json = False,
    quiet: arguments.Quiet = False,
    verbose: arguments.Verbose = False,
) -> None:
    """Cut the vocabulary of a bundle to the pieces that texts use, for a smaller and faster model.

    A multilingual model has pieces for all of its languages. Texts whose pieces are all kept are
    read as before, with the same weights. Search settings stay.

    Args:
        bundle: A folder that `train` or `import` wrote.
        out: The folder for the new bundle. It must not exist.
        keep_target_text: Sentences of the target language. --keep-text is then of the source
            language. Useful if the sides have separate vocabularies.
        check_text: Other sentences, whose segmentation is compared before and after. Default: every
            tenth of the kept sentences, with the pieces of the others.
    """
    check_bundle(bundle)
    check_new(out)
    texts = open_texts("keep-text", keep_text)
    other_texts = {}
    if keep_target_text:
        other_texts["target_texts"] = open_texts("keep-target-text", keep_target_text)
    if check_text:
        other_texts["check_texts"] = open_texts("check-text", check_text)
    with new_folder(out, quiet, verbose) as begin:
        from tfk_transformer.pipelines.translator import Translator
        from tfk_transformer.training.trimming import TRIMMING, trim

        begin(f"open {bundle}")
        translator = Translator.load(bundle)
        begin("trim the vocabulary")
        trimmed = trim(translator, texts, **other_texts, vocab_size=vocab_size)
        begin(f"write {out}")
        trimmed.save(out)
    figures = trimmed.origin[TRIMMING]
    lines = [*trimming_lines(figures), f"bundle: {out}"]
    print_report({"bundle": str(out), TRIMMING: figures}, lines, json_output)


def open_texts(name: str, files: Sequence[Path]) -> Iterator[str]:
    """Return the lines of the files of a named option, which are read once."""
    for file in files:
        arguments.check_input_files(**{name: file})
    lines = itertools.chain.from_iterable(LineReader(file, Texts()) for file in files)

    def read() -> Iterator[str]:
        for line in lines:
            if line.problem:
                raise ValueError(f"--{name}: {line.problem}")
            yield from line.texts

    texts = read()
    first = next(filter(str.strip, texts), None)
    if first is None:
        raise ValueError(
            f"--{name}: expected sentences, one per line, got only blank lines in "
            f"{', '.join(map(str, files))}."
        )
    return itertools.chain([first], texts)


def trimming_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """Describe a trimmed vocabulary; see `origin` in `trim`."""

    def change(values: Mapping[str, float]) -> str:
        return f"{values['before']:,} to {values['after']:,}"

    sizes = {side: figures[f"{side}_vocab_size"] for side in ("source", "target")}
    if sizes["source"] == sizes["target"]:
        sizes = {"source and target": sizes["source"]}
    for side, size in sizes.items():
        yield f"{side}: {change(size)} pieces"
    yield f"parameters: {change(figures['parameters'])}, {change(figures['megabytes'])} MB"
    checks = figures["check"]
    for side, check in checks.items():
        tokenizer = f" ({side})" if len(checks) > 1 else ""
        yield (
            f"check of {check['texts']:,} texts{tokenizer}: {check['same_segmentation']:.1%} are "
            f"segmented as before, {change(check['tokens_per_text'])} tokens per text, "
            f"{change(check['unknown_pieces'])} unknown pieces"
        )
