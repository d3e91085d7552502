"""Pegasus in Hugging Face's layout: summaries by layers with norms before the sublayers.

The first rows of the table are the padding, the end token, and special tokens of pre-training. The
pieces of the SentencePiece model follow. The decoder starts with the padding token, as in MarianMT.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.hugging_face.bart_config import BartConfig
from tfk_transformer.importing.hugging_face.bart_layers import (
    LOGITS_BIAS,
    POSITION_TABLES,
    Array,
    check_sinusoids,
    read_arrays,
)
from tfk_transformer.importing.hugging_face.model_folder import (
    GENERATION,
    TOKENIZER_CONFIG,
    Arrays,
    check_model_files,
    open_arrays,
    read_optional_json,
)
from tfk_transformer.importing.hugging_face.multilingual import TABLE_NAMES, multilingual_arrays
from tfk_transformer.importing.hugging_face.search_notes import convert_search_settings
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages, check_no_languages
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    PAD_PIECE,
    UNKNOWN_PIECE,
    Vocabulary,
    check_special_rows,
    read_sentencepiece,
    remap_vocabulary,
    sentencepiece_model,
    special_rows,
)
from tfk_transformer.layers.position_encoding import position_table

FAMILY = "Pegasus"
SENTENCEPIECE_FILE = "spiece.model"
PEGASUS_TOKENIZERS = (None, "PegasusTokenizer", "PegasusTokenizerFast")
OFFSET = 103  # rows that the table has more than the SentencePiece model has pieces
# The first pieces of the SentencePiece model. The table has the first two at the same rows.
FIRST_PIECES = [PAD_PIECE, END_PIECE, UNKNOWN_PIECE]


class PegasusConfig(BartConfig):
    """The values of a config.json of Pegasus on which results depend."""

    tie_word_embeddings: Literal[True] = True
    # Only in folders of earlier versions. Other values would select another architecture.
    normalize_before: Literal[True] = True
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[True] = True
    static_position_embeddings: Literal[True] = True

    def _problems(self, *equal_values: tuple[str, str]) -> Iterator[str]:
        return super()._problems(*equal_values, ("pad_token_id", "decoder_start_token_id"))

    def to_transformer_config(self, vocab_size: int) -> TransformerConfig:
        """Return the configuration of an equivalent `Transformer`."""
        return TransformerConfig(
            source_vocab_size=vocab_size,
            target_vocab_size=vocab_size,
            split_sentences=False,
            max_length=self.max_position_embeddings,
            tie_embeddings="all",
            norm="pre",
            encoder_final_norm=True,
            decoder_final_norm=True,
            positions="sinusoidal_paper_halves",
            **self.common_options(),
        )


def read_pegasus(folder: Path, values: Mapping[str, Any], languages: Languages) -> Imported:
    """Read a folder of Pegasus.

    Args:
        folder: a folder with `spiece.model` and weights.
        values: the content of its config.json.
        languages: must be empty.

    Raises:
        ValueError: if languages are passed, files or arrays are missing or do not fit, or values
            are not supported.
    """
    check_no_languages(languages, FAMILY)
    hf_config = PegasusConfig(**values)
    check_model_files(folder, [SENTENCEPIECE_FILE])
    proto = read_sentencepiece(folder / SENTENCEPIECE_FILE)
    vocabulary = _vocabulary(proto, hf_config, folder)
    model = sentencepiece_model(proto, vocabulary)
    config = hf_config.to_transformer_config(len(vocabulary.pieces))
    arrays = _read_weights(open_arrays(folder), hf_config, config, vocabulary)
    search, notes = convert_search_settings(
        values,
        read_optional_json(folder / GENERATION),
        hf_config.max_position_embeddings,
        [[hf_config.pad_token_id]],
    )
    return Imported(config, arrays, model, model, FAMILY, search, notes)


def _vocabulary(proto: ModelProto, hf_config: PegasusConfig, folder: Path) -> Vocabulary:
    """Return the vocabulary that both sides share.

    The special tokens of pre-training stay without a name, so that they are not text.

    Raises:
        ValueError: if the tokenizer is of another class, or its pieces do not fit.
    """
    tokenizer = read_optional_json(folder / TOKENIZER_CONFIG)
    tokenizer_class = tokenizer.get("tokenizer_class")
    if tokenizer_class not in PEGASUS_TOKENIZERS:
        raise ValueError(
            f"tokenizer: expected the tokenizer_class PegasusTokenizer in {folder}, got "
            f"{shorten(repr(tokenizer_class))}, whose tokens have other rows."
        )
    offset = tokenizer.get("offset", OFFSET)
    if type(offset) is not int or offset < len(FIRST_PIECES) - 1:
        raise ValueError(
            f"tokenizer: expected an offset from 2 upward in {folder / TOKENIZER_CONFIG}, got "
            f"{shorten(repr(offset))}."
        )
    names = [piece.piece for piece in proto.pieces]
    if names[:3] != FIRST_PIECES:
        raise ValueError(
            f"tokenizer: expected {', '.join(FIRST_PIECES)} as the first pieces of "
            f"{folder / SENTENCEPIECE_FILE}, got {', '.join(names[:3])}."
        )
    rows = {name: index if index < 2 else index + offset for index, name in enumerate(names)}
    special = special_rows(rows)
    check_special_rows(special, hf_config.pad_token_id, hf_config.eos_token_id, folder)
    return remap_vocabulary(rows, hf_config.vocab_size, special)


def _read_weights(
    file: Arrays, hf_config: PegasusConfig, config: TransformerConfig, vocabulary: Vocabulary
) -> dict[str, np.ndarray]:
    """Return all weights of the model, read from a file.

    Raises:
        ValueError: if the arrays of the file do not match the configuration.
    """
    arrays = multilingual_arrays(file, hf_config, config, vocabulary)
    bias = Array(LOGITS_BIAS, (1, hf_config.vocab_size), np.ravel)
    weights = read_arrays(file, arrays, {*POSITION_TABLES, *TABLE_NAMES}, vocabulary, bias)
    positions = position_table(config.positions, config.max_length, config.model_dim)
    check_sinusoids(file, POSITION_TABLES, positions, FAMILY)
    return weights
