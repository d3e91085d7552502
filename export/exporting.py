"""Export a model: write its files, and move them to their path if they agree with the model."""

import contextlib
import errno
import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfk_transformer import datasets
from tfk_transformer.atomic_write import atomic_write, lock
from tfk_transformer.config.words import nearest
from tfk_transformer.data.shortlist import learn_shortlist, shortlist_metadata
from tfk_transformer.export import file_names, library_files
from tfk_transformer.export.expected_results import LARGE, ExpectedLabels, ExpectedResults
from tfk_transformer.export.formats import (
    CLASSIFIER_FORMATS,
    DEFAULT_TRANSLATOR_FORMATS,
    INT8_FORMATS,
    OWN_LAYER_FORMATS,
    SHORTLIST_FORMATS,
    TRANSLATOR_FORMATS,
    WEB_SOURCES,
    check_formats,
    check_out,
    check_own_layers,
    check_packages,
    check_shortlist,
    keras_formats,
    load_writer,
)
from tfk_transformer.export.parity import Figures, Int8Limits, ParityError
from tfk_transformer.export.runtime.sessions import check_int8_version
from tfk_transformer.export.to_web import web_files
from tfk_transformer.export.to_web.npm_packages import find_packages
from tfk_transformer.importing.marian_files.shortlist import read_marian_shortlist
from tfk_transformer.models.reproduction import difference_from
from tfk_transformer.pipelines.bundle import write_json
from tfk_transformer.pipelines.licenses import warn_of_license
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.calibration import calibration_metadata

LOG = logging.getLogger(__name__)


def export(
    fitted: Translator | TextClassifier,
    out: str | os.PathLike[str],
    formats: Sequence[str] | None = None,
    node_modules: str | os.PathLike[str] | None = None,
    shortlist: str | None = None,
    calibrate: str | None = None,
    int8_regret: float = 0.01,
    int8_same: float = 0.0,
) -> Figures:
    """Write a translator or a classifier as files that run without this package.

    The formats of a translator:

    - "saved_model": the folder `saved_model/`.
    - "onnx": `generate.onnx` (ids), `translate.onnx` (text) and `score.onnx` (pairs of ids).
    - "onnx_steps": `tokenizer.onnx`, `encoder.onnx` and `decoder_step.onnx`, for streaming and for
      hosts that run the decoding loop themselves.
    - "onnx_int8": `generate.int8.onnx` and `translate.int8.onnx`, with 8-bit weights.
    - "ctranslate2": the folder `ctranslate2/`, which `ctranslate2.Translator` loads.
    - "huggingface": the folder `huggingface/` in the layout of MarianMT, which transformers loads.
    - "web": the folder `web/`, with a page that translates in the browser and a program for Node.
    - "web_int8": the folder `web_int8/`, the same with 8-bit weights.

    The formats of a classifier are "saved_model", and "onnx": `probabilities.onnx` (ids) and
    `classify.onnx` (text).

    Every file is run on at least 100 probe sentences, and a format is written only if all ids or
    labels equal the Keras model's. There are two exceptions: int8 translations must only be as good
    as the model's, within `int8_regret`, and 1 % of CTranslate2's translations may differ. A model
    that computes in half precision is exported and compared in float32.

    Args:
        fitted: the translator or classifier to export.
        out: folder to write; it must not exist.
        formats: names of formats. None: "saved_model", "onnx" and "onnx_steps" for a translator,
            and all formats of a classifier.
        node_modules: the folder with the npm packages onnxruntime-web and sentencepiece-js, for the
            formats "web" and "web_int8". Default: `node_modules` in the working directory, or
            `scripts/node_modules` in a clone.
        shortlist: text pairs, as `datasets.load` reads them, from which the export learns the
            tokens that each source token may be translated to; or the path of a binary shortlist of
            Marian, with its SentencePiece models in the same folder. The files then compute only
            the candidates of each text. This is faster, and translations may differ from
            translations with the whole vocabulary (docs/exports.md). None: the translator's own
            shortlist if it has one, otherwise all tokens. A shortlist changes the default of
            `formats` to "onnx". It also works with "onnx_int8", "ctranslate2", "web" and
            "web_int8".
        calibrate: text pairs, as `datasets.load` reads them, for `fitted.calibrate`, which reads
            their validation split. Translations of `fitted` and of the files then have a
            confidence. None: the calibration that `fitted` has, if any.
        int8_regret: the largest regret of 8-bit translations of the translator's probes: how much
            lower their score under the model is than the score of the model's own translations, as
            a log-probability per token of these, on average.
        int8_same: the smallest share, 0 to 1, of 8-bit translations that equal the model's. Above
            0, it suits tasks in which every text has one answer.

    Returns:
        The parity figures, which are also in `parity.json` and in the metadata of the ONNX files.

    Raises:
        ValueError: if `fitted` is neither a translator nor a classifier, a format is unknown or
            does not support the model's options, the folder exists or cannot be written, another
            run is writing it, an npm package is missing, the text pairs cannot be read, 8-bit files
            of a translator without probes are requested, or the disk is full.
        ImportError: if CTranslate2 is not installed and "ctranslate2" is requested, or TensorFlow
            Text is not installed and "saved_model" is requested.
        ParityError: if the results of a format differ from the model's. The other formats are
            written; then `figures` of the error are those of `parity.json`.
    """
    if not (int8_regret >= 0 and 0 <= int8_same <= 1):
        raise ValueError(
            "int8_regret and int8_same: expected a number from 0, and one from 0 to 1, got "
            f"{int8_regret} and {int8_same}."
        )
    if isinstance(fitted, Translator):
        warn_of_license(fitted.origin)
    with lock(out):
        check_out(out)
        requested, traced = _check(fitted, formats, shortlist, calibrate)
        if isinstance(fitted, TextClassifier):
            return _write(fitted.in_float32(), Path(out), requested, traced)
        packages = None
        if set(requested) & set(WEB_SOURCES):
            web_files.check_web(fitted)
            packages = find_packages(node_modules)
        if calibrate is not None:
            LOG.info("calibrate the confidence with %s", calibrate)
            source, report = datasets.load(calibrate), datasets.Report()
            fitted.calibrate(source.pairs("validation", report))
            for line in filter(None, [source.note, *report.lines()]):
                LOG.info(line)
        translator = fitted.in_float32()
        if shortlist is not None:
            translator = with_shortlist(translator, shortlist)
        limits = Int8Limits(int8_regret, int8_same)
        return _write(translator, Path(out), requested, traced, packages, limits)


