"""Write folders of MarianMT and M2M100 in Hugging Face's layout, without torch and transformers.

The rows of MarianMT's tables are this project's ids, so that the start token has a dedicated row.
M2M100's rows are reordered to fairseq's ids. Its target language gets the start token's row, which
training changes.
"""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.export.to_libraries import counterparts
from tfk_transformer.importing.hugging_face import bart, model_folder, multilingual
from tfk_transformer.importing.hugging_face.marian import MarianConfig
from tfk_transformer.importing.hugging_face.multilingual import M2M100_LANGUAGES, M2M100Config
from tfk_transformer.importing.hugging_face.search_notes import generation_settings
from tfk_transformer.importing.model_paths import CONFIG
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    NEVER_FROM_TEXT,
    NEVER_PREDICTED,
    PAD_PIECE,
    UNKNOWN_PIECE,
    WORD_MARK,
    Piece,
    is_tag,
    unused_name,
)
from tfk_transformer.importing.weights import restore_arrays
from tfk_transformer.pipelines.bundle import write_json
from tfk_transformer.pipelines.translator import Translator

SPECIAL_IDS = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
FAIRSEQ_SPECIAL_IDS = (UNKNOWN_ID + 1, PAD_ID, END_ID, UNKNOWN_ID)  # of M2M100's rows 0 to 3
FIRST_PIECE_ID = UNKNOWN_ID + 2  # the id of M2M100's row 4
UNNAMED_PIECE = "<row {}>"  # of a row without a piece, see `importing.vocabulary.Vocabulary`

Arrays = Mapping[str, np.ndarray]


class Table(NamedTuple):
    """The rows of M2M100's table."""

    pieces: list[str]  # of the rows before the languages
    language_set: str  # a key of `M2M100_LANGUAGES`
    languages: dict[str, int]  # the row of each language's token
    ids: list[int]  # this project's id of each row


def write_marian(translator: Translator, folder: Path) -> None:
    """Write a new folder that `MarianMTModel` and `MarianTokenizer` of transformers load.

    The translator has a `Transformer` in float32 without `marian_problems`.
    """
    _make_folder(folder, "MarianMT", marian_problems(translator))
    config = translator.model.config
    separate = not config.has_one_table
    files = {"source.spm": "vocab.json", "target.spm": "target_vocab.json"}
    for (name, vocabulary), (model, pieces) in zip(files.items(), _sides(translator), strict=True):
        (folder / name).write_bytes(model.SerializeToString())
        if separate or vocabulary == "vocab.json":
            write_json(folder / vocabulary, {piece: row for row, piece in enumerate(pieces)})
    weights = counterparts.plain_attention(translator.model)
    bias = weights.get("output/bias", np.zeros(config.target_vocab_size, "float32"))
    tables = {bart.SHARED_TABLE: weights["source_embedding/embeddings"]}
    if separate:
        tables = {
            bart.SOURCE_TABLE: weights["source_embedding/embeddings"],
            bart.TARGET_TABLE: weights["target_embedding/embeddings"],
        }
        if config.tie_embeddings == "none":
            tables[bart.OUTPUT_TABLE] = weights["output/kernel"].T
    _write_family_files(
        translator,
        folder,
        config={
            "architectures": ["MarianMTModel"],
            "model_type": "marian",
            "bos_token_id": None,
            # By default, the family's class ends translations that reach the length limit with
            # token 0.
            "forced_eos_token_id": None,
            **MarianConfig.from_transformer_config(config).model_dump(),
        },
        generation={
            # Padding and the start token are never predicted, as in this project.
            "bad_words_ids": [[PAD_ID], [START_ID]],
            "max_length": config.max_length,
        },
        tokenizer_config={
            "model_max_length": config.max_length,
            "separate_vocabs": separate,
            "source_lang": config.source_language,
            "target_lang": config.target_language,
            "tokenizer_class": "MarianTokenizer",
        },
        arrays={
            **restore_arrays(bart.bart_arrays(config), weights),
            **tables,
            bart.LOGITS_BIAS: bias[None],
        },
    )


