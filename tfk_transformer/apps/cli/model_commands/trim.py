"""`tfk-transformer trim`."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.apps.cli.arguments import (
    OUTPUT,
    Json,
    Quiet,
    Verbose,
    check_bundle,
    check_input_files,
    check_new_folder,
    option,
)
from tfk_transformer.apps.cli.progress import new_folder
from tfk_transformer.apps.cli.terminal import print_report
from tfk_transformer.formats.lines import LineReader, Texts

VOCABULARY = "Vocabulary"  # title of a group of options in the help
EXAMPLES = """
tfk-transformer trim nllb-de-en --keep-text train.de --keep-text train.en \\
    --vocab-size 20000 --out small-de-en
# Sides with separate vocabularies.
tfk-transformer trim de-en --keep-text train.de --keep-target-text train.en \\
    -o small-de-en
"""

KEEP_TEXT = option(
    VOCABULARY,
    metavar="FILE",
    help="A UTF-8 file of sentences, one per line: plain, .gz or .zst. The vocabulary keeps the "
    "pieces that they use, all single characters and special tokens. Repeat the option for the "
    "files of all languages.",
)
VocabSize = Annotated[
    int | None,
    option(
        VOCABULARY,
        metavar="N",
        help="The maximum number of pieces; the most frequent are kept. Default: all pieces that "
        "the sentences use.",
    ),
]


def command(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE")],
    out: Annotated[Path, option(OUTPUT, "--out", "-o", metavar="DIR")],
    keep_text: Annotated[list[Path], KEEP_TEXT],
    keep_target_text: Annotated[list[Path] | None, option(VOCABULARY, metavar="FILE")] = None,
    vocab_size: VocabSize = None,
    check_text: Annotated[list[Path] | None, option(VOCABULARY, metavar="FILE")] = None,
    json_output: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
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
    check_new_folder(out)
    texts = open_texts("keep-text", keep_text)
    other_texts = {}
    if keep_target_text:
        other_texts["target_texts"] = open_texts("keep-target-text", keep_target_text)
    if check_text:
        other_texts["check_texts"] = open_texts("check-text", check_text)
    with new_folder(out, quiet, verbose) as begin:
        from tfk_transformer.pipelines.translator import Translator
        from tfk_transformer.training.trimming.trimming import TRIMMING, trim

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
    """Return the lines of the files of a named option, plain or compressed, which are read once."""
    for file in files:
        check_input_files(**{name: file})
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
    """Yield lines that describe a trimmed vocabulary; see `origin` in `trim`."""
    sizes = {side: figures[f"{side}_vocab_size"] for side in ("source", "target")}
    if sizes["source"] == sizes["target"]:
        sizes = {"source and target": sizes["source"]}
    for side, size in sizes.items():
        yield f"{side}: {_change(size)} pieces"
    yield f"parameters: {_change(figures['parameters'])}, {_change(figures['megabytes'])} MB"
    checks = figures["check"]
    for side, check in checks.items():
        tokenizer = f" ({side})" if len(checks) > 1 else ""
        yield (
            f"check of {check['texts']:,} texts{tokenizer}: {check['same_segmentation']:.1%} are "
            f"segmented as before, {_change(check['tokens_per_text'])} tokens per text, "
            f"{_change(check['unknown_pieces'])} unknown pieces"
        )


def _change(values: Mapping[str, float]) -> str:
    return f"{values['before']:,} to {values['after']:,}"
