"""The file `tokenizer.json` of the package tokenizers, as a SentencePiece model of the same ids.

SentencePiece has the same two algorithms. Unigram models differ only in their file. Of byte pair
encoding, tokenizers has a rank for each pair of pieces, and SentencePiece one for each result.
"""

import base64
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec

from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES, one_line_error
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.hugging_face import model_folder
from tfk_transformer.importing.vocabulary import MAX_ROWS, WORD_MARK, Piece, parse_sentencepiece

TOKENIZER_JSON = "tokenizer.json"
MAX_STEPS = 2**27  # of segmenting all pieces, the squares of their lengths; NLLB takes 2**24
BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
# Rules of SentencePiece that map each whitespace character to a blank, compressed: its class
# SentencePieceNormalizer made them from {"\t": " ", ...}, which prints log lines.
WHITESPACE_CHARSMAP = (
    "eNol02VM1VEYx/HfvcMXV0TxhW+cgU7FADs2YyYqJqJiKwaK3V03uNywwUBUwBZbwcZuZ3cHGHO7ig0W+v3rf/vsnLP/"
    "s53zPM858pMUJFlKS4WLS/4lpCIWKSBAxmd1FpKS/cyyNmERa5Yt2qzUKswDzSpGQFEjqJdk6yfZu0iO7lJcuOTsKMU3"
    "l1xhknu65JktecdLJYlnK5VCWZRBuf9HUNoSqTxjRVRAMCqB7VQZ1VAVoQhBDVRHLdREHdRGPdRFA9THlu9S+m+pEfOG"
    "IBU1RlPseiVxTDVDS7QAR1YrtEFrkI7aoj3agdTUAZ3RCaStCHRFJCiBuqEHokB51BN90BuUSn0xAP0xENEYjEGIwRAM"
    "w1AMRyxGYgRGYxTGYgwoq8ZhIiZgMiZhKqaA8msaZmIGaIVmYS7mwGb0EA7Y4UQcXIiHB27MgxcLMB+LsBC0TYuRiAQs"
    "w1KswHKsRBJWIRlrsBqpSMFao/dYj3XYiA3YjE1IN3qIbdiKHdhu9A47sQe7kYG92IdMHMB+HMJBHMFhHEUWjuMYTuIE"
    "TuMUzuIMzuMcLuKC8S/IpEuMV3AZ13AVN3Adt3ATd3Ab93AXD3Afj/AQT/AYz/AUL/AcOcgGV1Iv8Qav8daI8ZmUbTUp"
    "J8mkd6x9yMV7fMQHfMYnfMUX5OEbuP7Kx0/8AE9Bv/AHBf/e3l/HPpV4"
)
SAMPLES = 500  # texts on which both tokenizers are compared
# The share that may differ: rounding chooses between equally probable pieces, and tokenizers
# normalizes some combining marks in another way than SentencePiece.
MAX_DIFFERENT = 0.01
PARTS = {"Precompiled", "Replace", "Strip", "Prepend", "Metaspace", "WhitespaceSplit"}
# The patterns and contents of Replace: several blanks become one, and blanks become word marks.
BLANKS = {"Regex": " {2,}"}
ONE_BLANK = [(BLANKS, " "), (BLANKS, WORD_MARK)]
MARKED = ({"String": " "}, WORD_MARK)
# Options of byte pair encoding that SentencePiece lacks. Empty or 0, they change nothing.
BPE_OPTIONS = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")


def read_tokenizer_json(path: Path, cure: str) -> tuple[dict[str, int], set[str], ModelProto]:
    """Return the rows of a tokenizer.json, its added tokens, and a SentencePiece model.

    The rows are those of the pieces, which the model has, too, and of the added tokens, which it
    does not segment texts into. The ids are compared with those of the package tokenizers where
    this is installed. Raises a ValueError, which ends with `cure`, if no SentencePiece model has
    the same ids.
    """
    values = model_folder.read_optional_json(path, MAX_VOCABULARY_BYTES)
    if problem := next(_problems(values), None):
        raise ValueError(
            "tokenizer: expected a model of type Unigram, or BPE with the word mark Metaspace, as "
            f"SentencePiece has them, in {path}, got {problem}; {cure}."
        )
    with one_line_error(f"tokenizer: expected pieces and their rows in {path}, got ", "."):
        added = {
            str(token["content"]): token["id"] for token in dictionaries(values.get("added_tokens"))
        }
        pieces, rows = _read_pieces(values, added)
        model_type = "BPE" if "merges" in values["model"] else "UNIGRAM"
        model = ModelProto(
            pieces=pieces,
            trainer_spec=trainer_of(pieces, model_type, bool(values["model"].get("byte_fallback"))),
            normalizer_spec=_normalizer(values),
        )
    checked = parse_sentencepiece(model.SerializeToString(), str(path))
    _compare(path, rows, checked, cure)
    return {**added, **rows}, set(added), checked