def marian_problems(translator: Translator) -> list[str]:
    """Return the properties of a model and its tokenizers that MarianMT does not support."""
    problems = counterparts.unsupported_options(translator.model.config, counterparts.MARIAN)
    if not isinstance(translator.model.config, TransformerConfig):
        return problems
    sides = _sides(translator)
    for name, (model, pieces) in zip(("source", "target"), sides, strict=True):
        if duplicates := [piece for piece, count in Counter(pieces).items() if count > 1]:
            problems.append(
                f"the piece '{duplicates[0]}' of the {name} tokenizer (expected another name: "
                "MarianMT uses this piece as a special token)"
            )
        usual = [piece for piece in model.pieces if piece.type not in NEVER_FROM_TEXT]
        if anywhere := [piece.piece for piece in usual if is_tag(piece.piece)]:
            problems.append(
                f"the piece '{anywhere[0]}' of the {name} tokenizer (expected language "
                "tokens only at the start of a word)"
            )
    (_, source_pieces), (_, target_pieces) = sides
    if translator.model.config.has_one_table and source_pieces != target_pieces:
        problems.append(
            "tie_embeddings 'all' with tokenizers whose pieces differ (expected the same pieces on "
            "both sides)"
        )
    return problems


def _sides(translator: Translator) -> list[tuple[ModelProto, list[str]]]:
    """Return the SentencePiece model and the pieces by id of both sides, with MarianMT's names.

    MarianMT's tokenizer removes language tokens from a text before the model segments it.
    """
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    models = [ModelProto.FromString(tokenizer.model) for tokenizer in tokenizers]
    used = {piece.piece for model in models for piece in model.pieces[UNKNOWN_ID + 1 :]}
    start = unused_name("s", used)
    sides = []
    for tokenizer, model in zip(tokenizers, models, strict=True):
        processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
        # An import normalizes the language tokens, for example to lowercase.
        spellings = {processor.normalize(tag): tag for tag in model.trainer_spec.control_symbols}
        names = [PAD_PIECE, start, END_PIECE, UNKNOWN_PIECE]
        for piece in model.pieces[UNKNOWN_ID + 1 :]:
            if piece.piece.startswith(WORD_MARK) and is_tag(piece.piece.removeprefix(WORD_MARK)):
                piece.piece = spellings.get(piece.piece, piece.piece.removeprefix(WORD_MARK))
                piece.type = Piece.UNUSED
            names.append(piece.piece)
        sides.append((model, names))
    return sides


def write_m2m100(translator: Translator, folder: Path) -> None:
    """Write a new folder for `M2M100ForConditionalGeneration` and `M2M100Tokenizer`.

    The translator is for two languages, with a `Transformer` in float32 without `m2m100_problems`.
    """
    _make_folder(folder, "M2M100", m2m100_problems(translator))
    table = _table(translator)
    config = translator.model.config
    max_length = config.max_length + 1  # the language token takes a position
    origin = translator.origin
    target_row = table.languages[origin["target_language"]]
    (folder / multilingual.SENTENCEPIECE_FILE).write_bytes(translator.source_tokenizer.model)
    vocabulary = {piece: row for row, piece in enumerate(table.pieces)}
    write_json(folder / multilingual.VOCABULARY, vocabulary)
    weights = counterparts.plain_attention(translator.model)
    embeddings = weights["source_embedding/embeddings"]
    rows = embeddings[table.ids]
    rows[target_row] = embeddings[START_ID]
    # Padding and languages are never predicted, as in this project.
    never_predicted = [multilingual.FAIRSEQ_SPECIALS.index("<pad>"), *table.languages.values()]
    _write_family_files(
        translator,
        folder,
        config={
            "architectures": ["M2M100ForConditionalGeneration"],
            "model_type": "m2m_100",
            "bos_token_id": multilingual.FAIRSEQ_SPECIALS.index("<s>"),
            **M2M100Config.from_transformer_config(config, len(table.ids)).model_dump(),
        },
        generation={
            "bad_words_ids": [[row] for row in never_predicted],
            "forced_bos_token_id": target_row,
            "max_length": max_length,
        },
        tokenizer_config={
            "language_codes": table.language_set,
            "tokenizer_class": "M2M100Tokenizer",
            "src_lang": origin["source_language"],
            "tgt_lang": origin["target_language"],
            "model_max_length": max_length,
        },
        arrays={**restore_arrays(bart.bart_arrays(config), weights), bart.SHARED_TABLE: rows},
    )


