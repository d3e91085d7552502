"""Write the files of a translator, and compare their translations with the Keras model's."""

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
    PROBE_BATCH_SIZE,
    ExpectedResults,
    Generate,
    Settings,
    Translate,
)
from tfk_transformer.export.parity import Figures, Searched
from tfk_transformer.export.runtime.onnx_readers import OnnxScorer, OnnxStreamer, OnnxTranslator
from tfk_transformer.export.runtime.saved_model_readers import SavedModelTranslator
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.to_onnx import onnx_models
from tfk_transformer.export.to_onnx.calibration import observe_rows
from tfk_transformer.export.to_onnx.layer_operators.layer_nodes import (
    Profile,
    int8_profile,
)
from tfk_transformer.export.to_onnx.model_card import describe, model_card
from tfk_transformer.export.to_onnx.onnx_file import OnnxFiles
from tfk_transformer.export.to_saved_model.shared_functions import without_graph_optimizer
from tfk_transformer.export.to_saved_model.warm_up import write_warm_up
from tfk_transformer.export.to_saved_model.writer import write_saved_model
from tfk_transformer.inference.signatures import SAVED_MODEL, TOKENIZE
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.runtime_environment import usable_processors
from tfk_transformer.search.decoder_step import step_functions
from tfk_transformer.search.signature_functions import signature_function
from tfk_transformer.text.calibration import calibration_metadata

# Sets of weights that stay in float32 in int8 files. The export uses the first set with which the
# translations agree with the model's.
FLOAT_LAYERS = ((), ("output/",), ("output/", "feed_forward/outer"), ("output/", "feed_forward"))


