"""Streaming: a NumPy loop over the steps of a decoder, which all runtimes share."""

import codecs
import itertools
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tfk_transformer.constants import END_ID, LENGTH_ALLOWANCE, PAD_ID, START_ID
from tfk_transformer.inference.conveyor import TextOnRoad
from tfk_transformer.inference.runtime import TranslatorRuntime
from tfk_transformer.inference.signatures import STEP_SETTINGS
from tfk_transformer.text.kept_characters import ReadableText, take_out
from tfk_transformer.text.outcome import Refused, TextError, check_texts
from tfk_transformer.text.results import NO_HYPOTHESIS

Tensors: TypeAlias = dict[str, Any]  # by name, of NumPy or of the runtime that runs the steps


def stream_text(
    runtime: TranslatorRuntime, text: str, settings: Mapping[str, Any], language: str | None = None
) -> Iterator[str]:
    """Translate one text with one hypothesis; see `BaseTranslator.stream_steps`."""
    if not isinstance(text, str):
        raise ValueError(
            f"text: expected a string, got {type(text).__name__}; a stream translates one text."
        )
    check_texts([text], "text")
    if settings["beam_size"] > 1:
        raise ValueError(
            f"beam_size: expected 1, got {settings['beam_size']}; streamed text cannot be revised: "
            "leave beam_size out, or translate without streaming."
        )
    if language is None or not text.strip():
        source_ids = _tokenize(runtime, [text])
        if source_ids.shape[1] > runtime.max_length:
            raise _too_long(text, source_ids.shape[1], runtime.max_length)
        return _stream_ids(runtime, source_ids, settings)
    return _stream_sentences(runtime, _split(runtime, text, language), settings)


def _tokenize(runtime: TranslatorRuntime, texts: Sequence[str]) -> np.ndarray:
    """Return the ids of texts, int32 (N, S), tokens and end token, padded."""
    return np.asarray(runtime.run("tokenize", {"text": np.array(texts, object)})["source_ids"])


def _too_long(text: str, length: int, max_length: int) -> TextError:
    problem = (
        f"expected at most {max_length} tokens, got {length} in '{text[:30]}…'; split it into "
        "sentences."
    )
    return TextError("text", problem, {0: problem})


def _split(runtime: TranslatorRuntime, text: str, language: str) -> TextOnRoad[ReadableText]:
    """Split a text into sentences that fit the model, with what the model reads of each."""
    on_road: TextOnRoad[ReadableText] = TextOnRoad(text, "", language, runtime.max_length)
    while waiting := on_road.waiting():
        sentences = on_road.split.sentences
        readable = [take_out(sentences[index], runtime.characters) for index in waiting]
        ids = _tokenize(runtime, [each.text for each in readable])
        lengths = np.count_nonzero(ids, axis=1)
        for index, each, length in reversed(list(zip(waiting, readable, lengths, strict=True))):
            fits = length <= runtime.max_length
            on_road.take(index, each if fits else Refused("text", "too long"))
            if on_road.refused:
                raise _too_long(sentences[index], length, runtime.max_length)
    return on_road