def _check(
    fitted: Translator | TextClassifier,
    formats: Sequence[str] | None,
    shortlist: str | None,
    calibrate: str | None,
) -> tuple[Sequence[str], bool]:
    """Refuse what cannot be exported; return the formats, and whether layers must be traced."""
    if not isinstance(fitted, (Translator, TextClassifier)):
        raise ValueError(
            "fitted: expected a Translator or a TextClassifier, got "
            f"{type(fitted).__name__}; open a bundle with tfk_transformer.load, or wrap a model as "
            "Translator(model)."
        )
    is_classifier = isinstance(fitted, TextClassifier)
    check_formats(formats, CLASSIFIER_FORMATS if is_classifier else TRANSLATOR_FORMATS)
    requested = formats or (CLASSIFIER_FORMATS if is_classifier else DEFAULT_TRANSLATOR_FORMATS)
    difference = difference_from(fitted.model)
    if difference is not None:
        check_own_layers(requested, difference)
    if isinstance(fitted, Translator):
        library_files.check_counterparts(fitted, requested)
    if shortlist is not None or getattr(fitted, "shortlist", None) is not None:
        check_shortlist(formats, fitted.model.config.architecture)
        requested = formats or SHORTLIST_FORMATS[:1]
    if calibrate is not None and is_classifier:
        raise ValueError(
            "calibrate: expected a translator, got a classifier, whose results have "
            "probabilities; leave calibrate out."
        )
    check_packages(requested)
    for name in set(requested) & set(INT8_FORMATS):
        check_int8_version(name)
        if not any(map(str.strip, fitted.probes)):
            raise ValueError(
                f"probes: expected texts like those to translate, from which {name} takes its "
                "ranges, and on which it is compared, got a model without probes; set "
                "translator.probes, or add --probes FILE."
            )
    return requested, difference is not None


def export_one(
    fitted: Translator | TextClassifier,
    filepath: str | os.PathLike[str],
    format: str = "tf_saved_model",
    verbose: bool | None = None,
) -> Figures:
    """Write one file or folder; see `SavedAsBundle.export`."""
    supported = keras_formats(is_classifier=isinstance(fitted, TextClassifier))
    if not isinstance(format, str) or format not in supported:
        raise ValueError(
            f"format: expected one of {', '.join(supported)}, got "
            f"{format!r}.{nearest(str(format), supported)}"
        )
    export_format, name = supported[format]
    path = Path(filepath)
    check_out(path, "filepath", "file" if name.endswith(".onnx") else "folder")
    with atomic_write(path) as new:
        folder = new.with_name(f"{new.name}.files")
        figures = export(fitted, folder, [export_format])
        weights = folder / file_names.external_weights(name)
        if weights.exists():
            raise ValueError(
                "format: expected a model with less than 2 GB of weights for one file, got "
                f"{weights.stat().st_size / 1e9:.1f} GB; use tfk_transformer.export(…, "
                f"formats=['{export_format}']), which writes two files."
            )
        os.replace(folder / name, new)
    if verbose:
        print(f"Saved artifact at '{filepath}'.")
    return figures


def with_shortlist(translator: Translator, pairs: str) -> Translator:
    """Return the translator with a shortlist of Marian, or learned from pairs' first split."""
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    if Path(pairs).is_file():
        LOG.info("read the shortlist %s", pairs)
        shortlist = read_marian_shortlist(Path(pairs), *tokenizers)
    else:
        LOG.info("learn the shortlist from %s", pairs)
        data = datasets.load(pairs)
        shortlist = learn_shortlist(data.pairs(data.splits[0]), *tokenizers)
    return translator.with_shortlist(shortlist)


