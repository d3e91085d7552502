"""The writers of SavedModels and ONNX files, which `formats.load_writer` finds by their names.

Each writes files of a model into a folder, compares them with its expected results, and returns the
parity figures.
"""

import functools
import json
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx_ir as ir

from tfk_transformer.config.search_settings import setting_arrays, setting_rules
from tfk_transformer.data.shortlist import shortlist_metadata
from tfk_transformer.export import file_names, parity
from tfk_transformer.export.expected_results import (
    NO_PREFIX,
    PROBE_BATCH_SIZE,
    ExpectedLabels,
    ExpectedResults,
    Generate,
    Settings,
    Translate,
)
from tfk_transformer.export.parity import Figures, Searched
from tfk_transformer.export.runtime.onnx_runtime import (
    OnnxClassifier,
    OnnxScorer,
    OnnxStreamer,
    OnnxTranslator,
)
from tfk_transformer.export.runtime.saved_model_runtime import (
    SavedModelClassifier,
    SavedModelTranslator,
)
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.to_onnx import onnx_models
from tfk_transformer.export.to_onnx.calibration import observe_rows
from tfk_transformer.export.to_onnx.layer_operators.weight_rounding import WeightRounding
from tfk_transformer.export.to_onnx.onnx_file import OnnxFiles, describe, model_card
from tfk_transformer.export.to_saved_model.writer import write_saved_model, write_warm_up
from tfk_transformer.inference.signatures import CLASSIFIER_SAVED_MODEL, SAVED_MODEL, TOKENIZE
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.runtime_environment import usable_processors
from tfk_transformer.search.decoder_step import step_functions
from tfk_transformer.search.signature_functions import signature_function
from tfk_transformer.text.calibration import calibration_metadata

# Sets of weights that stay in float32 in int8 files. The export uses the first set with which the
# translations agree with the model's.
FLOAT_LAYERS = ((), ("output/",), ("output/", "feed_forward/outer"), ("output/", "feed_forward"))