def _stream_ids(
    runtime: TranslatorRuntime, source_ids: np.ndarray, settings: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the parts of the translation of ids, int32 (1, S)."""
    tokens = next_tokens(runtime, source_ids, settings)
    return join_pieces((int(token[0]) for token in tokens), runtime.pieces)


def _stream_sentences(
    runtime: TranslatorRuntime, on_road: TextOnRoad[ReadableText], settings: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the parts of the translations of sentences, and the whitespace between them.

    A sentence with characters that the vocabulary lacks is one part, since their positions depend
    on the whole translation.
    """
    split = on_road.split
    previous = ""
    for index, text in enumerate(on_road.results):
        parts: Iterator[str] = iter([split.sentences[index]])
        if any(map(str.isalnum, text.text)):
            parts = _stream_ids(runtime, _tokenize(runtime, [text.text]), settings)
            if text.units:
                parts = _put_back(text, parts)
        first = ""
        for first in parts:
            if first:
                break
            yield ""
        yield split.gap_before(index, previous, first) + first
        previous = first
        for part in parts:
            yield part
            previous = part or previous
    yield split.gaps[-1]


def _put_back(text: ReadableText, parts: Iterable[str]) -> Iterator[str]:
    """Yield an empty part for each part of a translation, and then all of it with the units."""
    translation = ""
    for part in parts:
        translation += part
        yield ""
    yield text.put_back(translation)


def next_tokens(
    runtime: TranslatorRuntime, source_ids: np.ndarray, settings: Mapping[str, Any]
) -> Iterator[np.ndarray]:
    """Yield the next tokens of each row, step by step, until all rows have ended.

    Source ids, int32 (N, S), are tokens and end token, padded. The tokens, int32 (N,), include the
    end token. Rows that have ended, or whose prompt is still being read, have padding.
    """
    prompts = source_ids[:, :0]
    if not runtime.has_encoder:
        prompts = np.where(source_ids == END_ID, PAD_ID, source_ids)
    prompt_lengths = np.count_nonzero(prompts, axis=1)  # (N,)
    if settings["min_length"] > 0 and len(set(prompt_lengths)) > 1:
        # All rows of a step have the same `min_length`, which includes the prompt, so their prompts
        # must have the same length.
        groups = [np.flatnonzero(prompt_lengths == length) for length in set(prompt_lengths)]
        tokens = [_tokens(runtime, source_ids[rows], prompts[rows], settings) for rows in groups]
        for group_tokens in itertools.zip_longest(*tokens, fillvalue=PAD_ID):
            merged = np.full(len(source_ids), PAD_ID, "int32")
            for rows, row_tokens in zip(groups, group_tokens, strict=True):
                merged[rows] = row_tokens
            yield merged
    else:
        yield from _tokens(runtime, source_ids, prompts, settings)


def _tokens(
    runtime: TranslatorRuntime,
    source_ids: np.ndarray,
    prompts: np.ndarray,
    settings: Mapping[str, Any],
) -> Iterator[np.ndarray]:
    """Yield tokens as `next_tokens` does. With a `min_length`, prompts (N, P) have one length."""
    lengths = np.count_nonzero(source_ids, axis=1)  # (N,)
    prompt_lengths = np.count_nonzero(prompts, axis=1)  # (N,)
    # As `Limits.max_lengths`.
    allowed = np.ceil(lengths.astype("float32") * np.float32(settings["max_length_factor"]))
    longest = np.minimum(settings["max_length"], allowed.astype("int64") + LENGTH_ALLOWANCE)
    longest = np.minimum(longest + prompt_lengths, runtime.max_length)
    shortest = settings["min_length"]
    if shortest > 0:  # it includes the prompt; prompts of any length may end if it is 0
        shortest = shortest + np.max(prompt_lengths, initial=0)
    constants: Tensors = {name: settings[name] for name in STEP_SETTINGS}
    constants["min_length"] = np.array(shortest, "int32")
    if runtime.has_encoder:
        constants |= runtime.run("encode", {"source_ids": source_ids})
    cache = empty_cache(runtime.cache_shapes, len(lengths))
    ids = np.full((len(lengths), 1), START_ID, "int32")
    running = lengths > 1
    while running.any():
        position = ids.shape[1] - 1  # of the next token
        outputs = runtime.run("decoder_step", {"target_ids": ids, **constants, **cache})
        cache = {
            name.removeprefix("next_"): tensor
            for name, tensor in outputs.items()
            if name.startswith("next_cache")
        }
        reading = position < prompt_lengths
        # A lower value means that the settings allow no token.
        running &= reading | (np.asarray(outputs["log_prob"]) > NO_HYPOTHESIS)
        token = np.where(running & ~reading, np.asarray(outputs["next_token"]), PAD_ID)
        if settings.get("forced_eos", False):
            token = np.where((token != PAD_ID) & (position + 1 >= longest), END_ID, token)
        yield token
        running &= (token != END_ID) & (position + 1 < longest)
        token = np.where(reading, prompts[:, position], token) if reading.any() else token
        ids = np.concatenate([ids, token[:, None]], axis=1, dtype="int32")


def join_pieces(tokens: Iterable[int], pieces: Sequence[str]) -> Iterator[str]:
    """Yield the text of each token as it arrives, without the blanks around the whole text.

    A blank is held back until text follows it, and a byte until its character is complete. Until
    then, parts are empty.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    blanks = ""
    started = False
    encoded = (pieces[token].encode("utf-8", "surrogateescape") for token in tokens)
    for piece in itertools.chain(encoded, [None]):  # None marks the end
        decoded = decoder.decode(piece or b"", final=piece is None)
        text = blanks + re.sub("[\udc80-\udcff]", "\ufffd", decoded)
        text = text if started else text.lstrip(string.whitespace)
        ready = text.rstrip(string.whitespace)
        blanks = text[len(ready) :]
        started = started or bool(ready)
        yield ready


def empty_cache(shapes: Mapping[str, Sequence[Any]], rows: int) -> Tensors:
    """Return the KV cache before the first step, from the shapes of its tensors by name."""
    return {
        name: np.zeros((rows, heads, 0, width), "float32")
        for name, (_, heads, _, width) in shapes.items()
    }
