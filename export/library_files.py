"""Write a translator's folders for other libraries, and compare them with the Keras model."""

import itertools
import string
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sentencepiece
from keras import ops
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import LANGUAGE_OPTIONS, TransformerConfig
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID, __version__
from tfk_transformer.data.shortlist import shortlist_metadata
from tfk_transformer.export import file_names, parity
from tfk_transformer.export.expected_results import NO_PREFIX, ExpectedResults, run_search
from tfk_transformer.export.parity import Figures
from tfk_transformer.export.to_libraries.counterparts import CTRANSLATE2, unsupported_options
from tfk_transformer.export.to_libraries.ctranslate2_files import (
    MIN_FLOAT16_BIAS,
    write_ctranslate2,
)
from tfk_transformer.export.to_libraries.hugging_face_files import (
    m2m100_problems,
    marian_problems,
    write_m2m100,
    write_marian,
)
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.bundle import SOURCE_TOKENIZER, TARGET_TOKENIZER, write_json
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.runtime_environment import usable_processors
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# Probes in a full pass. The logits of 8 targets of 256 tokens, with a vocabulary of 60,000, take
# 0.5 GB.
LIBRARY_BATCH_SIZE = 8
# With a length penalty of 0, CTranslate2 continues after `beam_size` hypotheses are finished.
NO_LENGTH_PENALTY = 1e-6
BEAMS = {"greedy search": 1, "beam search": 4}


def check_counterparts(translator: Translator, formats: Sequence[str]) -> None:
    """Refuse a translator that the libraries of these formats do not support."""
    family = _huggingface_family(translator)
    hugging_face_problems = m2m100_problems if family == "M2M100" else marian_problems
    libraries = {
        "ctranslate2": ("CTranslate2", _ctranslate2_problems),
        "huggingface": (f"{family} of Hugging Face", hugging_face_problems),
    }
    problems = {
        name: f"options that {library} does not support: {'; '.join(messages)}"
        for name, (library, find) in libraries.items()
        if name in formats and (messages := find(translator))
    }
    if problems:
        raise ValueError(
            f"formats: expected a model with options that exist in {' and '.join(problems)}, got "
            f"{', and '.join(problems.values())}. Nothing was written."
        )


def _ctranslate2_problems(translator: Translator) -> list[str]:
    problems = unsupported_options(translator.model.config, CTRANSLATE2)
    both = (translator.source_tokenizer, translator.target_tokenizer)
    source, target = (_pieces(tokenizer)[: UNKNOWN_ID + 1] for tokenizer in both)
    if source != target:
        problems.append(
            f"special pieces {', '.join(source)} of the source tokenizer (expected the target "
            f"tokenizer's: {', '.join(target)})"
        )
    return problems


def _pieces(tokenizer: SubwordTokenizer) -> list[str]:
    return [piece.piece for piece in ModelProto.FromString(tokenizer.model).pieces]


def export_ctranslate2(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    """Write the folder for CTranslate2, and compare the translations of its engine."""
    path = folder / file_names.CTRANSLATE2_FOLDER
    source, target = map(_pieces, (translator.source_tokenizer, translator.target_tokenizer))
    write_ctranslate2(translator.model, source, target, path, shortlist=translator.shortlist)
    translator.source_tokenizer.save(path / SOURCE_TOKENIZER)
    translator.target_tokenizer.save(path / TARGET_TOKENIZER)
    _describe(translator, path)
    return _check_ctranslate2(path, expected)


def _describe(translator: Translator, path: Path) -> None:
    description = {
        "version": __version__,
        "parameters": translator.model.count_params(),
        "config": translator.model.config.model_dump(mode="json"),
        **shortlist_metadata(translator.shortlist),
        **({"search": dict(translator.search)} if translator.search else {}),
    }
    write_json(path / file_names.EXPORTED, description)


def _check_ctranslate2(path: Path, expected: ExpectedResults) -> Figures:
    """Compare CTranslate2's translations with those of `_without_padding`."""
    import ctranslate2

    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(path / name))
        for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER)
    )
    engine = ctranslate2.Translator(
        str(path), compute_type="float32", intra_threads=usable_processors()
    )
    # Blank texts are not sent to CTranslate2.
    rows = [row for row in expected.fitting if source.encode(expected.texts[row])]
    texts = [source.id_to_piece(source.encode(expected.texts[row])) for row in rows]
    max_length = min(SearchSettings.max_length, expected.translator.max_length)
    reference = _without_padding(expected.translator).runtime
    has_shortlist = expected.translator.shortlist is not None
    options = {
        "return_scores": True,
        # CTranslate2 merges the candidates of all texts of a batch.
        "max_batch_size": 1 if has_shortlist else 32,
        "use_vmap": has_shortlist,
        "length_penalty": NO_LENGTH_PENALTY,
        "min_decoding_length": 0,
        "max_decoding_length": max_length,
        "max_input_length": 0,
    }
    figures: Figures = {"sentences": len(rows), "largest_score_difference": 0.0}
    for name, beam_size in BEAMS.items():
        settings = {
            "beam_size": beam_size,
            "length_penalty": 0.0,
            "max_length": max_length,
            "max_length_factor": 1000.0,
        }
        results = engine.translate_batch(texts, beam_size=beam_size, **options)
        tokens = [
            [int(target.piece_to_id(piece)) for piece in result.hypotheses[0]] for result in results
        ]
        with expected.first_runs():
            expected_ids, scores = run_search(reference, expected.ids, settings)
        equal = _equal_tokens(expected_ids[rows, 0], tokens)
        penalties = [max(1, len(ids)) ** NO_LENGTH_PENALTY for ids in tokens]
        log_probs = np.array([result.scores[0] for result in results]) * penalties
        differences = np.abs(log_probs - scores[rows, 0])
        difference = float(max(itertools.compress(differences, equal), default=0.0))
        parity.check_share("CTranslate2", name, equal, difference)
        search = name.replace(" ", "_")
        # The unchanged model may predict padding and the start token.
        model_ids, _ = expected.generate(expected.ids, NO_PREFIX, settings)
        figures[f"same_in_{search}"] = sum(_equal_tokens(model_ids[rows, 0], tokens))
        figures[f"same_without_padding_in_{search}"] = sum(equal)
        figures["largest_score_difference"] = max(figures["largest_score_difference"], difference)
    pieces = [result.hypotheses[0] for result in results]
    decoded = [target.decode(row).strip(string.whitespace) for row in pieces]
    texts = expected.translator.target_tokenizer.decode(tokens)
    parity.compare_texts("CTranslate2", "texts", decoded, texts, decoded)
    return figures


