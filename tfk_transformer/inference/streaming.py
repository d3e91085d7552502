"""Streaming: a loop in NumPy over the steps of a decoder, the same for every kind of file."""

import codecs
import itertools
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tfk_transformer.constants import END_ID, LENGTH_ALLOWANCE, PAD_ID, START_ID
from tfk_transformer.inference.results import NO_HYPOTHESIS
from tfk_transformer.inference.step_tensors import STEP_SETTINGS
from tfk_transformer.inference.text_batches import check_texts
from tfk_transformer.inference.text_errors import TextError

Tensors: TypeAlias = dict[str, Any]  # by name, of NumPy or of the runtime that executes the steps


class StepModel(NamedTuple):
    """The functions of an opened model that the decoding loop calls. Tensors have the names in
    `step_tensors`.
    """

    tokenize: Callable[[str], np.ndarray]  # text -> int32 (1, S): tokens and end token
    # int32 (N, S) -> the memory; None for a decoder-only model.
    encode: Callable[[np.ndarray], Tensors] | None
    first_cache: Callable[[int], Tensors]  # N -> the KV cache before the first step
    # target_ids, memory, cache and settings -> next_token, log_prob and the next cache.
    step: Callable[[Tensors], Tensors]
    pieces: Sequence[str]  # the text of each target token, see `SubwordTokenizer.pieces`
    max_length: int  # of a source, and of a target, in tokens


def stream_text(model: StepModel, text: str, settings: Mapping[str, Any]) -> Iterator[str]:
    """Translate one text with one hypothesis. The parts, joined, are the text that `translate`
    returns with a beam size of 1.

    Args:
        model: the opened model.
        text: the source text.
        settings: every search setting by name, as `SearchSettings.as_arrays` returns them.

    Raises:
        ValueError: before the first part, if `text` is not a string, or `beam_size` is not 1.
        TextError: before the first part, if `text` is too long for the model, or holds NUL or half
            a surrogate pair.
    """
    if not isinstance(text, str):
        raise ValueError(
            f"text: expected a string, got {type(text).__name__}; a stream translates one text."
        )
    check_texts([text], "text")
    if settings["beam_size"] > 1:
        raise ValueError(
            f"beam_size: expected 1, got {settings['beam_size']}; what was streamed cannot be "
            "taken back: "
            "leave beam_size out, or translate without a stream."
        )
    source_ids = model.tokenize(text)
    if source_ids.shape[1] > model.max_length:
        problem = (
            f"expected at most {model.max_length} tokens, got {source_ids.shape[1]} in "
            f"'{text[:30]}…'; split it into sentences."
        )
        raise TextError("text", problem, {0: problem})
    return join_pieces(
        (int(tokens[0]) for tokens in next_tokens(model, source_ids, settings)), model.pieces
    )


def next_tokens(
    model: StepModel, source_ids: np.ndarray, settings: Mapping[str, Any]
) -> Iterator[np.ndarray]:
    """Choose the next token of each row, step by step, until all rows have ended.

    Args:
        model: the opened model.
        source_ids: int32 (N, S), tokens and end token, padded.
        settings: every search setting by name.

    Yields:
        int32 (N,): tokens, the end token included; padding for rows that have ended, or whose
            prompt is still being read.
    """
    prompts = (
        source_ids[:, :0] if model.encode else np.where(source_ids == END_ID, PAD_ID, source_ids)
    )
    prompt_lengths = np.count_nonzero(prompts, axis=1)  # (N,)
    if settings["min_length"] > 0 and len(set(prompt_lengths)) > 1:
        # A step has one `min_length` for all rows, and counts the prompt in it: rows with prompts
        # of one length go together.
        groups = [np.flatnonzero(prompt_lengths == length) for length in set(prompt_lengths)]
        return _side_by_side(
            len(source_ids),
            groups,
            [_tokens(model, source_ids[rows], prompts[rows], settings) for rows in groups],
        )
    return _tokens(model, source_ids, prompts, settings)


