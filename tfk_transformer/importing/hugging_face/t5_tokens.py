"""The tokens of the T5 family: SentencePiece models, `tokenizer.json`, and the bytes of ByT5."""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec

from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES, one_line_error
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.hugging_face import model_folder
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    PAD_PIECE,
    UNIGRAM,
    UNKNOWN_PIECE,
    WORD_MARK,
    Piece,
    parse_sentencepiece,
    read_sentencepiece,
)

T5_SENTENCEPIECE = "spiece.model"
T5_FAST_TOKENIZER = "tokenizer.json"
BYT5 = "ByT5Tokenizer"
BYT5_SPECIALS = (PAD_PIECE, END_PIECE, UNKNOWN_PIECE)  # rows 0 to 2; the bytes follow
# SentencePiece needs an ordinary piece. No text has these characters, which are not assigned.
SPARE_PIECE = "\ufdd0\ufdd1"
IN_TEXTS = (Piece.NORMAL, Piece.BYTE)  # the types of pieces that are not added tokens
SENTINELS = 100  # of a T5 folder that states no other number
# The names of special tokens in tokenizer_config.json.
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token")
# The parts of a tokenizer.json that transformers makes from a SentencePiece model.
NORMALIZERS = {"Precompiled", "Replace", "Strip"}
PRE_TOKENIZERS = {"WhitespaceSplit", "Metaspace"}


def read_t5_tokens(
    folder: Path, values: Mapping[str, Any]
) -> tuple[Mapping[str, int], ModelProto, tuple[str, ...]]:
    """Read the tokens of a folder, or of ByT5, which needs no file.

    Returns the row of each piece, a SentencePiece model, and tokens in texts that it does not
    segment into. `values` are those of config.json.
    """
    tokenizer = model_folder.read_optional_json(folder / model_folder.TOKENIZER_CONFIG)
    if {**values, **tokenizer}.get("tokenizer_class") == BYT5:
        model = _byte_model()
        *named_pieces, _ = model.pieces  # the table has no row for the spare one
        return {piece.piece: row for row, piece in enumerate(named_pieces)}, model, ()
    fast = model_folder.read_optional_json(folder / T5_FAST_TOKENIZER, MAX_VOCABULARY_BYTES)
    if (folder / T5_SENTENCEPIECE).is_file() or not fast:
        model_folder.check_model_files(folder, [T5_SENTENCEPIECE])
        model = read_sentencepiece(folder / T5_SENTENCEPIECE)
    else:
        model = _model_of_json(fast, folder / T5_FAST_TOKENIZER)
    pieces = {piece.piece: row for row, piece in enumerate(model.pieces)}
    rows = set(pieces.values())
    added = {
        token: row
        for token, row in _added_tokens(fast, tokenizer, len(pieces))
        if row < int(values.get("vocab_size", 0))
    }
    pieces |= {
        token: row for token, row in added.items() if token not in pieces and row not in rows
    }
    defined = [piece.piece for piece in model.pieces if piece.type == Piece.USER_DEFINED]
    if model.trainer_spec.model_type == UNIGRAM:
        # transformers splits texts at these pieces, such as the languages of MADLAD-400.
        # SentencePiece gives a blank before such a piece a token, and transformers does not.
        added |= {piece: pieces[piece] for piece in defined if not piece.startswith(WORD_MARK)}
    other = {piece.piece for piece in model.pieces if piece.type in IN_TEXTS}
    other |= {PAD_PIECE, END_PIECE, UNKNOWN_PIECE}
    for name in SPECIAL_TOKENS:
        token = tokenizer.get(name)
        other.add(str(token.get("content") if isinstance(token, dict) else token))
    added_texts = (
        token for token in added if token in pieces and not {token, f"{WORD_MARK}{token}"} & other
    )
    return pieces, model, tuple(added_texts)


def _byte_model() -> ModelProto:
    pieces = [Piece(piece=name, score=0.0, type=Piece.CONTROL) for name in BYT5_SPECIALS]
    pieces[-1].type = Piece.UNKNOWN
    pieces += [Piece(piece=f"<0x{byte:02X}>", score=0.0, type=Piece.BYTE) for byte in range(256)]
    pieces.append(Piece(piece=SPARE_PIECE, score=-1.0, type=Piece.NORMAL))
    normalizer = NormalizerSpec(
        name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        escape_whitespaces=False,
    )
    trainer = _trainer(pieces, byte_fallback=True)
    return ModelProto(pieces=pieces, trainer_spec=trainer, normalizer_spec=normalizer)


