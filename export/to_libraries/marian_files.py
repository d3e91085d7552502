"""Write a translator as a folder of MarianMT in Hugging Face's layout, without transformers.

This is the reverse of `importing/hugging_face/marian.py`. The rows of the family's tables are this
project's ids, so that the start token has a dedicated row.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.export.to_libraries.counterparts import MARIAN, unsupported_options
from tfk_transformer.export.to_libraries.hugging_face_folder import write_family_files
from tfk_transformer.export.to_libraries.plain_attention import plain_attention
from tfk_transformer.importing.hugging_face.bart import (
    LOGITS_BIAS,
    OUTPUT_TABLE,
    SHARED_TABLE,
    SOURCE_TABLE,
    TARGET_TABLE,
    bart_arrays,
    restore_arrays,
)
from tfk_transformer.importing.hugging_face.marian import MarianConfig
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    NEVER_FROM_TEXT,
    PAD_PIECE,
    UNKNOWN_PIECE,
    Piece,
    is_tag,
)
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.bundle import write_json
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

MARK = "\u2581"  # marks the start of a word


class SideFiles(NamedTuple):
    """The tokens of one side in the family's files."""

    pieces: list[str]  # by id
    text_tags: list[str]  # language tokens that may occur anywhere in a text
    model: bytes  # a SentencePiece model


def write_marian(translator: Translator, folder: Path) -> None:
    """Write a folder that `MarianMTModel` and `MarianTokenizer` of transformers load.

    Args:
        translator: a translator with a `Transformer` in float32.
        folder: a new folder.

    Raises:
        ValueError: names everything that the family does not support.
    """
    if problems := marian_problems(translator):
        raise ValueError(
            f"model: expected options that MarianMT supports, got {'; '.join(problems)}."
        )
    source, target = _sides(translator)
    config = translator.model.config
    separate = config.tie_embeddings != "all"
    folder.mkdir(parents=True)
    for name, side in (("source.spm", source), ("target.spm", target)):
        (folder / name).write_bytes(side.model)
    vocabularies = [("vocab.json", source), ("target_vocab.json", target)]
    for name, side in vocabularies if separate else vocabularies[:1]:
        write_json(folder / name, {piece: row for row, piece in enumerate(side.pieces)})
    model_config = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "bos_token_id": None,
        # By default, the family's class ends translations that reach the length limit with token 0.
        "forced_eos_token_id": None,
        **MarianConfig.from_transformer_config(config).model_dump(),
    }
    # Padding and the start token are never predicted, as in this project.
    generation = {"bad_words_ids": [[PAD_ID], [START_ID]], "max_length": config.max_length}
    tokenizer_config = {
        "model_max_length": config.max_length,
        "separate_vocabs": separate,
        "source_lang": config.source_language,
        "target_lang": config.target_language,
        "tokenizer_class": "MarianTokenizer",
    }
    arrays = _arrays(translator.model)
    write_family_files(translator, folder, model_config, generation, tokenizer_config, arrays)


def marian_problems(translator: Translator) -> list[str]:
    """Return the properties of a model and its tokenizers that the family does not support."""
    problems = unsupported_options(translator.model.config, MARIAN)
    if isinstance(translator.model.config, TransformerConfig):
        problems += _token_problems(translator)
    return problems


def _token_problems(translator: Translator) -> Iterator[str]:
    sides = _sides(translator)
    for name, side in zip(("source", "target"), sides, strict=True):
        if duplicates := [piece for piece, count in Counter(side.pieces).items() if count > 1]:
            yield (
                f"the piece '{duplicates[0]}' of the {name} tokenizer (expected another name: "
                "MarianMT uses this piece as a special token)"
            )
        if side.text_tags:
            yield (
                f"the piece '{side.text_tags[0]}' of the {name} tokenizer (expected language "
                "tokens only at the start of a word)"
            )
    if translator.model.config.tie_embeddings == "all" and sides[0].pieces != sides[1].pieces:
        yield (
            "tie_embeddings 'all' with tokenizers whose pieces differ (expected the same pieces on "
            "both sides)"
        )


def _sides(translator: Translator) -> tuple[SideFiles, SideFiles]:
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    protos = [ModelProto.FromString(tokenizer.model) for tokenizer in tokenizers]
    pieces = [*protos[0].pieces[UNKNOWN_ID + 1 :], *protos[1].pieces[UNKNOWN_ID + 1 :]]
    used = {piece.piece for piece in pieces}
    candidates = (f"<s{'_' * n}>" for n in range(len(used) + 1))
    start = next(name for name in candidates if name not in used)
    return _side(tokenizers[0], start), _side(tokenizers[1], start)


def _side(tokenizer: SubwordTokenizer, start: str) -> SideFiles:
    """Return the tokens of a tokenizer, with the family's names of special and language tokens.

    The family's tokenizer removes a language token from a text before the SentencePiece model
    segments the text.
    """
    proto = ModelProto.FromString(tokenizer.model)
    pieces = proto.pieces[UNKNOWN_ID + 1 :]
    text_tags = [
        piece.piece for piece in pieces if is_tag(piece.piece) and piece.type not in NEVER_FROM_TEXT
    ]
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    # An import normalizes the language tokens, for example to lowercase.
    spellings = {processor.normalize(tag): tag for tag in proto.trainer_spec.control_symbols}
    for piece in pieces:
        if piece.piece.startswith(MARK) and is_tag(piece.piece.removeprefix(MARK)):
            piece.piece = spellings.get(piece.piece, piece.piece.removeprefix(MARK))
            piece.type = Piece.UNUSED
    return SideFiles(
        [PAD_PIECE, start, END_PIECE, UNKNOWN_PIECE, *(piece.piece for piece in pieces)],
        text_tags,
        proto.SerializeToString(),
    )


def _arrays(model: Transformer) -> dict[str, np.ndarray]:
    """Return all arrays by the family's names."""
    weights = plain_attention(model)
    bias = weights.get("output/bias", np.zeros(model.config.target_vocab_size, "float32"))
    return {
        **restore_arrays(bart_arrays(model.config), weights),
        **_tables(model.config, weights),
        LOGITS_BIAS: bias[None],
    }


def _tables(config: TransformerConfig, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    source = weights["source_embedding/embeddings"]
    if config.tie_embeddings == "all":
        return {SHARED_TABLE: source}
    tables = {SOURCE_TABLE: source, TARGET_TABLE: weights["target_embedding/embeddings"]}
    if config.tie_embeddings == "none":
        tables[OUTPUT_TABLE] = weights["output/kernel"].T
    return tables