def _side_by_side(
    count: int, groups: Sequence[np.ndarray], tokens: Sequence[Iterator[np.ndarray]]
) -> Iterator[np.ndarray]:
    """Join the tokens of groups of rows to tokens (N,) of all rows; padding stands for groups that
    have ended.
    """
    for parts in itertools.zip_longest(*tokens, fillvalue=PAD_ID):
        together = np.full(count, PAD_ID, "int32")
        for rows, part in zip(groups, parts, strict=True):
            together[rows] = part
        yield together


def _tokens(
    model: StepModel, source_ids: np.ndarray, prompts: np.ndarray, settings: Mapping[str, Any]
) -> Iterator[np.ndarray]:
    """Do what `next_tokens` does; with a `min_length`, the prompts (N, P) have equal lengths."""
    lengths, given = np.count_nonzero(source_ids, axis=1), np.count_nonzero(prompts, axis=1)  # (N,)
    longest = np.minimum(_longest(lengths, settings) + given, model.max_length)
    fixed = {
        **_step_settings(settings, given),
        **(model.encode(source_ids) if model.encode else {}),
    }
    cache, ids, running = (
        model.first_cache(len(lengths)),
        np.full((len(lengths), 1), START_ID, "int32"),
        lengths > 1,
    )
    while running.any():
        place = ids.shape[1] - 1  # of the next token
        found = model.step({"target_ids": ids, **fixed, **cache})
        cache = {
            name.removeprefix("next_"): tensor
            for name, tensor in found.items()
            if name.startswith("next_cache")
        }
        reading = place < given
        # Else the rules allow no token.
        running &= reading | (np.asarray(found["log_prob"]) > NO_HYPOTHESIS)
        token = np.where(running & ~reading, np.asarray(found["next_token"]), PAD_ID)
        yield token
        running &= (token != END_ID) & (place + 1 < longest)
        token = np.where(reading, prompts[:, place], token) if reading.any() else token
        ids = np.concatenate([ids, token[:, None]], axis=1, dtype="int32")


def _longest(lengths: np.ndarray, settings: Mapping[str, Any]) -> np.ndarray:
    """Return the length limits (N,) of targets for sources of these lengths, as `Limits.longest`
    does.
    """
    allowed = np.ceil(lengths.astype("float32") * np.float32(settings["max_length_factor"])).astype(
        "int64"
    )
    limits: np.ndarray = np.minimum(settings["max_length"], allowed + LENGTH_ALLOWANCE)
    return limits


def _step_settings(settings: Mapping[str, Any], given: np.ndarray) -> Tensors:
    """Return the settings of a step, whose `min_length` includes the prompt; 0 stays 0, so that
    prompts of any length may end.
    """
    least = settings["min_length"]
    shortest = np.array(least + np.max(given, initial=0) if least > 0 else 0, "int32")
    return {**{name: settings[name] for name in STEP_SETTINGS}, "min_length": shortest}


def join_pieces(tokens: Iterable[int], pieces: Sequence[str]) -> Iterator[str]:
    """Yield the text of tokens as they come, without the blanks around the whole text.

    A blank is held back until text follows it, and a byte until its character is complete.
    """
    decoder, waiting, begun = codecs.getincrementaldecoder("utf-8")("surrogateescape"), "", False
    for piece in _bytes_of(tokens, pieces):
        text = waiting + re.sub("[\udc80-\udcff]", "\ufffd", decoder.decode(piece, final=not piece))
        text = text if begun else text.lstrip(string.whitespace)
        ready = text.rstrip(string.whitespace)
        waiting, begun = text[len(ready) :], begun or bool(ready)
        if ready:
            yield ready


def _bytes_of(tokens: Iterable[int], pieces: Sequence[str]) -> Iterator[bytes]:
    """Yield the bytes of each token that has any, and at the end an empty string."""
    yield from filter(None, (pieces[token].encode("utf-8", "surrogateescape") for token in tokens))
    yield b""


def empty_cache(shapes: Mapping[str, Sequence[Any]], rows: int) -> Tensors:
    """Return the KV cache before the first step, given the shapes of a step's inputs by name."""
    sizes = {name: shape for name, shape in shapes.items() if name.startswith("cache_")}
    return {
        name: np.zeros((rows, heads, 0, width), "float32")
        for name, (_, heads, _, width) in sizes.items()
    }