def export_saved_model(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    """Write and compare the SavedModel."""
    path = folder / file_names.SAVED_MODEL_FOLDER
    pieces = [
        piece.encode("utf-8", "surrogateescape") for piece in translator.target_tokenizer.pieces()
    ]
    write_saved_model(
        translator,
        expected.functions,
        path,
        more={
            "tokenize": signature_function(translator.functions, TOKENIZE),
            **step_functions(translator.model),
        },
        pieces=pieces,
        search=json.dumps(translator.runtime.rules),
        source_tokenizer=translator.source_tokenizer.model,
        target_tokenizer=translator.target_tokenizer.model,
        confidence=translator.calibration and json.dumps(translator.calibration._asdict()),
    )
    write_warm_up(path, SAVED_MODEL, expected.short_texts)
    loaded = SavedModelTranslator(path)

    def generate(ids: np.ndarray, prefix_ids: np.ndarray, settings: Settings) -> Searched:
        with expected.first_runs():
            return loaded.generate(ids, prefix_ids, **settings)

    translate = functools.partial(loaded.translate, split_sentences=False)
    texts = expected.check_texts("SavedModel", translate)
    ids = expected.check_ids("SavedModel", generate)
    with without_graph_optimizer():
        scores = expected.check_scores("SavedModel", loaded.runtime)
    with expected.first_runs():
        expected.check_steps("SavedModel", loaded.runtime)
    return _join_figures(texts, ids, scores)


def export_onnx(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    """Write and compare the ONNX files that translate and score."""
    models = {
        **_search_models(translator, expected.profile),
        file_names.SCORE_FILE: onnx_models.score_graph(translator, expected.profile),
    }
    files = _write(models, folder, translator)
    models.clear()
    expected.collect_garbage()
    # One file is open at a time, since each holds the weights once or twice. None is open when the
    # metadata is added: Windows does not truncate a file that is mapped.
    texts = expected.check_texts("ONNX", _translating(folder / file_names.TRANSLATE_FILE))
    expected.collect_garbage()
    ids = expected.check_ids("ONNX", _generating(folder / file_names.GENERATE_FILE))
    expected.collect_garbage()
    scores = expected.check_scores("ONNX", OnnxScorer(folder / file_names.SCORE_FILE).runtime)
    figures = _join_figures(texts, ids, scores)
    files.add_metadata(parity={**expected.agreed, **figures})
    return figures


def _join_figures(texts: float, ids: Figures, scores: Figures) -> Figures:
    """Return the figures of a file from the results of `check_texts`, `check_ids` and
    `check_scores`.
    """
    largest = max(texts, ids["largest_score_difference"])
    return {**ids, **scores, "largest_score_difference": largest}


def _write(
    models: Mapping[str, ir.Model], folder: Path, translator: Translator, **metadata: object
) -> OnnxFiles:
    describe(models.values(), model_card(translator, metadata.get("profile") == "int8"))
    return OnnxFiles(
        models,
        folder,
        translator.model.config,
        {
            "search": translator.runtime.rules,
            "sentences_per_text": translator.sentences_per_text,
            **shortlist_metadata(translator.shortlist),
            **calibration_metadata(translator.calibration),
            **metadata,
        },
    )


def _generating(path: Path) -> Generate:
    """Return a function that translates ids with an ONNX file.

    Batches run concurrently, each on one thread, as in `OnnxRuntime`.
    """
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


def _translating(path: Path) -> Translate:
    """Return a function that translates texts with an ONNX file."""
    translate = OnnxTranslator(path).translate
    return functools.partial(translate, batch_size=PROBE_BATCH_SIZE, split_sentences=False)


def export_onnx_int8(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    """Write and check the ONNX files with 8-bit weights.

    Weights of the first set of `FLOAT_LAYERS` with which the translations agree with the model's
    stay in float32.
    """
    rows = observe_rows(translator.model, expected.ids, expected.best)
    expected.collect_garbage()
    best_bleu = 0.0
    for float32_names in FLOAT_LAYERS:
        models = _search_models(translator, int8_profile(rows, float32_names), "int8")
        kept_float32 = list(float32_names)
        files = _write(models, folder, translator, profile="int8", kept_float32=kept_float32)
        models.clear()
        expected.collect_garbage()
        _, translate_file = _search_names("int8")
        translations = _translating(folder / translate_file)(
            expected.beam_texts, **expected.searches[1].settings
        )
        texts = [translation.text for translation in translations]
        bleu = parity.agreement(expected.beam_translations, texts)
        best_bleu = max(best_bleu, bleu)
        if bleu >= parity.AGREEMENT:
            figures: Figures = {
                "sentences": len(texts),
                "bleu_with_the_model": bleu,
                "kept_float32": kept_float32,
            }
            files.add_metadata(parity=figures)
            return figures
    raise parity.ParityError(
        f"ONNX int8: expected a BLEU over characters of {parity.AGREEMENT:g} with the model's own "
        f"translations of {len(expected.beam_texts)} probe sentences, got at most "
        f"{best_bleu:.1f}, even with some weights in float32; export without the format "
        "onnx_int8. Nothing was written."
    )


def _search_models(
    translator: Translator, profile: Profile | None, suffix: str = ""
) -> dict[str, ir.Model]:
    """Return the models over ids and over texts by file name."""
    generate = onnx_models.generate_graph(translator, profile)
    translate = onnx_models.translate_graph(generate, translator)
    return dict(zip(_search_names(suffix), (generate, translate), strict=True))


def _search_names(suffix: str) -> list[str]:
    """Return the names of the files over ids and over texts of a profile.

    The suffix of float32 weights is "".
    """
    names = [file_names.GENERATE_FILE, file_names.TRANSLATE_FILE]
    return [file_names.with_profile(name, suffix) for name in names] if suffix else names


def export_onnx_steps(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    """Write and compare the ONNX files of single decoding steps."""
    names = {"encode": file_names.ENCODER_FILE, "decoder_step": file_names.DECODER_STEP_FILE}
    graphs = onnx_models.step_graphs(translator, expected.profile)
    models = {names[name]: model for name, model in graphs.items()}
    models[file_names.TOKENIZER_FILE] = onnx_models.tokenizer_graph(translator.source_tokenizer)
    files = _write(models, folder, translator, pieces=translator.target_tokenizer.pieces())
    expected.check_steps("ONNX steps", OnnxStreamer(folder).runtime)
    files.add_metadata(parity={**expected.agreed, "settings": [expected.searches[0].settings]})
    return {"ids": "equal"}
