"""Text that comes while it is translated: a loop over a decoder's steps, in NumPy alone, the same for every kind of file."""

import codecs
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tfk_transformer.constants import END_ID, LENGTH_ALLOWANCE, PAD_ID, START_ID
from tfk_transformer.inference.step_tensors import STEP_SETTINGS
from tfk_transformer.inference.text_batches import NO_HYPOTHESIS


class StepModel(NamedTuple):
    """What the loop needs of an opened model; tensors go by the names in `step_tensors`."""

    tokenize: Callable  # text -> int32 (1, S): tokens and end token
    encode: Callable | None  # int32 (N, S) -> the memory; None of a model that continues its source
    first_cache: Callable  # N -> the cache before the first step
    step: Callable  # target_ids, memory, cache and settings -> next_token, log_prob and the next cache
    pieces: Sequence[str]  # the text of each target token, see `SubwordTokenizer.pieces`
    max_length: int  # of a source, and of a target, in tokens


def stream_text(model: StepModel, text: str, settings: Mapping) -> Iterator[str]:
    """Translate a text with one hypothesis; what comes, joined, is what `translate` gives with a beam size of 1.

    Args:
        model: opened.
        text: to translate.
        settings: every search setting by name, as `SearchSettings.as_arrays` gives them.

    Raises:
        ValueError: at once, if the text is none, or too long for the model, or more than one beam is asked for.
    """
    if not isinstance(text, str):
        raise ValueError(f"text: expected a string, got {type(text).__name__}; a stream translates one text.")
    if settings["beam_size"] > 1:
        raise ValueError(
            f"beam_size: expected 1, got {settings['beam_size']}; what was streamed cannot be taken back: "
            "leave beam_size out, or translate without a stream."
        )
    source_ids = model.tokenize(text)
    if source_ids.shape[1] > model.max_length:
        raise ValueError(
            f"text: expected at most {model.max_length} tokens, got {source_ids.shape[1]} in '{text[:30]}…'; split it into sentences."
        )
    return joined((int(tokens[0]) for tokens in next_tokens(model, source_ids, settings)), model.pieces)


def next_tokens(model: StepModel, source_ids: np.ndarray, settings: Mapping) -> Iterator[np.ndarray]:
    """Choose a token of each row, step by step, until all rows are done.

    Args:
        model: opened.
        source_ids: int32 (N, S), tokens and end token, padded.
        settings: every search setting by name; with a least length, prompts must be equally long.

    Yields:
        int32 (N,): tokens, the end token too; padding for rows that are done, or still read their prompts.
    """
    lengths = np.count_nonzero(source_ids, axis=1)  # (N,)
    prompts = source_ids[:, :0] if model.encode else np.where(source_ids == END_ID, PAD_ID, source_ids)
    given = np.count_nonzero(prompts, axis=1)  # (N,)
    longest = np.minimum(_longest(lengths, settings) + given, model.max_length)
    fixed = {**_step_settings(settings, given), **(model.encode(source_ids) if model.encode else {})}
    cache, ids, running = model.first_cache(len(lengths)), np.full((len(lengths), 1), START_ID, "int32"), lengths > 1
    while running.any():
        place = ids.shape[1] - 1  # of the token to come
        found = model.step({"target_ids": ids, **fixed, **cache})
        cache = {name.removeprefix("next_"): tensor for name, tensor in found.items() if name.startswith("next_cache")}
        reading = place < given
        running &= reading | (np.asarray(found["log_prob"]) > NO_HYPOTHESIS)  # or the rules allow no token
        token = np.where(running & ~reading, np.asarray(found["next_token"]), PAD_ID)
        yield token
        running &= (token != END_ID) & (place + 1 < longest)
        token = np.where(reading, prompts[:, place], token) if reading.any() else token
        ids = np.concatenate([ids, token[:, None]], axis=1, dtype="int32")


def _longest(lengths, settings):
    """Return the greatest lengths (N,) of what is said, for sources of so many tokens, as `search.Limits.longest` does."""
    allowed = np.ceil(lengths.astype("float32") * np.float32(settings["max_length_factor"])).astype("int64")
    return np.minimum(settings["max_length"], allowed + LENGTH_ALLOWANCE)


def _step_settings(settings, given):
    """Return those of a step; for it, a prompt counts among the tokens so far."""
    shortest = np.array(settings["min_length"] + np.max(given, initial=0), "int32")
    return {**{name: settings[name] for name in STEP_SETTINGS}, "min_length": shortest}


def joined(tokens: Iterable[int], pieces: Sequence[str]) -> Iterator[str]:
    """Turn tokens into text as they come, without blanks around the whole.

    A blank waits until something follows it, and a byte until its character is complete.
    """
    decoder, waiting, begun = codecs.getincrementaldecoder("utf-8")("surrogateescape"), "", False
    for piece in _bytes_of(tokens, pieces):
        text = waiting + re.sub("[\udc80-\udcff]", "\ufffd", decoder.decode(piece, final=not piece))
        text = text if begun else text.lstrip(string.whitespace)
        said = text.rstrip(string.whitespace)
        waiting, begun = text[len(said) :], begun or bool(said)
        if said:
            yield said


def _bytes_of(tokens, pieces) -> Iterator[bytes]:
    """Yield the bytes of each token that has any, and at the end none."""
    yield from filter(None, (pieces[token].encode("utf-8", "surrogateescape") for token in tokens))
    yield b""


def empty_cache(shapes: Mapping[str, Sequence], rows: int) -> dict[str, np.ndarray]:
    """Return the cache before the first step, given the shapes of a step's inputs by name."""
    sizes = {name: shape for name, shape in shapes.items() if name.startswith("cache_")}
    return {name: np.zeros((rows, heads, 0, width), "float32") for name, (_, heads, _, width) in sizes.items()}
