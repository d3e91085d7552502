"""Marian's binary shortlists: the probable target rows of each source row.

By src/data/shortlist.h of browsermt/marian-dev: a magic number, a checksum, the number of common
candidates, the limit for each source row, the sizes of two arrays, and these: where the candidates
of each source row begin, and all candidates.
"""

from pathlib import Path

import numpy as np

from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES, read_small_file
from tfk_transformer.config.words import shorten
from tfk_transformer.constants import PAD_ID, UNKNOWN_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.importing.marian_files.folder import find_vocab
from tfk_transformer.importing.vocabulary import read_sentencepiece
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

MAGIC = 0xF11A48D5013417F5
HEADER = np.dtype("<u8")  # of each of the six numbers
NUMBERS = 6
CANDIDATE = np.dtype("<u4")
MAX_LIKELY = 1000  # candidates of a source row; Firefox's shortlists have 50


def read_marian_shortlist(
    path: Path, source_tokenizer: SubwordTokenizer, target_tokenizer: SubwordTokenizer
) -> Shortlist:
    """Read a shortlist next to the SentencePiece models of its rows.

    Each source token also has its own piece as a candidate, as in Marian with one vocabulary.
    """
    vocab = find_vocab(path)
    source_ids = _ids_by_row(vocab[0], source_tokenizer)
    target_ids = _ids_by_row(vocab[-1], target_tokenizer)
    common, offsets, candidates = _read(path, len(source_ids), len(target_ids))
    counts = np.diff(offsets)
    rows = np.repeat(np.arange(len(counts)), counts)
    columns = np.arange(len(candidates)) - np.repeat(offsets[:-1], counts)
    likely = np.full((source_tokenizer.vocab_size, 1 + counts.max(initial=0)), PAD_ID, "int32")
    likely[source_ids[rows], 1 + columns] = target_ids[candidates]
    targets = {piece: token for token, piece in enumerate(target_tokenizer.pieces()) if piece}
    likely[:, 0] = [targets.get(piece, PAD_ID) for piece in source_tokenizer.pieces()]
    always = np.union1d(np.arange(UNKNOWN_ID + 1), target_ids[:common])
    return Shortlist(always.astype("int32"), likely, target_tokenizer.vocab_size, sentences=0)


def _ids_by_row(path: Path, tokenizer: SubwordTokenizer) -> np.ndarray:
    others = range(PAD_ID + 1, tokenizer.vocab_size)
    ids = dict(zip(tokenizer.pieces_of(others), others, strict=True))
    texts = [piece.piece for piece in read_sentencepiece(path).pieces]
    if missing := [text for text in texts if text not in ids]:
        raise ValueError(
            f"shortlist: expected the vocabulary of the bundle in {path}, got {len(missing):,} "
            f"other pieces, such as {shorten(missing[0])}; use the shortlist of the imported model."
        )
    return np.array([ids[text] for text in texts])


def _read(path: Path, source_rows: int, target_rows: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the number of common rows, the offsets and the candidates in a file."""
    content = read_small_file(path, MAX_VOCABULARY_BYTES)
    size = NUMBERS * HEADER.itemsize
    header = [int(number) for number in np.frombuffer(content[:size].ljust(size, b"\0"), HEADER)]
    magic, _, common, _, offset_count, candidate_count = header
    expected = size + offset_count * HEADER.itemsize + candidate_count * CANDIDATE.itemsize
    if magic != MAGIC or len(content) != expected or offset_count != source_rows + 1:
        raise ValueError(
            f"shortlist: expected a binary shortlist of Marian for {source_rows:,} source rows, "
            f"got {path}, which is another file or breaks off; a compressed one needs gunzip."
        )
    offsets = np.frombuffer(content, HEADER, offset_count, size).astype("int64")
    end = size + offset_count * HEADER.itemsize
    candidates = np.frombuffer(content, CANDIDATE, candidate_count, end)
    counts = np.diff(offsets)
    is_valid = offsets[0] == 0 and offsets[-1] == candidate_count and (counts >= 0).all()
    if not is_valid or counts.max(initial=0) > MAX_LIKELY or (candidates >= target_rows).any():
        raise ValueError(
            f"shortlist: expected at most {MAX_LIKELY:,} target rows below {target_rows:,} for "
            f"each source row, got others in {path}."
        )
    return common, offsets, candidates
