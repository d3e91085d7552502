"""An imported M2M100 as a folder in Hugging Face's layout again, written without torch and
transformers.

It is the reverse of `importing/hugging_face/m2m100.py`. The rows of the family's table are this
project's ids again in the order of fairseq; the target language's row is that of the start token,
which is the one that training changes.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.export.to_libraries.counterparts import M2M100, unsupported_options
from tfk_transformer.export.to_libraries.plain_attention import plain_attention
from tfk_transformer.importing.hugging_face.bart_layers import SHARED, layer_arrays, norm_arrays
from tfk_transformer.importing.hugging_face.m2m100 import (
    M2M100_LANGUAGES,
    TOKENIZER_CONFIG,
    VOCABULARY,
    M2M100Config,
)
from tfk_transformer.importing.hugging_face.model_folder import CONFIG, GENERATION, SAFETENSORS
from tfk_transformer.importing.hugging_face.multilingual import FIRST, MODEL
from tfk_transformer.importing.vocabulary import NEVER_PREDICTED
from tfk_transformer.pipelines.bundle import write_json
from tfk_transformer.pipelines.translator import Translator

FIRST_IDS = (UNKNOWN_ID + 1, PAD_ID, END_ID, UNKNOWN_ID)  # of the family's rows 0 to 3
OTHERS = UNKNOWN_ID + 2  # the first id of the other rows
UNNAMED = "<row {}>"  # of a row that no piece has, see `importing.vocabulary.arranged`


class Table(NamedTuple):
    """The rows of the family's table."""

    pieces: list[str]  # of the rows before the languages
    kind: str  # the languages' name, a key of `M2M100_LANGUAGES`
    rows: list[int]  # this project's id of each row

    @property
    def languages(self) -> dict[str, int]:
        """The row of each language's token."""
        return {code: len(self.pieces) + i for i, code in enumerate(M2M100_LANGUAGES[self.kind])}


def write_m2m100(translator: Translator, folder: Path) -> None:
    """Write a folder that `M2M100ForConditionalGeneration` and `M2M100Tokenizer` of transformers
    load.

    Args:
        translator: with a `Transformer` in float32, for two languages.
        folder: a new folder.

    Raises:
        ValueError: with everything that the family lacks.
    """
    if problems := m2m100_problems(translator):
        raise ValueError(f"model: expected one that M2M100 can hold, got {'; '.join(problems)}.")
    table = _table(translator)
    folder.mkdir(parents=True)
    (folder / MODEL).write_bytes(translator.source_tokenizer.model)
    write_json(folder / VOCABULARY, {piece: row for row, piece in enumerate(table.pieces)})
    write_json(folder / CONFIG, _config(translator, table))
    write_json(folder / GENERATION, _generation(translator, table))
    write_json(folder / TOKENIZER_CONFIG, _tokenizer_config(translator, table))
    # transformers refuses a file without this note of the framework that its arrays are for.
    (folder / SAFETENSORS).write_bytes(
        safetensors.numpy.save(_arrays(translator, table), {"format": "pt"})
    )


def m2m100_problems(translator: Translator) -> list[str]:
    """Return everything that the family lacks: options and biases of the model, and properties of
    the tokenizers.
    """
    config = translator.model.config
    if not isinstance(config, TransformerConfig):
        return unsupported_options(config, M2M100)
    # The table has a row for each language, so any one may come first.
    problems = unsupported_options(config.replace(source_prefix=()), M2M100)
    return [*problems, *_token_problems(translator)]


def _token_problems(translator: Translator) -> Iterator[str]:
    codes = [translator.origin.get(f"{side}_language") for side in ("source", "target")]
    if (
        translator.origin.get("family") != "M2M100"
        or translator.source_tokenizer.model != translator.target_tokenizer.model
    ):
        yield (
            f"tokenizers of {translator.origin.get('family', 'this library')} (expected those "
            "of an imported M2M100)"
        )
        return
    table = _table(translator)
    if wrong := [code for code in codes if code not in table.languages]:
        yield f"languages {', '.join(map(str, wrong))} (expected those of {table.kind})"
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
    kinds = [
        kind
        for kind, codes in M2M100_LANGUAGES.items()
        if f"__{codes[0]}__" in pieces and f"__{codes[-1]}__" in pieces
    ]
    kind = max(kinds, key=lambda kind: len(M2M100_LANGUAGES[kind]))
    first = min(pieces.index(f"__{code}__") for code in M2M100_LANGUAGES[kind])
    end = first + len(M2M100_LANGUAGES[kind])
    while end < len(pieces) and pieces[end] == UNNAMED.format(end - OTHERS + len(FIRST)):
        end += 1
    return Table([*FIRST, *pieces[OTHERS:first]], kind, [*FIRST_IDS, *range(OTHERS, end)])


def _config(translator: Translator, table: Table) -> dict[str, Any]:
    names = {
        "architectures": ["M2M100ForConditionalGeneration"],
        "model_type": "m2m_100",
        "is_encoder_decoder": True,
    }
    licence = {"license": translator.origin["license"]} if translator.origin.get("license") else {}
    values = M2M100Config.of_options(translator.model.config, len(table.rows)).model_dump()
    return {**names, "bos_token_id": FIRST.index("<s>"), **licence, **values}


def _generation(translator: Translator, table: Table) -> dict[str, Any]:
    """Return the content of generation_config.json. Padding and languages are never predicted, as
    in this project.
    """
    never = [FIRST.index("<pad>"), *table.languages.values()]
    return {
        "bad_words_ids": [[row] for row in never],
        "decoder_start_token_id": FIRST.index("</s>"),
        "eos_token_id": FIRST.index("</s>"),
        "forced_bos_token_id": table.languages[translator.origin["target_language"]],
        "max_length": translator.model.config.max_length + 1,
        "num_beams": translator.origin.get("search", {}).get(
            "beam_size", SearchSettings().beam_size
        ),
        "pad_token_id": FIRST.index("<pad>"),
    }


def _tokenizer_config(translator: Translator, table: Table) -> dict[str, Any]:
    languages = {
        "src_lang": translator.origin["source_language"],
        "tgt_lang": translator.origin["target_language"],
    }
    kind = {"language_codes": table.kind, "tokenizer_class": "M2M100Tokenizer"}
    return {**kind, **languages, "model_max_length": translator.model.config.max_length + 1}


def _arrays(translator: Translator, table: Table) -> dict[str, np.ndarray]:
    """Return all arrays by the family's names."""
    config = translator.model.config
    weights = plain_attention(
        config,
        {name: np.asarray(weight) for name, weight in translator.model.named_weights.items()},
    )
    norms = [
        norm
        for stack in ("encoder", "decoder")
        for norm in norm_arrays(config, f"{stack}/final_norm", f"model.{stack}.layer_norm")
    ]
    # Biases that the model lacks are zeros there.
    wanted = {**layer_arrays(config), **dict(norms)}
    found = {
        a.name: a.restore(weights[name]) if name in weights else np.zeros(a.shape, "float32")
        for name, a in wanted.items()
    }
    rows = weights["source_embedding/embeddings"][table.rows]
    rows[table.languages[translator.origin["target_language"]]] = weights[
        "source_embedding/embeddings"
    ][START_ID]
    return {name: np.ascontiguousarray(array) for name, array in {**found, SHARED: rows}.items()}
