"""Write an imported M2M100 as a folder in Hugging Face's layout, without torch and transformers.

This is the reverse of `importing/hugging_face/multilingual.py`. Rows are reordered from this
project's ids to fairseq's. The target language gets the start token's row, which training changes.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.export.to_libraries.counterparts import M2M100, unsupported_options
from tfk_transformer.export.to_libraries.hugging_face_folder import write_family_files
from tfk_transformer.export.to_libraries.plain_attention import plain_attention
from tfk_transformer.importing.hugging_face.bart import SHARED_TABLE, bart_arrays, restore_arrays
from tfk_transformer.importing.hugging_face.multilingual import (
    FAIRSEQ_SPECIALS,
    M2M100_LANGUAGES,
    SENTENCEPIECE_FILE,
    VOCABULARY,
    M2M100Config,
)
from tfk_transformer.importing.vocabulary import NEVER_PREDICTED
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.bundle import write_json
from tfk_transformer.pipelines.translator import Translator

FAIRSEQ_SPECIAL_IDS = (UNKNOWN_ID + 1, PAD_ID, END_ID, UNKNOWN_ID)  # of the family's rows 0 to 3
FIRST_PIECE_ID = UNKNOWN_ID + 2  # the id of the family's row 4
UNNAMED_PIECE = "<row {}>"  # of a row without a piece, see `importing.vocabulary.remap_vocabulary`


class Table(NamedTuple):
    """The rows of the family's table."""

    pieces: list[str]  # the pieces of the rows before the languages
    language_set: str  # a key of `M2M100_LANGUAGES`
    rows: list[int]  # this project's id of each row

    @property
    def languages(self) -> dict[str, int]:
        """The row of each language's token."""
        codes = M2M100_LANGUAGES[self.language_set]
        return {code: len(self.pieces) + i for i, code in enumerate(codes)}


def write_m2m100(translator: Translator, folder: Path) -> None:
    """Write a folder for `M2M100ForConditionalGeneration` and `M2M100Tokenizer` of transformers.

    Args:
        translator: a translator for two languages with a `Transformer` in float32.
        folder: a new folder.

    Raises:
        ValueError: names everything that the family does not support.
    """
    if problems := m2m100_problems(translator):
        raise ValueError(
            f"model: expected options that M2M100 supports, got {'; '.join(problems)}."
        )
    table = _table(translator)
    config = translator.model.config
    max_length = config.max_length + 1  # the language token takes a position
    origin = translator.origin
    target_row = table.languages[origin["target_language"]]
    folder.mkdir(parents=True)
    (folder / SENTENCEPIECE_FILE).write_bytes(translator.source_tokenizer.model)
    write_json(folder / VOCABULARY, {piece: row for row, piece in enumerate(table.pieces)})
    model_config = {
        "architectures": ["M2M100ForConditionalGeneration"],
        "model_type": "m2m_100",
        "bos_token_id": FAIRSEQ_SPECIALS.index("<s>"),
        **M2M100Config.from_transformer_config(config, len(table.rows)).model_dump(),
    }
    # Padding and languages are never predicted, as in this project.
    never_predicted = [FAIRSEQ_SPECIALS.index("<pad>"), *table.languages.values()]
    generation = {
        "bad_words_ids": [[row] for row in never_predicted],
        "forced_bos_token_id": target_row,
        "max_length": max_length,
    }
    tokenizer_config = {
        "language_codes": table.language_set,
        "tokenizer_class": "M2M100Tokenizer",
        "src_lang": origin["source_language"],
        "tgt_lang": origin["target_language"],
        "model_max_length": max_length,
    }
    arrays = _arrays(translator.model, table.rows, target_row)
    write_family_files(translator, folder, model_config, generation, tokenizer_config, arrays)


def m2m100_problems(translator: Translator) -> list[str]:
    """Return the properties of a model and its tokenizers that the family does not support."""
    config = translator.model.config
    if not isinstance(config, TransformerConfig):
        return unsupported_options(config, M2M100)
    # The table has a row for each language, so that any of them can be the source prefix.
    problems = unsupported_options(config.replace(source_prefix=()), M2M100)
    return [*problems, *_token_problems(translator)]


def _token_problems(translator: Translator) -> Iterator[str]:
    family = translator.origin.get("family", "this library")
    one_tokenizer = translator.source_tokenizer.model == translator.target_tokenizer.model
    if family != "M2M100" or not one_tokenizer:
        yield f"tokenizers of {family} (expected tokenizers of an imported M2M100)"
        return
    table = _table(translator)
    codes = [translator.origin.get(f"{side}_language") for side in ("source", "target")]
    if wrong := [code for code in codes if code not in table.languages]:
        yield f"languages {', '.join(map(str, wrong))} (expected languages of {table.language_set})"
    bias = np.asarray(translator.model.named_weights["output/bias"])
    if np.any((bias != 0) & (bias > NEVER_PREDICTED / 2)):
        yield (
            "an output bias other than 0, which training changed (expected 0: freeze it, as "
            "`train --from` does)"
        )


def _table(translator: Translator) -> Table:
    pieces = [
        piece.piece for piece in ModelProto.FromString(translator.source_tokenizer.model).pieces
    ]
    language_sets = [
        name
        for name, codes in M2M100_LANGUAGES.items()
        if f"__{codes[0]}__" in pieces and f"__{codes[-1]}__" in pieces
    ]
    language_set = max(language_sets, key=lambda name: len(M2M100_LANGUAGES[name]))
    codes = M2M100_LANGUAGES[language_set]
    first_language = min(pieces.index(f"__{code}__") for code in codes)
    end = first_language + len(codes)
    offset = FIRST_PIECE_ID - len(FAIRSEQ_SPECIALS)  # from a row to its id
    while end < len(pieces) and pieces[end] == UNNAMED_PIECE.format(end - offset):
        end += 1
    return Table(
        [*FAIRSEQ_SPECIALS, *pieces[FIRST_PIECE_ID:first_language]],
        language_set,
        [*FAIRSEQ_SPECIAL_IDS, *range(FIRST_PIECE_ID, end)],
    )


def _arrays(model: Transformer, ids: Sequence[int], target_row: int) -> dict[str, np.ndarray]:
    """Return all arrays by the family's names.

    Args:
        model: the model.
        ids: this project's id of each row of the family's table.
        target_row: the row of the target language's token.
    """
    weights = plain_attention(model)
    embeddings = weights["source_embedding/embeddings"]
    table = embeddings[ids]
    table[target_row] = embeddings[START_ID]
    return {**restore_arrays(bart_arrays(model.config), weights), SHARED_TABLE: table}