def _write(
    fitted: Translator | TextClassifier,
    out: Path,
    formats: Sequence[str],
    traced: bool,
    npm_packages: Path | None = None,
    limits: Int8Limits | None = None,
) -> Figures:
    """Write the formats that agree into a new folder; see `export`."""
    with _exact_float32(), _pause_gc(fitted), _new_folder(out) as folder:
        LOG.info("run the Keras model on the probe sentences")
        if isinstance(fitted, TextClassifier):
            expected: ExpectedLabels | ExpectedResults = ExpectedLabels(fitted, traced)
        else:
            expected = ExpectedResults(fitted, traced, limits)
        written, failed = _write_formats(fitted, folder, formats, expected, npm_packages)
        reasons = "; ".join(dict.fromkeys(each["reason"] for each in failed.values()))
        if not written:
            raise ParityError(f"{reasons}; nothing was written.")
        figures = {"sentences": len(expected.texts), **written}
        # 8-bit files and the folders for other libraries are compared differently, and have
        # separate figures.
        if set(written) & set(OWN_LAYER_FORMATS):
            figures |= expected.agreed
        if isinstance(fitted, Translator):
            figures |= shortlist_metadata(fitted.shortlist)
            figures |= calibration_metadata(fitted.calibration)
        if failed:
            figures["failed"] = failed
        write_json(folder / file_names.PARITY_FILE, figures)
    if failed:
        raise ParityError(f"{reasons}; {out} has the other formats: {', '.join(written)}.", figures)
    return figures


def _write_formats(
    fitted: Translator | TextClassifier,
    folder: Path,
    formats: Sequence[str],
    expected: ExpectedResults | ExpectedLabels,
    npm_packages: Path | None,
) -> tuple[dict[str, Figures], dict[str, Figures]]:
    """Write the requested formats; return the figures of those that agree, and of the others.

    Web folders have copies of ONNX files, which stand in a temporary folder if the export does not
    have them.
    """
    is_classifier = isinstance(fitted, TextClassifier)
    sources = {
        name: (WEB_SOURCES[name], web_files.SCORING) for name in WEB_SOURCES if name in formats
    }
    needed = set(formats).union(*sources.values()) - set(sources)
    selected = [name for name in TRANSLATOR_FORMATS if name in needed]
    written: dict[str, Figures] = {}
    failed: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        folders = {name: folder if name in formats else Path(scratch) for name in selected}
        for number, name in enumerate(selected, 1):
            if fitted.model.count_params() > LARGE:
                # Graphs are in reference cycles. Without a collection, the graphs of the previous
                # format would keep their copies of the weights in memory.
                gc.collect()
            LOG.info("write %s (format %d of %d)", name, number, len(selected))
            writer = load_writer(name, is_classifier)
            with _remove_if_different(folders[name], name, failed):
                written[name] = writer(fitted, folders[name], expected)
        if npm_packages and isinstance(expected, ExpectedResults):
            for name, onnx in sources.items():
                with _remove_if_different(folder, name, failed):
                    for source in onnx:
                        if source in failed:
                            raise ParityError(failed[source]["reason"])
                    written[name] = web_files.write_web(
                        expected, folder, name, npm_packages, folders, written[onnx[0]]
                    )
    for figures in (written, failed):
        for name in figures.keys() - set(formats):
            del figures[name]
    return written, failed


@contextlib.contextmanager
def _remove_if_different(folder: Path, name: str, failed: dict[str, Figures]) -> Iterator[None]:
    """Remove what the block wrote into a folder if the results of this format differ."""
    before = set(folder.iterdir())
    try:
        yield
        return
    except ParityError as error:
        LOG.info("leave out %s: %s", name, error)
        failed[name] = {"reason": str(error), **error.figures}
    gc.collect()  # closes the files: Windows does not remove open ones
    for path in set(folder.iterdir()) - before:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def _pause_gc(fitted: Translator | TextClassifier) -> Iterator[None]:
    """Disable the garbage collector in this block, if the model's weights are small."""
    # Tracing creates hundreds of thousands of objects that stay alive and are visited each time.
    was_enabled = gc.isenabled()
    if fitted.model.count_params() <= LARGE:
        gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder that is moved to `out` if the block succeeds."""
    import tensorflow as tf

    try:
        with atomic_write(out) as folder:
            folder.mkdir()
            yield folder
    except (OSError, tf.errors.OpError) as error:
        if os.strerror(errno.ENOSPC) not in str(error):  # TensorFlow's errors have no errno
            raise
        raise ValueError(
            f"out: no space left on the disk for {out}; nothing was written. Free some "
            "space, and export again."
        ) from None


@contextlib.contextmanager
def _exact_float32() -> Iterator[None]:
    """Multiply in full float32 in this block."""
    import tensorflow as tf

    # On GPUs, TensorFlow rounds factors to 10 bits by default, and ONNX files would seem to differ.
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
