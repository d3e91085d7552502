"""Pegasus in Hugging Face's layout: summaries by layers with norms before the sublayers.

The pieces follow the padding, the end token, and special tokens of pre-training in the table.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.hugging_face import bart, model_folder
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    PAD_PIECE,
    UNKNOWN_PIECE,
    SpecialRows,
    Vocabulary,
    read_sentencepiece,
)
from tfk_transformer.text.languages import Languages

FAMILY = "Pegasus"
SENTENCEPIECE_FILE = "spiece.model"
PEGASUS_TOKENIZERS = (None, "PegasusTokenizer", "PegasusTokenizerFast")
OFFSET = 103  # rows that the table has more than the SentencePiece model has pieces
# The first pieces of the SentencePiece model. The table has the first two at the same rows.
FIRST_PIECES = [PAD_PIECE, END_PIECE, UNKNOWN_PIECE]


class PegasusConfig(bart.BartConfig):
    """The values of a config.json of Pegasus on which results depend."""

    equal_values = (("pad_token_id", "decoder_start_token_id"),)
    family_options = {
        **bart.PRE_NORM_OPTIONS,
        "positions": "sinusoidal_paper_halves",
        "split_sentences": False,
    }

    tie_word_embeddings: Literal[True] = True
    # Only in folders of earlier versions. Other values would select another architecture.
    normalize_before: Literal[True] = True
    normalize_embedding: Literal[False] = False
    add_final_layer_norm: Literal[True] = True
    static_position_embeddings: Literal[True] = True


def read_pegasus(folder: Path, values: Mapping[str, Any], _: Languages) -> Imported:
    """Read a folder of Pegasus, whose models have one language."""
    hf_config = PegasusConfig(**values)
    model_folder.check_model_files(folder, [SENTENCEPIECE_FILE])
    proto = read_sentencepiece(folder / SENTENCEPIECE_FILE)
    vocabulary = _vocabulary(proto, hf_config, folder)
    side = (vocabulary, vocabulary.sentencepiece_model(proto))
    config = hf_config.to_transformer_config(vocabulary, vocabulary)
    never = [[hf_config.pad_token_id]]
    return bart.import_folder(folder, values, hf_config, config, side, side, FAMILY, never)


def _vocabulary(proto: ModelProto, hf_config: PegasusConfig, folder: Path) -> Vocabulary:
    """Return the vocabulary. Tokens of pre-training have no name, so that they are not text."""
    tokenizer = model_folder.read_optional_json(folder / model_folder.TOKENIZER_CONFIG)
    tokenizer_class = tokenizer.get("tokenizer_class")
    if tokenizer_class not in PEGASUS_TOKENIZERS:
        raise ValueError(
            f"tokenizer: expected the tokenizer_class PegasusTokenizer in {folder}, got "
            f"{shorten(repr(tokenizer_class))}, whose tokens have other rows."
        )
    offset = tokenizer.get("offset", OFFSET)
    if type(offset) is not int or offset < len(FIRST_PIECES) - 1:
        raise ValueError(
            "tokenizer: expected an offset from 2 upward in "
            f"{folder / model_folder.TOKENIZER_CONFIG}, got {shorten(repr(offset))}."
        )
    names = [piece.piece for piece in proto.pieces]
    if names[:3] != FIRST_PIECES:
        raise ValueError(
            f"tokenizer: expected {', '.join(FIRST_PIECES)} as the first pieces of "
            f"{folder / SENTENCEPIECE_FILE}, got {', '.join(names[:3])}."
        )
    rows = {name: index if index < 2 else index + offset for index, name in enumerate(names)}
    special = SpecialRows.of(rows)
    special.check(hf_config.pad_token_id, hf_config.eos_token_id, folder)
    return Vocabulary.remapped(rows, hf_config.vocab_size, special)