def _trainer(pieces: list[Piece], byte_fallback: bool) -> TrainerSpec:
    unknown = next(row for row, piece in enumerate(pieces) if piece.type == Piece.UNKNOWN)
    return TrainerSpec(
        model_type=UNIGRAM,
        vocab_size=len(pieces),
        byte_fallback=byte_fallback,
        unk_id=unknown,
        bos_id=-1,
        eos_id=-1,
        pad_id=-1,
    )


def _added_tokens(
    fast: Mapping[str, Any], tokenizer: Mapping[str, Any], num_pieces: int
) -> Iterator[tuple[str, int]]:
    """Yield the tokens of tokenizer.json and tokenizer_config.json, and their rows."""
    listed = _dictionaries(fast.get("added_tokens"))
    tokens = {str(token.get("content")): token.get("id") for token in listed}
    decoder = tokenizer.get("added_tokens_decoder", {})
    for row, token in decoder.items() if isinstance(decoder, dict) else ():
        if isinstance(token, dict) and str(row).isdecimal():
            tokens[str(token.get("content"))] = int(row)
    if not tokens:
        # In a folder of earlier versions, the sentinels follow the pieces, the last one first.
        count = tokenizer.get("extra_ids", SENTINELS)
        count = count if type(count) is int and 0 <= count < num_pieces else 0
        tokens = {f"<extra_id_{i}>": num_pieces + count - 1 - i for i in range(count)}
    for token, row in tokens.items():
        if type(row) is int:
            yield token, row


def _dictionaries(values: object) -> list[dict[str, Any]]:
    listed = values if isinstance(values, list) else []
    return [value for value in listed if isinstance(value, dict)]


def _model_of_json(fast: Mapping[str, Any], path: Path) -> ModelProto:
    """Return the SentencePiece model from which a tokenizer.json was made."""
    model = fast.get("model")
    model = model if isinstance(model, dict) else {}
    normalizers = _parts(fast.get("normalizer"), "normalizers")
    types = {str(part.get("type")) for part in normalizers}
    pre_tokenizers = _parts(fast.get("pre_tokenizer"), "pretokenizers")
    pre_types = {str(part.get("type")) for part in pre_tokenizers}
    is_unigram = model.get("type", "Unigram") == "Unigram" and "unk_id" in model
    if not (is_unigram and types <= NORMALIZERS and "Metaspace" in pre_types <= PRE_TOKENIZERS):
        listed = [shorten(", ".join(sorted(names))) or "none" for names in (types, pre_types)]
        raise ValueError(
            f"tokenizer: expected {T5_SENTENCEPIECE}, or a {T5_FAST_TOKENIZER} made from a "
            f"SentencePiece model of type unigram, in {path.parent}, got {path} with the model "
            f"{shorten(str(model.get('type', 'Unigram')))}, the normalizers {listed[0]} and the "
            f"pre-tokenizers {listed[1]}; copy {T5_SENTENCEPIECE} of the original model "
            "into the folder."
        )
    with one_line_error(f"tokenizer: expected pieces, unk_id and a charsmap in {path}, got ", "."):
        charsmaps = [
            base64.b64decode(str(part.get("precompiled_charsmap")))
            for part in normalizers
            if part.get("type") == "Precompiled"
        ]
        added = {token["content"] for token in _dictionaries(fast.get("added_tokens"))}
        pieces = [
            Piece(piece=text, score=score, type=Piece.CONTROL if text in added else Piece.NORMAL)
            for text, score in model["vocab"]
        ]
        pieces[model["unk_id"]].type = Piece.UNKNOWN
    normalizer = NormalizerSpec(
        name="precompiled", precompiled_charsmap=charsmaps[0] if charsmaps else b""
    )
    trainer = _trainer(pieces, bool(model.get("byte_fallback")))
    proto = ModelProto(pieces=pieces, trainer_spec=trainer, normalizer_spec=normalizer)
    return parse_sentencepiece(proto.SerializeToString(), str(path))


def _parts(value: object, name: str) -> list[dict[str, Any]]:
    """Return the parts of a sequence of a tokenizer.json, or the only part."""
    if not isinstance(value, dict):
        return []
    return _dictionaries(value.get(name)) if value.get("type") == "Sequence" else [value]
