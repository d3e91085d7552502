"""Write the folders of a translator for other libraries, and compare each with the Keras model's
own results.
"""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import sentencepiece
from keras import ops
from sentencepiece.sentencepiece_model_pb2 import ModelProto

import tfk_transformer
from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.data.shortlist import about_shortlist
from tfk_transformer.export import file_names, parity
from tfk_transformer.export.expected_results import ExpectedResults, run_search
from tfk_transformer.export.functions import signature_function
from tfk_transformer.export.parity import Figures
from tfk_transformer.export.signatures import GENERATE
from tfk_transformer.export.to_libraries.counterparts import CTRANSLATE2, unsupported_options
from tfk_transformer.export.to_libraries.ctranslate2_files import (
    MIN_FLOAT16_BIAS,
    write_ctranslate2,
)
from tfk_transformer.export.to_libraries.m2m100_files import m2m100_problems, write_m2m100
from tfk_transformer.export.to_libraries.marian_files import marian_problems, write_marian
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.bundle import SOURCE_TOKENIZER, TARGET_TOKENIZER, write_json
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.runtime_environment import usable_processors
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# Probes of a full pass, whose logits are all kept: of 8 targets of 256 tokens of 60,000, they take
# 0.5 GB.
LIBRARY_BATCH_SIZE = 8
# With none at all, CTranslate2 goes on when as many hypotheses as beams are finished, which this
# project's search does not.
NO_LENGTH_PENALTY = 1e-6
BEAMS = {"greedy search": 1, "beam search": 4}


def check_counterparts(translator: Translator, formats: Sequence[str]) -> None:
    """Refuse a translator that another library cannot hold.

    Raises:
        ValueError: with everything that the libraries of these formats lack.
    """
    problems = {
        name: found
        for name, find in PROBLEMS.items()
        if name in formats and (found := find(translator))
    }
    if problems:
        family = "M2M100" if _is_multilingual(translator) else "MarianMT"
        libraries = {"ctranslate2": "CTranslate2", "huggingface": f"{family} of Hugging Face"}
        got = ", and ".join(
            f"one that {libraries[name]} cannot hold: {'; '.join(found)}"
            for name, found in problems.items()
        )
        raise ValueError(
            f"formats: expected a model with options that exist in {' and '.join(problems)}, got "
            f"{got}. Nothing was written."
        )


def _ctranslate2_problems(translator: Translator) -> list[str]:
    problems = unsupported_options(translator.model.config, CTRANSLATE2)
    source, target = (
        _pieces(tokenizer)[: UNKNOWN_ID + 1]
        for tokenizer in (translator.source_tokenizer, translator.target_tokenizer)
    )
    if source != target:
        problems.append(
            f"special pieces {', '.join(source)} of the source tokenizer (expected those of the "
            f"target: {', '.join(target)})"
        )
    return problems


def _pieces(tokenizer: SubwordTokenizer) -> list[str]:
    """Return all pieces by id, as SentencePiece writes them."""
    return [piece.piece for piece in ModelProto.FromString(tokenizer.model).pieces]


def _ctranslate2(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    path = folder / file_names.CTRANSLATE2_FOLDER
    source, target = (
        _pieces(tokenizer)
        for tokenizer in (translator.source_tokenizer, translator.target_tokenizer)
    )
    write_ctranslate2(translator.model, source, target, path, shortlist=translator.shortlist)
    translator.source_tokenizer.save(path / SOURCE_TOKENIZER)
    translator.target_tokenizer.save(path / TARGET_TOKENIZER)
    _describe(translator, path)
    return _check_ctranslate2(path, expected)


def _describe(translator: Translator, path: Path) -> None:
    config = translator.model.config.model_dump(mode="json")
    facts = {
        "version": tfk_transformer.__version__,
        "parameters": translator.model.count_params(),
        "config": config,
    }
    write_json(path / file_names.EXPORTED, {**facts, **about_shortlist(translator.shortlist)})


def _check_ctranslate2(path: Path, expected: ExpectedResults) -> Figures:
    """Translate the probe texts with the files of the folder only, and compare the pieces with the
    model's.

    The reference is the model without padding and start. How many translations are those of the
    model as it is, is a figure. With a shortlist, the texts are translated one by one: CTranslate2
    joins the candidates of all texts of a batch.
    """
    import ctranslate2

    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(path / name))
        for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER)
    )
    engine = ctranslate2.Translator(
        str(path), compute_type="float32", intra_threads=usable_processors()
    )
    # A blank text is not for an engine.
    rows = [row for row in expected.fitting if source.encode(expected.texts[row])]
    texts = [source.id_to_piece(source.encode(expected.texts[row])) for row in rows]
    longest = min(SearchSettings().max_length, expected.translator.max_length)
    reference = signature_function(_without_padding(expected.translator).functions, GENERATE)
    shortened = expected.translator.shortlist is not None
    layout = {"max_batch_size": 1 if shortened else 32, "use_vmap": shortened}
    figures: Figures = {"sentences": len(rows), "largest_score_difference": 0.0}
    for name, beam_size in BEAMS.items():
        settings = {
            "beam_size": beam_size,
            "length_penalty": 0.0,
            "max_length": longest,
            "max_length_factor": 1000.0,
        }
        options = {
            "length_penalty": NO_LENGTH_PENALTY,
            "min_decoding_length": 0,
            "max_decoding_length": longest,
            "max_input_length": 0,
        }
        found = engine.translate_batch(
            texts, beam_size=beam_size, return_scores=True, **layout, **options
        )
        tokens = [
            [int(target.piece_to_id(piece)) for piece in result.hypotheses[0]] for result in found
        ]
        wanted, scores = run_search(reference, expected.ids, settings)
        same = _same(wanted[rows, 0], tokens)
        sums = [
            result.scores[0] * max(1, len(ids)) ** NO_LENGTH_PENALTY
            for result, ids in zip(found, tokens, strict=True)
        ]
        differences = np.abs(np.array(sums) - scores[rows, 0])
        difference = float(max(itertools.compress(differences, same), default=0.0))
        parity.check_share("CTranslate2", name, same, difference)
        figures[f"same_in_{name.replace(' ', '_')}"] = sum(
            _same(expected.generate(settings)[0][rows, 0], tokens)
        )
        figures[f"same_without_padding_in_{name.replace(' ', '_')}"] = sum(same)
        figures["largest_score_difference"] = max(figures["largest_score_difference"], difference)
    decoded = [target.decode(result.hypotheses[0]).strip() for result in found]
    parity.compare_texts(
        "CTranslate2",
        "texts",
        decoded,
        expected.translator.target_tokenizer.decode(tokens),
        decoded,
    )
    return figures


