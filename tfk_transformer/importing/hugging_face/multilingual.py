"""Common parts of M2M100, NLLB and mBART-50.

These families have language tokens, one embedding table, and layer norms before the sublayers and
after the stacks. Their encoder reads the source language's token, the source and the end token.
Their decoder reads the end token, the target language's token and the target.

Here the source language's token is the model's source prefix, and the end token is its target
prefix. The start token has the row of the target language's token.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID
from tfk_transformer.importing.hugging_face.bart_config import BartConfig
from tfk_transformer.importing.hugging_face.bart_layers import (
    OUTPUT_TABLE,
    SHARED_TABLE,
    SOURCE_TABLE,
    TARGET_TABLE,
    Array,
    layers_of,
    norm_arrays,
)
from tfk_transformer.importing.hugging_face.model_folder import Arrays, read_json, shared_array_name
from tfk_transformer.importing.languages import Languages, check_languages
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    PAD_PIECE,
    UNKNOWN_PIECE,
    Piece,
    Vocabulary,
    check_special_rows,
    remap_vocabulary,
    sentencepiece_model,
    special_rows,
    text_pieces,
)

SENTENCEPIECE_FILE = "sentencepiece.bpe.model"
FAST_TOKENIZER_FILE = "tokenizer.json"
START_PIECE = "<s>"
FAIRSEQ_SPECIALS = (START_PIECE, PAD_PIECE, END_PIECE, UNKNOWN_PIECE)  # rows 0 to 3 in fairseq
UNUSED_POSITIONS = 2  # rows of a position table before the row of the first position
TABLE_NAMES = (SHARED_TABLE, SOURCE_TABLE, TARGET_TABLE, OUTPUT_TABLE)  # of the only table


class MultilingualConfig(BartConfig):
    """The values of a config.json that these families share."""

    pad_token_id: Literal[1]  # the row before the row of the first position
    tie_word_embeddings: Literal[True] = True

    def _equal_values(self) -> Sequence[tuple[str, str]]:
        return [*super()._equal_values(), ("eos_token_id", "decoder_start_token_id")]

    def multilingual_options(self, sides: "Sides") -> dict[str, Any]:
        """Return the `TransformerConfig` options derived from these values and the languages."""
        size = len(sides.vocabulary.pieces)
        return {
            **self.common_options(),
            "source_vocab_size": size,
            "target_vocab_size": size,
            "tie_embeddings": "all",
            "max_length": self.max_position_embeddings - 1,  # the prefix has one position
            "norm": "pre",
            "encoder_final_norm": True,
            "decoder_final_norm": True,
            "source_prefix": (sides.source_language,),
            "target_prefix": (END_ID,),
        }


class Tokens(NamedTuple):
    """The tokens of a folder."""

    pieces: Mapping[str, int]  # the row of each piece, including the languages' tokens
    languages: Mapping[str, int]  # the row of each language's token
    model: ModelProto
    family: str


class Sides(NamedTuple):
    """The vocabulary that both sides share, with this project's ids, for two languages."""

    vocabulary: Vocabulary
    model: bytes  # a SentencePiece model with these ids
    source_language: int  # the id of its token


def read_sides(
    tokens: Tokens, hf_config: MultilingualConfig, languages: Languages, folder: Path
) -> Sides:
    """Map the tokens of a folder to this project's ids, for two languages.

    Raises:
        ValueError: if a language is missing or unknown, or if tokens do not match the
            configuration.
    """
    check_languages(languages, tokens.languages, tokens.family)
    source_row, target_row = (tokens.languages[str(language)] for language in languages)
    special = special_rows(tokens.pieces)._replace(start=target_row)
    check_special_rows(special, hf_config.pad_token_id, hf_config.eos_token_id, folder)
    added = set(text_pieces(tokens.model)) - set(tokens.pieces)
    never = {special.pad, *tokens.languages.values()}
    vocabulary = remap_vocabulary(tokens.pieces, hf_config.vocab_size, special, added, never)
    model = sentencepiece_model(tokens.model, vocabulary, missing_type=Piece.CONTROL)
    # The last id with this row: the start token, which precedes it, may have the same row.
    source_language = int(np.flatnonzero(vocabulary.rows == source_row)[-1])
    return Sides(vocabulary, model, source_language)


def fairseq_pieces(model: ModelProto, path: Path) -> dict[str, int]:
    """Return fairseq's rows of the pieces of a SentencePiece model.

    Rows 0 to 3 are fairseq's special tokens. The model's pieces from the fourth one on follow.

    Raises:
        ValueError: if the first three pieces of the model differ from fairseq's.
    """
    names = [piece.piece for piece in model.pieces]
    if names[:3] != [UNKNOWN_PIECE, START_PIECE, END_PIECE]:
        raise ValueError(
            f"tokenizer: expected {UNKNOWN_PIECE}, {START_PIECE}, {END_PIECE} as the first pieces "
            f"of {path}, got {', '.join(names[:3])}."
        )
    return {name: row for row, name in enumerate([*FAIRSEQ_SPECIALS, *names[3:]])}


def added_languages(folder: Path) -> dict[str, int]:
    """Return the rows of the languages' tokens in tokenizer.json.

    These are the added special tokens other than the special tokens of every model.

    Raises:
        ValueError: if the file is broken, or has no languages.
    """
    added = read_json(folder / FAST_TOKENIZER_FILE).get("added_tokens", [])
    try:
        languages = {
            str(token["content"]): token["id"]
            for token in added
            if token["special"] and token["content"] not in (*FAIRSEQ_SPECIALS, "<mask>")
        }
    except (TypeError, KeyError):
        languages = {}
    if not languages:
        raise ValueError(
            "tokenizer: expected the languages' tokens as special added_tokens in "
            f"{folder / FAST_TOKENIZER_FILE}, got none."
        )
    return languages


def multilingual_arrays(
    file: Arrays, hf_config: MultilingualConfig, config: TransformerConfig, vocabulary: Vocabulary
) -> dict[str, Array]:
    """Return the arrays that these families share, by their names in a `Transformer`.

    The arrays are the layers, the final norms and the table, which both sides and the projection
    share. In a file, the table has one or several of its names.
    """
    table = Array(
        shared_array_name(file, TABLE_NAMES),
        (hf_config.vocab_size, hf_config.d_model),
        lambda rows: rows[vocabulary.rows],
    )
    return {
        **layers_of(file, config),
        **final_norm_arrays(config),
        "source_embedding/embeddings": table,
    }


def final_norm_arrays(config: TransformerConfig) -> dict[str, Array]:
    """Return the arrays of the layer norms after the stacks, by their names in a `Transformer`."""
    return {
        **dict(norm_arrays(config, "encoder/final_norm", "model.encoder.layer_norm")),
        **dict(norm_arrays(config, "decoder/final_norm", "model.decoder.layer_norm")),
    }