def _without_padding(translator: Translator) -> Translator:
    """Return a translator that never predicts padding and the start token, like CTranslate2."""
    model = translator.model
    weights = {name: np.asarray(weight) for name, weight in model.named_weights.items()}
    bias = weights.get("output/bias", np.zeros(model.config.target_vocab_size, "float32"))
    weights["output/bias"] = np.where(np.arange(len(bias)) < END_ID, MIN_FLOAT16_BIAS, bias)
    config = model.config.replace(output_bias=True)
    return Translator(
        Transformer.from_weights(weights, config, dtype="float32"),
        translator.source_tokenizer,
        translator.target_tokenizer,
        shortlist=translator.shortlist,
    )


def _equal_tokens(expected: np.ndarray, tokens: Sequence[list[int]]) -> list[bool]:
    """Return whether each row of ids (N, T), without end and padding, has the same tokens."""
    return [list(ids[ids > END_ID]) == row for ids, row in zip(expected, tokens, strict=True)]


def _huggingface_family(translator: Translator) -> str:
    """Return the family of the folder. Only M2M100 models have a source prefix, the language."""
    config = translator.model.config
    has_prefix = isinstance(config, TransformerConfig) and config.source_prefix
    return "M2M100" if has_prefix else "MarianMT"


def export_huggingface(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    """Write the folder for transformers, import it, and compare the imported translator."""
    path = folder / file_names.HUGGINGFACE_FOLDER
    family = _huggingface_family(translator)
    write = write_m2m100 if family == "M2M100" else write_marian
    write(translator, path)
    _describe(translator, path)
    source_language, target_language = map(translator.origin.get, LANGUAGE_OPTIONS)
    imported = import_model(path, source_language=source_language, target_language=target_language)
    both = (translator, imported)
    source_ids = [list(map(str, each.source_tokenizer.encode(expected.texts))) for each in both]
    parity.compare_texts(family, "ids", expected.texts, *source_ids)
    texts = [each.target_tokenizer.decode(expected.best.tolist()) for each in both]
    parity.compare_texts(family, "texts", expected.texts, *texts)
    own, others = (target_log_probs(each.model, expected.ids, expected.best) for each in both)
    what = f"log-probabilities of the tokens of {len(expected.texts)} probe translations"
    difference = parity.check_difference(family, what, own, others)
    return {
        "family": family,
        "sentences": len(expected.texts),
        "largest_token_score_difference": difference,
    }


def target_log_probs(
    model: Transformer, source_ids: np.ndarray, target_ids: np.ndarray
) -> np.ndarray:
    """Return log-probabilities (N, T) of target ids (N, T) of source ids (N, S); 0 for padding."""
    starts = np.full((len(target_ids), 1), START_ID, "int32")
    inputs = np.concatenate([starts, target_ids[:, :-1]], axis=1)
    batches = []
    for first in range(0, len(inputs), LIBRARY_BATCH_SIZE):
        rows = slice(first, first + LIBRARY_BATCH_SIZE)
        decoded = model.decode({"source": source_ids[rows], "target": inputs[rows]}, training=False)
        logits = ops.convert_to_numpy(model.logits(decoded.output))  # (B, T, V)
        log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        tokens = target_ids[rows][:, :, None]  # (B, T, 1)
        batches.append(np.take_along_axis(log_probs, tokens, axis=-1)[:, :, 0])
    return np.where(target_ids == PAD_ID, np.float32(0), np.concatenate(batches))
