"""Common parts of M2M100, NLLB, SMaLL-100 and mBART.

These families have language tokens, one embedding table, and layer norms before the sublayers and
after the stacks. They differ in the places of the language tokens, see `LanguageLayout`.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES
from tfk_transformer.config.words import shorten
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
from tfk_transformer.importing.hugging_face.model_folder import (
    GENERATION,
    Arrays,
    open_arrays,
    read_optional_json,
    shared_array_name,
)
from tfk_transformer.importing.hugging_face.search_notes import convert_search_settings
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages, check_languages
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    PAD_PIECE,
    UNKNOWN_PIECE,
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


class LanguageLayout(NamedTuple):
    """The tokens that a family adds to sources and targets.

    Each is the token of a language, "source" or "target", or the end token, "end". The defaults are
    the tokens of M2M100, NLLB and mBART-50.
    """

    prefix: tuple[str, ...] = ("source",)  # before a source
    suffix: tuple[str, ...] = ()  # after the end token of a source
    # Before a target. The last one is the start token here, which has its row.
    start: tuple[str, ...] = ("end", "target")


class MultilingualConfig(BartConfig):
    """The values of a config.json that these families share."""

    family_options: ClassVar[dict[str, Any]]  # `TransformerConfig` options of a family

    pad_token_id: Literal[1]  # the row before the row of the first position
    tie_word_embeddings: Literal[True] = True

    def _problems(self, *equal_values: tuple[str, str]) -> Iterator[str]:
        return super()._problems(*equal_values, ("eos_token_id", "decoder_start_token_id"))

    def to_transformer_config(
        self, vocab_size: int, layout: LanguageLayout, ids: Mapping[str, int]
    ) -> TransformerConfig:
        """Return the configuration of an equivalent `Transformer` for two languages.

        Args:
            vocab_size: the size of the vocabulary that both sides share.
            layout: the family's layout.
            ids: the ids of its tokens.
        """
        additions = len(layout.prefix) + len(layout.suffix)
        return TransformerConfig(
            source_vocab_size=vocab_size,
            target_vocab_size=vocab_size,
            tie_embeddings="all",
            # Added tokens have positions, too.
            max_length=self.max_position_embeddings - max(additions, len(layout.start) - 1),
            norm="pre",
            encoder_final_norm=True,
            decoder_final_norm=True,
            source_prefix=tuple(ids[name] for name in layout.prefix),
            source_suffix=tuple(ids[name] for name in layout.suffix),
            target_prefix=tuple(ids[name] for name in layout.start[:-1]),
            **self.common_options(),
            **self.family_options,
        )


class Tokens(NamedTuple):
    """The tokens of a folder."""

    pieces: Mapping[str, int]  # the row of each piece, including the languages' tokens
    languages: Mapping[str, int]  # the row of each language's token
    model: ModelProto
    family: str
    layout: LanguageLayout = LanguageLayout()


ReadWeights = Callable[
    [Arrays, MultilingualConfig, TransformerConfig, Vocabulary], dict[str, np.ndarray]
]


def read_multilingual(
    folder: Path,
    values: Mapping[str, Any],
    languages: Languages,
    hf_config: MultilingualConfig,
    tokens: Tokens,
    read_weights: ReadWeights,
) -> Imported:
    """Read a folder of one of these families.

    Args:
        folder: the folder.
        values: the content of its config.json.
        languages: the languages, by the family's codes.
        hf_config: the validated values of its config.json.
        tokens: its tokens.
        read_weights: returns all weights of the model, given the file of the weights, `hf_config`,
            the configuration of the `Transformer`, and its vocabulary.

    Raises:
        ValueError: if a language is missing or unknown, or files or arrays are missing or do not
            fit.
    """
    layout = tokens.layout
    sides = {*layout.prefix, *layout.suffix, *layout.start}
    check_languages(languages, tokens.languages, tokens.family, sides)
    rows = {
        side: tokens.languages[language]
        for side, language in languages._asdict().items()
        if language is not None
    }
    rows["end"] = tokens.pieces[END_PIECE]
    vocabulary = _vocabulary(tokens, hf_config, rows[layout.start[-1]], folder)
    model = sentencepiece_model(tokens.model, vocabulary)
    # The last id with this row: the start token, which precedes it, may have the same row.
    ids = {name: int(np.flatnonzero(vocabulary.rows == row)[-1]) for name, row in rows.items()}
    config = hf_config.to_transformer_config(len(vocabulary.pieces), layout, ids)
    arrays = read_weights(open_arrays(folder), hf_config, config, vocabulary)
    search, notes = convert_search_settings(
        values,
        read_optional_json(folder / GENERATION),
        hf_config.max_position_embeddings,
        [[row] for row in (hf_config.pad_token_id, *tokens.languages.values())],
        leading_tokens=len(layout.start),
        replaced=["forced_bos_token_id", "decoder_start_token_id"],
    )
    return Imported(config, arrays, model, model, tokens.family, search, notes, languages)


def _vocabulary(
    tokens: Tokens, hf_config: MultilingualConfig, start_row: int, folder: Path
) -> Vocabulary:
    """Return the vocabulary that both sides share; the start token has the row `start_row`.

    Raises:
        ValueError: if tokens do not match the configuration.
    """
    special = special_rows(tokens.pieces)._replace(start=start_row)
    check_special_rows(special, hf_config.pad_token_id, hf_config.eos_token_id, folder)
    added = set(text_pieces(tokens.model)) - set(tokens.pieces)
    never = {special.pad, *tokens.languages.values()}
    return remap_vocabulary(tokens.pieces, hf_config.vocab_size, special, added, never)


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
    values = read_optional_json(folder / FAST_TOKENIZER_FILE, MAX_VOCABULARY_BYTES)
    added = values.get("added_tokens", [])
    try:
        languages = {
            str(token["content"]): token["id"]
            for token in added
            if token["special"] and token["content"] not in (*FAIRSEQ_SPECIALS, "<mask>")
        }
    except (TypeError, KeyError):
        languages = {}
    if not languages or not all(type(row) is int for row in languages.values()):
        got = shorten(str(languages)) if languages else "none"
        raise ValueError(
            "tokenizer: expected the languages' tokens as special added_tokens in "
            f"{folder / FAST_TOKENIZER_FILE}, got {got}."
        )
    return languages


def multilingual_arrays(
    file: Arrays, hf_config: BartConfig, config: TransformerConfig, vocabulary: Vocabulary
) -> dict[str, Array]:
    """Return the arrays that these families and Pegasus share, by their names in a `Transformer`.

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