def export_saved_model(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    """Write and compare the SavedModel of a translator."""
    path = folder / file_names.SAVED_MODEL_FOLDER
    pieces = translator.target_tokenizer.pieces()
    tokenize = signature_function(translator.functions, TOKENIZE)
    write_saved_model(
        translator,
        expected.functions,
        path,
        more={"tokenize": tokenize, **step_functions(translator.model)},
        pieces=[piece.encode("utf-8", "surrogateescape") for piece in pieces],
        search=json.dumps(translator.runtime.rules),
        source_tokenizer=translator.source_tokenizer.model,
        target_tokenizer=translator.target_tokenizer.model,
        confidence=translator.calibration and json.dumps(translator.calibration._asdict()),
    )
    write_warm_up(path, SAVED_MODEL, expected.short_texts)
    loaded = SavedModelTranslator(path)
    figures = expected.check(
        "SavedModel",
        lambda: functools.partial(loaded.translate, split_sentences=False),
        lambda: lambda ids, prefix_ids, settings: loaded.generate(ids, prefix_ids, **settings),
        lambda: loaded.runtime,
    )
    expected.check_steps("SavedModel", loaded.runtime)
    return figures


def export_classifier_saved_model(
    classifier: TextClassifier, folder: Path, expected: ExpectedLabels
) -> Figures:
    """Write and compare the SavedModel of a classifier."""
    path = folder / file_names.SAVED_MODEL_FOLDER
    write_saved_model(
        classifier, classifier.functions, path, CLASSIFIER_SAVED_MODEL, labels=classifier.labels
    )
    write_warm_up(path, CLASSIFIER_SAVED_MODEL, expected.texts)
    return expected.check("SavedModel", SavedModelClassifier(path).runtime)


def export_onnx(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    """Write and compare the ONNX files that translate and score."""
    models = {
        **_search_models(translator, expected.traced),
        file_names.SCORE_FILE: onnx_models.score_graph(translator, expected.traced),
    }
    files = _write_onnx(models, folder, translator)
    models.clear()
    expected.collect_garbage()
    # None of the files is open when the metadata is added: Windows does not truncate a file that
    # is mapped.
    figures = expected.check(
        "ONNX",
        lambda: _translating(folder / file_names.TRANSLATE_FILE),
        lambda: _generating(folder / file_names.GENERATE_FILE),
        lambda: OnnxScorer(folder / file_names.SCORE_FILE).runtime,
    )
    files.add_metadata(parity={**expected.agreed, **figures})
    return figures


def export_classifier_onnx(
    classifier: TextClassifier, folder: Path, expected: ExpectedLabels
) -> Figures:
    """Write and compare the ONNX files of a classifier."""
    probabilities = onnx_models.probabilities_graph(classifier, expected.traced)
    classify = onnx_models.classify_graph(probabilities, classifier)
    models = {file_names.PROBABILITIES_FILE: probabilities, file_names.CLASSIFY_FILE: classify}
    files = _write_onnx(models, folder, classifier)
    figures = expected.check("ONNX", OnnxClassifier(folder / file_names.CLASSIFY_FILE).runtime)
    files.add_metadata(parity={**expected.agreed, **figures})
    return figures


def export_onnx_steps(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    """Write and compare the ONNX files of single decoding steps."""
    names = {"encode": file_names.ENCODER_FILE, "decoder_step": file_names.DECODER_STEP_FILE}
    graphs = onnx_models.step_graphs(translator, expected.traced)
    models = {names[name]: model for name, model in graphs.items()}
    models[file_names.TOKENIZER_FILE] = onnx_models.tokenizer_graph(translator.source_tokenizer)
    files = _write_onnx(models, folder, translator, pieces=translator.target_tokenizer.pieces())
    expected.check_steps("ONNX steps", OnnxStreamer(folder).runtime)
    files.add_metadata(parity={**expected.agreed, "settings": [expected.greedy_settings]})
    return {"ids": "equal"}


def export_onnx_int8(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    """Write and check the ONNX files with 8-bit weights."""
    observed = observe_rows(translator.model, expected.ids, expected.best)
    expected.collect_garbage()
    rows = expected.int8_rows
    errors: list[parity.ParityError] = []
    for float32_names in FLOAT_LAYERS:
        models = _search_models(translator, rounding=WeightRounding(observed, float32_names))
        kept_float32 = list(float32_names)
        files = _write_onnx(models, folder, translator, profile="int8", kept_float32=kept_float32)
        models.clear()
        expected.collect_garbage()
        # Nothing is kept open: no file may be open when the metadata is added.
        generate = _generating(folder / file_names.GENERATE_INT8_FILE)
        ids, _ = generate(expected.ids[rows], NO_PREFIX, expected.beam_settings)
        del generate
        figures = expected.int8_figures(rows, ids[:, 0]) | {"kept_float32": kept_float32}
        if errors:
            figures["smaller_file"] = errors[0].figures  # of the file in which all weights are int8
        if error := expected.int8_limits.error("onnx_int8", figures):
            errors.append(error)
            continue
        # The file over texts has the same graph between its tokenizers.
        translations = _translating(folder / file_names.TRANSLATE_INT8_FILE)(
            [expected.texts[row] for row in rows], **expected.beam_settings
        )
        texts = translator.target_tokenizer.decode(ids[:, 0].tolist())
        same = [each.text == text for each, text in zip(translations, texts, strict=True)]
        parity.check_share("onnx_int8", "texts", same, 0.0)
        files.add_metadata(parity=figures)
        return figures
    raise min(errors, key=lambda error: error.figures["regret_per_token"])


def _search_models(
    translator: Translator, traced: bool = False, rounding: WeightRounding | None = None
) -> dict[str, ir.Model]:
    """Return the models over ids and over texts by file name."""
    generate = onnx_models.generate_graph(translator, traced, rounding)
    translate = onnx_models.translate_graph(generate, translator)
    if rounding:
        return {file_names.GENERATE_INT8_FILE: generate, file_names.TRANSLATE_INT8_FILE: translate}
    return {file_names.GENERATE_FILE: generate, file_names.TRANSLATE_FILE: translate}


def _write_onnx(
    models: Mapping[str, ir.Model],
    folder: Path,
    fitted: Translator | TextClassifier,
    **metadata: object,
) -> OnnxFiles:
    """Write ONNX models by file name, with their model card and the metadata of the model."""
    describe(models.values(), model_card(fitted, metadata.get("profile") == "int8"))
    if isinstance(fitted, TextClassifier):
        of_model: dict[str, object] = {"labels": fitted.labels}
    else:
        of_model = {
            "search": fitted.runtime.rules,
            "sentences_per_text": fitted.sentences_per_text,
            **shortlist_metadata(fitted.shortlist),
            **calibration_metadata(fitted.calibration),
        }
    return OnnxFiles(models, folder, fitted.model.config, {**of_model, **metadata})


def _translating(path: Path) -> Translate:
    translate = OnnxTranslator(path).translate
    return functools.partial(translate, batch_size=PROBE_BATCH_SIZE, split_sentences=False)


def _generating(path: Path) -> Generate:
    """Return a function that translates ids with an ONNX file, as concurrently as `OnnxRuntime`."""
    session = open_session(path, threads=1, arena=False)
    rules = setting_rules()

    def run(ids: np.ndarray, prefix_ids: np.ndarray, settings: Settings) -> Searched:
        prefixes = np.broadcast_to(prefix_ids, (len(ids), prefix_ids.shape[1]))
        scalars = setting_arrays(settings, rules)
        batches = np.array_split(np.arange(len(ids)), math.ceil(len(ids) / PROBE_BATCH_SIZE))
        inputs = [
            {"source_ids": ids[rows], "prefix_ids": prefixes[rows], **scalars} for rows in batches
        ]
        search = functools.partial(session.run, ["ids", "scores"])
        with ThreadPoolExecutor(usable_processors()) as pool:
            translations, scores = zip(*pool.map(search, inputs), strict=True)
        return np.concatenate(parity.pad_to_longest(translations)), np.concatenate(scores)

    return run