def dictionaries(values: object) -> list[dict[str, Any]]:
    """Return the JSON objects of a list."""
    listed = values if isinstance(values, list) else []
    return [value for value in listed if isinstance(value, dict)]


def _parts(values: Mapping[str, Any], type_name: str | None = None) -> list[dict[str, Any]]:
    """Return the parts of the normalizer and the pre-tokenizer, such as {"type": "Metaspace"}."""
    parts = []
    for name, listed in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        for part in dictionaries([values.get(name)]):
            is_sequence = part.get("type") == "Sequence"
            parts += dictionaries(part.get(listed)) if is_sequence else [part]
    return [part for part in parts if type_name in (None, part.get("type"))]


def _problems(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what no SentencePiece model does; nothing for a file that has a counterpart."""
    model = values.get("model")
    model = model if isinstance(model, dict) else {}
    kind = model.get("type", "BPE" if "merges" in model else "Unigram")
    if kind not in ("Unigram", "BPE"):
        yield f"the model {shorten(str(kind))}"
    types = [str(part.get("type")) for part in _parts(values)]
    yield from (f"the part {shorten(name)}" for name in types if name not in PARTS)
    patterns = [(part.get("pattern"), part.get("content")) for part in _parts(values, "Replace")]
    for pattern in patterns:
        if pattern not in [*ONE_BLANK, MARKED]:
            yield f"the part Replace of {shorten(str(pattern[0]))}"
    marks = _parts(values, "Metaspace")
    if not marks and MARKED not in patterns:
        yield "no word mark"
    if any(part.get("replacement", WORD_MARK) != WORD_MARK for part in marks):
        yield "another word mark"
    if kind == "Unigram" and not (type(model.get("unk_id")) is int and model["unk_id"] >= 0):
        yield "no unk_id"
    if kind == "BPE":
        yield from (f"the option {name}" for name in BPE_OPTIONS if model.get(name))
        if model.get("unk_token") is None:
            yield "no unk_token"
        elif not (model.get("fuse_unk") or model.get("byte_fallback")):
            yield "an unknown token for each unknown character (fuse_unk is false)"


def _normalizer(values: Mapping[str, Any]) -> NormalizerSpec:
    charsmaps = [part["precompiled_charsmap"] for part in _parts(values, "Precompiled")]
    splits_at_whitespace = bool(_parts(values, "WhitespaceSplit"))
    charsmap = base64.b64decode(charsmaps[0]) if charsmaps else b""
    if splits_at_whitespace and not charsmaps:
        charsmap = zlib.decompress(base64.b64decode(WHITESPACE_CHARSMAP))
    prefixes = [
        part.get("prepend_scheme", "always") != "never" and part.get("add_prefix_space", True)
        for part in _parts(values, "Metaspace")
    ]
    return NormalizerSpec(
        name="precompiled" if charsmap else "identity",
        precompiled_charsmap=charsmap,
        add_dummy_prefix=any(prefixes) or bool(_parts(values, "Prepend")),
        remove_extra_whitespaces=splits_at_whitespace
        or any(part["pattern"] == BLANKS for part in _parts(values, "Replace")),
    )


def trainer_of(
    pieces: Sequence[Piece], model_type: str = "UNIGRAM", byte_fallback: bool = False
) -> TrainerSpec:
    """Return the part of a SentencePiece model that describes its pieces, one of them unknown."""
    return TrainerSpec(
        model_type=model_type,
        vocab_size=len(pieces),
        byte_fallback=byte_fallback,
        unk_id=next((row for row, piece in enumerate(pieces) if piece.type == Piece.UNKNOWN), -1),
        bos_id=-1,
        eos_id=-1,
        pad_id=-1,
    )


def _read_pieces(
    values: Mapping[str, Any], added: Collection[str]
) -> tuple[list[Piece], dict[str, int]]:
    """Return the pieces with their types and scores, and the row of each."""
    model, vocab = values["model"], values["model"]["vocab"]
    if len(vocab) > MAX_ROWS:
        raise ValueError(f"{len(vocab):,} pieces")
    splits = any(part.get("split", True) for part in _parts(values, "Metaspace"))
    if "merges" in model:
        rows = {str(text): row for text, row in vocab.items()}
        unknown, scores = model["unk_token"], _bpe_scores(rows, model["merges"])
    else:
        rows = {str(text): row for row, (text, _) in enumerate(vocab)}
        unknown, scores = vocab[model["unk_id"]][0], {str(text): score for text, score in vocab}
    lowest = min((score for text, score in scores.items() if text not in added), default=0.0)
    pieces = []
    for text in rows:
        piece = Piece(piece=text, score=scores.get(text, 0.0), type=Piece.NORMAL)
        if text == unknown:
            piece.type = Piece.UNKNOWN
        elif text in added:
            piece.type = Piece.CONTROL
        elif model.get("byte_fallback") and text in BYTES:
            piece.type = Piece.BYTE
        elif text not in scores or (splits and WORD_MARK in text[1:]):
            # No text is segmented into it: no pairs lead to it, or it crosses words. SentencePiece
            # joins it at last, and takes it apart again.
            piece.type, piece.score = Piece.UNUSED, lowest - 1
        pieces.append(piece)
    return pieces, rows


def _bpe_scores(rows: Mapping[str, int], merges: Sequence[Any]) -> dict[str, float]:
    """Return the score of each piece that a text can be segmented into.

    A piece that is segmented alone is made of one pair at last, which is also its last pair in any
    text: pieces around it have no part in it. So the rank of this pair is the rank of the piece,
    and SentencePiece, which joins the two pieces of any pair whose result is a piece, joins the
    same ones. A piece that is segmented otherwise is in no text.
    """
    pairs = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in merges]
    ranks = {pair: rank for rank, pair in reversed(list(enumerate(pairs)))}
    scores = {}
    if sum(len(text) ** 2 for text in rows) > MAX_STEPS:
        raise ValueError("pieces that are too long")
    for text in rows:
        parts, rank = list(text), 0
        while len(parts) > 1:
            here = [ranks.get(pair, len(ranks)) for pair in zip(parts, parts[1:], strict=False)]
            rank = min(here)
            if rank == len(ranks):
                break
            first = here.index(rank)
            parts[first : first + 2] = ["".join(parts[first : first + 2])]
        if len(parts) == 1:
            # Single characters have a rank below all others, which orders nothing.
            scores[text] = float(-rank - 1) if len(text) > 1 else float(-len(ranks) - 1)
    return scores


def _compare(path: Path, rows: Mapping[str, int], model: ModelProto, cure: str) -> None:
    """Compare the ids of sample texts with those of the package tokenizers, if it is installed."""
    try:
        import tokenizers
    except ImportError:
        return
    with one_line_error(f"tokenizer: the package tokenizers does not load {path}: ", "."):
        reference = tokenizers.Tokenizer.from_file(str(path))
    reference.no_truncation()
    reference.no_padding()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    texts = sample_texts(model)
    row_of = [rows[piece.piece] for piece in model.pieces]
    actual = [[row_of[index] for index in ids] for ids in processor.encode(texts)]
    # Its batches start threads, and later forks of this process would print warnings.
    expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    pairs = zip(texts, expected, actual, strict=True)
    different = [text for text, ids, others in pairs if ids != others]
    if len(different) > MAX_DIFFERENT * len(texts):
        raise ValueError(
            f"tokenizer: expected the ids of {path} from a SentencePiece model, got other ids for "
            f"{len(different)} of {len(texts)} sample texts, such as "
            f"{shorten(repr(different[0]))}; {cure}."
        )


def sample_texts(model: ModelProto) -> list[str]:
    """Return texts of random pieces, some with characters that few vocabularies have."""
    random = np.random.default_rng(0)
    pieces = [piece.piece for piece in model.pieces if piece.type == Piece.NORMAL] or ["?"]
    texts = []
    for number in range(SAMPLES):
        drawn = random.integers(0, len(pieces), size=random.integers(1, 12))
        text = "".join(pieces[index] for index in drawn).replace(WORD_MARK, " ").strip()
        texts.append(f"{text}  \U0001fadf\U0001fae9 {text}" if number % 10 == 0 else text)
    return texts