def m2m100_problems(translator: Translator) -> list[str]:
    """Return the properties of a model and its tokenizers that M2M100 does not support."""
    config = translator.model.config
    if not isinstance(config, TransformerConfig):
        return counterparts.unsupported_options(config, counterparts.M2M100)
    # The table has a row for each language, so that any of them can be the source prefix.
    config = config.replace(source_prefix=())
    problems = counterparts.unsupported_options(config, counterparts.M2M100)
    family = translator.origin.get("family", "this library")
    one_tokenizer = translator.source_tokenizer.model == translator.target_tokenizer.model
    if family != "M2M100" or not one_tokenizer:
        return [*problems, f"tokenizers of {family} (expected tokenizers of an imported M2M100)"]
    table = _table(translator)
    codes = [translator.origin.get(f"{side}_language") for side in ("source", "target")]
    if wrong := [code for code in codes if code not in table.languages]:
        names = ", ".join(map(str, wrong))
        problems.append(f"languages {names} (expected languages of {table.language_set})")
    bias = np.asarray(translator.model.named_weights["output/bias"])
    if np.any((bias != 0) & (bias > NEVER_PREDICTED / 2)):
        problems.append(
            "an output bias other than 0, which training changed (expected 0: freeze it, as "
            "`train --from` does)"
        )
    return problems


def _table(translator: Translator) -> Table:
    proto = ModelProto.FromString(translator.source_tokenizer.model)
    pieces = [piece.piece for piece in proto.pieces]
    language_sets = [
        name
        for name, codes in M2M100_LANGUAGES.items()
        if f"__{codes[0]}__" in pieces and f"__{codes[-1]}__" in pieces
    ]
    language_set = max(language_sets, key=lambda name: len(M2M100_LANGUAGES[name]))
    codes = M2M100_LANGUAGES[language_set]
    first_language = min(pieces.index(f"__{code}__") for code in codes)
    end = first_language + len(codes)
    offset = FIRST_PIECE_ID - len(multilingual.FAIRSEQ_SPECIALS)  # from a row to its id
    while end < len(pieces) and pieces[end] == UNNAMED_PIECE.format(end - offset):
        end += 1
    named = [*multilingual.FAIRSEQ_SPECIALS, *pieces[FIRST_PIECE_ID:first_language]]
    languages = {code: row for row, code in enumerate(codes, start=len(named))}
    ids = [*FAIRSEQ_SPECIAL_IDS, *range(FIRST_PIECE_ID, end)]
    return Table(named, language_set, languages, ids)


def _make_folder(folder: Path, family: str, problems: list[str]) -> None:
    if problems:
        raise ValueError(
            f"model: expected options that {family} supports, got {'; '.join(problems)}."
        )
    folder.mkdir(parents=True)


def _write_family_files(
    translator: Translator,
    folder: Path,
    config: Mapping[str, Any],
    generation: Mapping[str, Any],
    tokenizer_config: Mapping[str, Any],
    arrays: Arrays,
) -> None:
    """Write the configurations, with the translator's license and search settings, and the weights.

    `config` has the ids of `SPECIAL_IDS`, which generation_config.json gets too.
    """
    license_name = translator.origin.get("license")
    license_entry = {"license": license_name} if license_name else {}
    write_json(folder / CONFIG, {"is_encoder_decoder": True, **license_entry, **config})
    ids = {name: config[name] for name in SPECIAL_IDS}
    leading_tokens = 1 + len(translator.model.config.target_prefix)
    settings = generation_settings(translator.search, config["eos_token_id"], leading_tokens)
    longest = min(settings.pop("max_length", math.inf), generation["max_length"])
    write_json(
        folder / model_folder.GENERATION, {**settings, **ids, **generation, "max_length": longest}
    )
    write_json(folder / model_folder.TOKENIZER_CONFIG, dict(tokenizer_config))
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    # transformers refuses a file without the name of a framework in its metadata.
    content = safetensors.numpy.save(contiguous, {"format": "pt"})
    (folder / model_folder.SAFETENSORS).write_bytes(content)
