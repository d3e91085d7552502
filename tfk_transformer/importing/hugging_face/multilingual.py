"""What M2M100, NLLB and mBART-50 have in common: language tokens, one table, and norms before the
sublayers and after the stacks.

Their encoder reads the source language's token, the source and the end token. Their decoder starts
with the end token, and the target language's token comes first. Here the model puts the first of
these before every source and the end token before every target, and the target language's token has
the row of the start token.
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
    OUTPUT,
    SHARED,
    SOURCE,
    TARGET,
    Array,
    layers_of,
    norm_arrays,
)
from tfk_transformer.importing.hugging_face.model_folder import Arrays, one_of, read_json
from tfk_transformer.importing.languages import Languages, check_languages
from tfk_transformer.importing.vocabulary import (
    END,
    PAD,
    UNKNOWN,
    Piece,
    Vocabulary,
    arranged,
    check_special_rows,
    sentencepiece_model,
    special_rows,
    text_pieces,
)

MODEL, FAST = "sentencepiece.bpe.model", "tokenizer.json"
START, MASK = "<s>", "<mask>"
FIRST = (START, PAD, END, UNKNOWN)  # the rows 0 to 3 of fairseq
UNUSED = 2  # rows before the first position's in a table of positions
TABLES = (SHARED, SOURCE, TARGET, OUTPUT)  # names of the one table


class MultilingualConfig(BartConfig):
    """The values of a config.json that these families share."""

    pad_token_id: Literal[1]  # the row before the first position's
    tie_word_embeddings: Literal[True] = True

    def _equal_values(self) -> Sequence[tuple[str, str]]:
        return [*super()._equal_values(), ("eos_token_id", "decoder_start_token_id")]

    def multilingual_options(self, sides: "Sides") -> dict[str, Any]:
        """Return the options of a `TransformerConfig` that follow from these values and the
        languages.
        """
        size = len(sides.vocabulary.pieces)
        return {
            **self.common_options(),
            "source_vocab_size": size,
            "target_vocab_size": size,
            "tie_embeddings": "all",
            "max_length": self.max_position_embeddings - 1,  # the prefix has one
            "norm": "pre",
            "encoder_final_norm": True,
            "decoder_final_norm": True,
            "source_prefix": (sides.source_language,),
            "target_prefix": (END_ID,),
        }


class Tokens(NamedTuple):
    """The tokens of a folder: rows by piece, rows by language, and the SentencePiece model."""

    pieces: Mapping[str, int]  # those of the languages' tokens too
    languages: Mapping[str, int]
    model: ModelProto
    family: str


class Sides(NamedTuple):
    """The vocabulary of both sides in the order of this project's ids, for two languages."""

    vocabulary: Vocabulary
    model: bytes  # the SentencePiece model that has these ids
    source_language: int  # the id of its token


def read_sides(
    tokens: Tokens, given: MultilingualConfig, languages: Languages, folder: Path
) -> Sides:
    """Arrange the tokens of a folder for two languages.

    Raises:
        ValueError: if a language is missing or unknown, or if tokens are not those of the
            configuration.
    """
    check_languages(languages, tokens.languages, tokens.family)
    source, target = (tokens.languages[str(language)] for language in languages)
    special = special_rows(tokens.pieces)._replace(start=target)
    check_special_rows(special, given.pad_token_id, given.eos_token_id, folder)
    lacking = set(text_pieces(tokens.model)) - set(tokens.pieces)
    never = {special.pad, *tokens.languages.values()}
    vocabulary = arranged(tokens.pieces, given.vocab_size, special, lacking, never)
    # The start token comes first, and may have the same row.
    place = int(np.flatnonzero(vocabulary.rows == source)[-1])
    return Sides(
        vocabulary, sentencepiece_model(tokens.model, vocabulary, lacking=Piece.CONTROL), place
    )


def fairseq_pieces(model: ModelProto, path: Path) -> dict[str, int]:
    """Return the rows of a SentencePiece model's pieces as fairseq numbers them: four special
    tokens, then the pieces from the fourth on.

    Raises:
        ValueError: if the first three pieces of the model are other ones than fairseq's.
    """
    first = [piece.piece for piece in model.pieces[:3]]
    if first != [UNKNOWN, START, END]:
        raise ValueError(
            f"tokenizer: expected {UNKNOWN}, {START}, {END} as the first pieces of {path}, got "
            f"{', '.join(first)}."
        )
    return {
        name: row for row, name in enumerate([*FIRST, *(piece.piece for piece in model.pieces[3:])])
    }


def added_languages(folder: Path) -> dict[str, int]:
    """Return the rows of the languages' tokens in tokenizer.json: the special tokens that are
    added, but for those of every model.

    Raises:
        ValueError: if the file is broken, or has no languages.
    """
    added = read_json(folder / FAST).get("added_tokens", [])
    try:
        found = {
            str(token["content"]): token["id"]
            for token in added
            if token["special"] and token["content"] not in (*FIRST, MASK)
        }
    except (TypeError, KeyError):
        found = {}
    if not found:
        raise ValueError(
            "tokenizer: expected the languages' tokens as special added_tokens in "
            f"{folder / FAST}, got none."
        )
    return found


def multilingual_arrays(
    file: Arrays, given: MultilingualConfig, config: TransformerConfig, vocabulary: Vocabulary
) -> dict[str, Array]:
    """Return the arrays that these families share by the names that they have in a `Transformer`:
    the layers, norms and the table.

    The table of both sides and of the projection has one or several of its names in a file.
    """
    norms = [
        norm
        for stack in ("encoder", "decoder")
        for norm in norm_arrays(config, f"{stack}/final_norm", f"model.{stack}.layer_norm")
    ]
    table = Array(
        one_of(file, TABLES), (given.vocab_size, given.d_model), lambda rows: rows[vocabulary.rows]
    )
    return {**layers_of(file, config), **dict(norms), "source_embedding/embeddings": table}
