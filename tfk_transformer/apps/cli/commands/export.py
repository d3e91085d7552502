"""`tfk-transformer export`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer import datasets
from tfk_transformer.apps.cli import arguments
from tfk_transformer.apps.cli.arguments import DEFAULT_BEAM, OUTPUT, option
from tfk_transformer.apps.cli.terminal import command_line, new_folder, plain_warnings, print_report
from tfk_transformer.atomic_write import check_new
from tfk_transformer.config.small_files import read_small_text
from tfk_transformer.config.words import unknown_names
from tfk_transformer.export import file_names, formats
from tfk_transformer.pipelines.licenses import LicenseWarning

SERVING = "TensorFlow Serving"  # title of a group of options in the help
EXPORT_EXAMPLES = """
tfk-transformer export numbers --out numbers-files
# Only the ONNX files, with 32-bit and with 8-bit weights.
tfk-transformer export numbers -f onnx -f onnx_int8 --out small
# Faster: search only the tokens that these pairs suggest for a text.
tfk-transformer export numbers --shortlist numbers:en-de --out faster
# Translations have a confidence, fitted to the validation split.
tfk-transformer export numbers --calibrate numbers:en-de --out sure
# A page that translates in the browser.
tfk-transformer export numbers -f web --out numbers-web
# Also write the SavedModel to models/numbers/1 for TensorFlow Serving.
tfk-transformer export numbers --out files --serving models --name numbers
"""
FORMAT = option(
    OUTPUT,
    "--format",
    "-f",
    metavar="FORMAT",
    help=f"{', '.join(formats.TRANSLATOR_FORMATS)}. May be repeated. Default: the first three; "
    "for a classifier, all of its formats. onnx_steps is for streaming; ctranslate2 and "
    "huggingface (MarianMT, M2M100) are folders for these libraries; web and web_int8 are pages "
    "that translate in the browser.",
    autocompletion=lambda: list(formats.TRANSLATOR_FORMATS),
)
PURPOSES = {
    file_names.TRANSLATE_FILE: "text to text: onnxruntime with onnxruntime-extensions, "
    "`tfk-transformer translate`",
    file_names.GENERATE_FILE: "token ids to token ids: every onnxruntime, also in browsers and "
    "Node",
    file_names.SCORE_FILE: "log-probabilities of given translations: `tfk-transformer score`",
    file_names.TOKENIZER_FILE: "text to token ids, for streaming",
    file_names.ENCODER_FILE: "encoder, for streaming",
    file_names.DECODER_STEP_FILE: "one decoding step, for streaming",
    file_names.CLASSIFY_FILE: "text to label: onnxruntime with onnxruntime-extensions, "
    "`tfk-transformer classify`",
    file_names.PROBABILITIES_FILE: "token ids to probabilities: every onnxruntime",
    file_names.SAVED_MODEL_FOLDER: "text to text: TensorFlow, TensorFlow Serving, "
    "`tfk-transformer translate`",
    file_names.CTRANSLATE2_FOLDER: "folder for ctranslate2.Translator",
    file_names.HUGGINGFACE_FOLDER: "folder for transformers",
    file_names.WEB_FOLDER: "page that translates in the browser; also for Node: `npx`",
    file_names.WEB_INT8_FOLDER: "the same page; smaller and faster, with 8-bit weights",
    file_names.PARITY_FILE: "how closely the files agree with the Keras model",
}
RUNNABLE = (  # files for `translate` or `classify`, in order of preference
    file_names.TRANSLATE_FILE,
    file_names.TRANSLATE_INT8_FILE,
    file_names.CLASSIFY_FILE,
    file_names.SAVED_MODEL_FOLDER,
)


def export_command(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE")],
    out: Annotated[Path, option(OUTPUT, "--out", "-o", metavar="DIR")],
    format: Annotated[list[str] | None, FORMAT] = None,
    node_modules: Annotated[Path | None, option(OUTPUT, metavar="DIR")] = None,
    shortlist: Annotated[str | None, option(OUTPUT, metavar="SPEC")] = None,
    calibrate: Annotated[str | None, option(OUTPUT, metavar="SPEC")] = None,
    probes: Annotated[Path | None, option(OUTPUT, metavar="FILE")] = None,
    int8_regret: Annotated[float, option(OUTPUT, metavar="X")] = 0.01,
    int8_same: Annotated[float, option(OUTPUT, metavar="SHARE")] = 0.0,
    serving: Annotated[Path | None, option(SERVING, metavar="MODELS")] = None,
    name: Annotated[str | None, option(SERVING, metavar="NAME")] = None,
    version: Annotated[int | None, option(SERVING, metavar="N")] = None,
    mounted: Annotated[str | None, option(SERVING, metavar="PATH")] = None,
    json_output: arguments.Json = False,
    quiet: arguments.Quiet = False,
    verbose: arguments.Verbose = False,
) -> None:
    """Export a bundle to SavedModel, ONNX and other formats. A format is written only if its files
    agree with the Keras model. Exit status 1 if one does not; the others are written.

    Args:
        bundle: The folder that `train` or `import` wrote.
        out: The folder for the exported files. It must not exist.
        node_modules: The folder with the npm packages that web and web_int8 copy. Default:
            node_modules in the working directory, or in scripts/ of a clone.
        shortlist: Text pairs (docs/data.md), such as the training data, or a shortlist of the
            imported model, such as lex.50.50.deen.s2t.bin. The exported files choose only among the
            tokens that it suggests for each source token, which is faster but changes some
            translations. Supported by onnx (the default with this option), onnx_int8, ctranslate2
            (vmap.txt), web and web_int8.
        calibrate: Text pairs (docs/data.md) whose validation split the model has not seen in
            training. Translations then have a confidence from 0 to 1, in `translate --json`, the
            server and the page (docs/running.md).
        probes: A UTF-8 file of source texts, one per line, instead of the bundle's. The exported
            files are compared with the model on these texts, and 8-bit files need some.
        int8_regret: The largest mean loss of score, per token, of 8-bit translations of the probes
            (docs/exports.md).
        int8_same: The smallest share, 0 to 1, of 8-bit translations that equal the model's, for
            tasks in which every text has one answer.
        serving: The model folder of TensorFlow Serving, created if it does not exist. The
            SavedModel is also written to MODELS/NAME/VERSION and registered in
            MODELS/models.config.
        name: The model's name in TensorFlow Serving, which is part of the URL.
        version: The version number. Default: one more than the newest.
        mounted: The path of MODELS on the server. Default: /models.
    """
    arguments.check_bundle(bundle)
    arguments.check_input_files(probes=probes)
    if unknown := sorted(set(format or ()) - set(formats.TRANSLATOR_FORMATS)):
        raise ValueError(unknown_names("formats", unknown, formats.TRANSLATOR_FORMATS))
    # All arguments are checked before TensorFlow is loaded, which takes seconds.
    from tfk_transformer.export.to_web.npm_packages import find_packages

    formats.check_packages(format or ())
    if shortlist is not None:
        formats.check_shortlist(format, "encoder_decoder")  # the family of the model is read later
        if not Path(shortlist).is_file():
            datasets.load(shortlist)
    if calibrate is not None:
        datasets.load(calibrate).pairs("validation")
    if set(format or ()) & set(formats.WEB_SOURCES):
        find_packages(node_modules)
    check_new(out)
    _check_serving(serving, name, version, mounted, format, shortlist)
    with plain_warnings(LicenseWarning), new_folder(out, quiet, verbose) as begin:
        from tfk_transformer import ParityError
        from tfk_transformer.export.exporting import export
        from tfk_transformer.export.runtime.opening import open_bundle

        begin(f"open {bundle}")
        fitted = open_bundle(bundle)
        if probes is not None:
            fitted.probes = read_small_text(probes).splitlines()
        failure = None
        try:
            figures = export(
                fitted, out, format, node_modules, shortlist, calibrate, int8_regret, int8_same
            )
        except ParityError as error:
            if not error.figures:  # nothing was written
                raise
            failure, figures = error, error.figures
        added = None
        if serving is not None and name is not None and file_names.SAVED_MODEL_FOLDER in figures:
            from tfk_transformer.export.to_saved_model.serving import MOUNTED, write_serving

            begin(f"add the SavedModel to {serving}")
            saved_model = out / file_names.SAVED_MODEL_FOLDER
            added = write_serving(saved_model, serving, name, version, mounted or MOUNTED)
    report = {
        "out": str(out),
        "files": {path.name: _describe(path) for path in sorted(out.iterdir())},
        "parity": figures,
        "run": _run_line(out, figures, fitted.probes),
        "serving": added and str(added),
    }
    print_report(report, _lines(report), json_output)
    if failure:
        raise failure


def _describe(path: Path) -> dict[str, Any]:
    """Return the size in bytes and the purpose of a file or folder of an export."""
    size = sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
    portable = path.name.replace(".int8.onnx", ".onnx")
    if path.suffix == ".data":
        purpose = f"weights of {path.stem}; keep both in one folder"
    elif portable != path.name:
        purpose = f"{PURPOSES.get(portable, portable)}; smaller, with 8-bit weights"
    else:
        purpose = PURPOSES.get(path.name, "")
    return {"bytes": size, "purpose": purpose}


def _run_line(out: Path, figures: Mapping[str, Any], probes: Sequence[str]) -> str | None:
    """Return a command line that runs a file of an export, if there is a command for one."""
    name = next((name for name in RUNNABLE if (out / name).exists()), None)
    if name is None:
        return None
    command = "classify" if "labels" in figures else "translate"
    text = next(filter(None, probes), "your text")  # an imported model may have no probes
    return command_line(["tfk-transformer", command, str(out / name), text])


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the files, how closely they agree with the Keras model, and how to run them."""
    figures, files = report["parity"], report["files"]
    yield f"{report['out']}:"
    width = max(map(len, files))
    for name, file in files.items():
        yield f"  {name:{width}}  {file['bytes'] / 1e6:6.1f} MB  {file['purpose']}".rstrip()
    if shortlist := figures.get("shortlist"):
        pairs = shortlist["learned_from_pairs"]
        yield (
            f"Shortlist: {shortlist['for_every_text']} tokens, and "
            f"{shortlist['for_a_source_token']} for each source token"
            f"{f', learned from {pairs:,} pairs' if pairs else ''}."
        )
    if calibration := figures.get("confidence"):
        yield (
            f"Confidence: fitted to {calibration['pairs']:,} translations, of which "
            f"{100 * calibration['right']:.1f} % have a chrF of at least {calibration['chrf']:g}."
        )
    for line in _agreements(figures):
        yield f"Checked: {line}."
    if report["serving"]:
        yield f"Serve it: {report['serving']}, a version for TensorFlow Serving"
    if report["run"]:
        yield f"Run it: {report['run']}"
    for page in (Path(report["out"], name) for name in formats.WEB_SOURCES if name in figures):
        yield (
            f"Open it: {command_line(['python', '-m', 'http.server', '--directory', str(page)])} "
            "--bind 127.0.0.1"
        )