def _without_padding(translator: Translator) -> Translator:
    """Return a translator whose model gives padding and the start token no probability, as the
    folder for CTranslate2 does.
    """
    model = translator.model
    weights = {name: np.asarray(weight) for name, weight in model.named_weights.items()}
    bias = weights.get("output/bias", np.zeros(model.config.target_vocab_size, "float32"))
    weights["output/bias"] = np.where(np.arange(len(bias)) < END_ID, MIN_FLOAT16_BIAS, bias)
    twin = Transformer.from_weights(
        weights, model.config.replace(output_bias=True), dtype="float32"
    )
    return Translator(
        twin,
        translator.source_tokenizer,
        translator.target_tokenizer,
        shortlist=translator.shortlist,
    )


def _same(wanted: np.ndarray, tokens: Sequence[list[int]]) -> list[bool]:
    """Return for each row of ids (N, T) whether its tokens, without the end and padding, are those
    of a list.
    """
    return [list(row[row > END_ID]) == found for row, found in zip(wanted, tokens, strict=True)]


def _is_multilingual(translator: Translator) -> bool:
    """Return whether the options are those of M2M100 rather than MarianMT: a token, the language's,
    before every source.
    """
    config = translator.model.config
    return isinstance(config, TransformerConfig) and bool(config.source_prefix)


def _huggingface_problems(translator: Translator) -> list[str]:
    return (
        m2m100_problems(translator) if _is_multilingual(translator) else marian_problems(translator)
    )


def _huggingface(translator: Translator, folder: Path, expected: ExpectedResults) -> Figures:
    path, several = folder / file_names.HUGGINGFACE_FOLDER, _is_multilingual(translator)
    (write_m2m100 if several else write_marian)(translator, path)
    _describe(translator, path)
    return _check_huggingface(path, expected, "M2M100" if several else "MarianMT")


def _check_huggingface(path: Path, expected: ExpectedResults, family: str) -> Figures:
    """Import the folder, and compare the ids of texts, the texts of ids, and the log-probabilities
    of tokens with the model's.
    """
    ours = expected.translator
    languages = [ours.origin.get(f"{side}_language") for side in ("source", "target")]
    read = import_model(path, source_language=languages[0], target_language=languages[1])
    pieces = [
        [str(ids) for ids in translator.source_tokenizer.encode(expected.texts)]
        for translator in (ours, read)
    ]
    parity.compare_texts(family, "ids", expected.texts, *pieces)
    texts = [
        translator.target_tokenizer.decode(expected.best.tolist()) for translator in (ours, read)
    ]
    parity.compare_texts(family, "texts", expected.texts, *texts)
    log_probs = [
        target_log_probs(translator.model, expected.ids, expected.best)
        for translator in (ours, read)
    ]
    difference = parity.check_numbers(family, "log-probabilities of the tokens", *log_probs)
    return {
        "family": family,
        "sentences": len(expected.texts),
        "largest_token_score_difference": difference,
    }


def target_log_probs(
    model: Transformer, source_ids: np.ndarray, target_ids: np.ndarray
) -> np.ndarray:
    """Return the log-probability of each target token, computed by full passes; 0 for padding.

    Args:
        model: the Keras model.
        source_ids: int32 (N, S).
        target_ids: int32 (N, T), tokens, end token and padding.

    Returns:
        float32 (N, T).
    """
    starts = np.full((len(target_ids), 1), START_ID, "int32")
    given = np.concatenate([starts, target_ids[:, :-1]], axis=1)
    found = []
    for first in range(0, len(given), LIBRARY_BATCH_SIZE):
        part = slice(first, first + LIBRARY_BATCH_SIZE)
        decoded = model.decode({"source": source_ids[part], "target": given[part]}, training=False)
        logits = ops.convert_to_numpy(model.logits(decoded.output))  # (B, T, V)
        log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        found.append(np.take_along_axis(log_probs, target_ids[part][:, :, None], axis=-1)[:, :, 0])
    return np.where(target_ids == PAD_ID, np.float32(0), np.concatenate(found))


PROBLEMS: dict[str, Callable[[Translator], list[str]]] = {
    "ctranslate2": _ctranslate2_problems,
    "huggingface": _huggingface_problems,
}
WRITERS: dict[str, Callable[[Translator, Path, ExpectedResults], Figures]] = {
    "ctranslate2": _ctranslate2,
    "huggingface": _huggingface,
}
