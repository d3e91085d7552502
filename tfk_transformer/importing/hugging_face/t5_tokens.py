"""The tokens of the T5 family: SentencePiece models, `tokenizer.json`, and the bytes of ByT5."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec

from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES
from tfk_transformer.importing.hugging_face import model_folder
from tfk_transformer.importing.hugging_face.tokenizer_json import (
    TOKENIZER_JSON,
    dictionaries,
    read_tokenizer_json,
    trainer_of,
)
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    PAD_PIECE,
    UNIGRAM,
    UNKNOWN_PIECE,
    WORD_MARK,
    Piece,
    read_sentencepiece,
)

T5_SENTENCEPIECE = "spiece.model"
BYT5 = "ByT5Tokenizer"
BYT5_SPECIALS = (PAD_PIECE, END_PIECE, UNKNOWN_PIECE)  # rows 0 to 2; the bytes follow
# SentencePiece needs an ordinary piece. No text has these characters, which are not assigned.
SPARE_PIECE = "\ufdd0\ufdd1"
IN_TEXTS = (Piece.NORMAL, Piece.BYTE)  # the types of pieces that are not added tokens
SENTINELS = 100  # of a T5 folder that states no other number
# The names of special tokens in tokenizer_config.json.
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token")
CURE = f"copy {T5_SENTENCEPIECE} of the original model into the folder"


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
    fast = model_folder.read_optional_json(folder / TOKENIZER_JSON, MAX_VOCABULARY_BYTES)
    if (folder / T5_SENTENCEPIECE).is_file() or not fast:
        model_folder.check_model_files(folder, [T5_SENTENCEPIECE])
        model = read_sentencepiece(folder / T5_SENTENCEPIECE)
    else:
        _, _, model = read_tokenizer_json(folder / TOKENIZER_JSON, CURE)
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
    trainer = trainer_of(pieces, byte_fallback=True)
    return ModelProto(pieces=pieces, trainer_spec=trainer, normalizer_spec=normalizer)


def _added_tokens(
    fast: Mapping[str, Any], tokenizer: Mapping[str, Any], num_pieces: int
) -> Iterator[tuple[str, int]]:
    """Yield the tokens of tokenizer.json and tokenizer_config.json, and their rows."""
    listed = dictionaries(fast.get("added_tokens"))
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