def _agreements(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was compared with the Keras model, and its result."""
    if "ids" in figures:
        beam = figures["settings"][-1].get("beam_size", DEFAULT_BEAM)
        ties = max(part.get("ties", 0) for part in figures.values() if isinstance(part, dict))
        yield (
            f"the same ids as Keras on {figures['sentences']} sentences, greedy and beam "
            f"{beam}{f', except {ties} where rounding decides' if ties else ''}"
        )
    if "labels" in figures:
        yield f"the same labels as Keras on {figures['sentences']} texts"
    for name in (name for name in formats.INT8_FORMATS if name in figures):
        int8 = figures[name]
        yield (
            f"{name}: a loss of score of {int8['regret_per_token']:.2g} per token, and the Keras "
            f"model's translations of {int8['same_translations']} of {int8['sentences']} sentences"
        )
        if smaller := int8.get("smaller_file"):
            yield (
                f"{name}: some weights stay in float32, since all in 8 bits lose "
                f"{smaller['regret_per_token']:.2g} per token and give "
                f"{smaller['same_translations']} of these translations; for the smaller and faster "
                "file, set --int8-regret or --int8-same"
            )
    if engine := figures.get("ctranslate2"):
        same = ", ".join(
            f"{engine[f'same_in_{search}_search']} of {engine['sentences']} in {search} search"
            for search in ("greedy", "beam")
        )
        yield f"CTranslate2: the same translations without length penalty, {same}"
    if family := figures.get("huggingface"):
        difference = family["largest_token_score_difference"]
        yield (
            f"{family['family']}: the same log-probabilities within {difference:.1g} on "
            f"{family['sentences']} sentences"
        )
    for name in (name for name in formats.WEB_SOURCES if name in figures):
        in_node = figures[name]["in_node"]
        yield (
            f"{name}: run in Node on {in_node['sentences']} sentences"
            if in_node
            else f"{name}: not run in Node, which is not installed"
        )


def _check_serving(
    models: Path | None,
    name: str | None,
    version: int | None,
    mounted: str | None,
    chosen: list[str] | None,
    shortlist: str | None,
) -> None:
    """Refuse invalid arguments for TensorFlow Serving before the export, the longest step."""
    if models is None:
        values = {"--name": name, "--version": version, "--mounted": mounted}
        if unused := [flag for flag, value in values.items() if value is not None]:
            raise ValueError(
                f"{', '.join(unused)}: expected --serving with these options, got none; add "
                "--serving MODELS."
            )
        return
    if name is None:
        raise ValueError("--name: expected a model name with --serving, got none; add --name NAME.")
    if shortlist is not None:
        raise ValueError(
            "--serving: expected an export of a SavedModel, which cannot have a shortlist, got "
            "--shortlist; export without it."
        )
    if chosen and file_names.SAVED_MODEL_FOLDER not in chosen:
        raise ValueError(
            f"formats: expected saved_model with --serving, got {', '.join(chosen)}; add "
            "--format saved_model."
        )
    from tfk_transformer.export.to_saved_model.serving import check_serving

    check_serving(models, name, version)
