"""M2M100 and NLLB in Hugging Face's layout: one class of models, with two kinds of tokenizers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.hugging_face.bart_config import common_values
from tfk_transformer.importing.hugging_face.bart_layers import read_arrays
from tfk_transformer.importing.hugging_face.model_folder import (
    GENERATION,
    Arrays,
    check_model_files,
    open_arrays,
    read_json,
    read_pieces,
)
from tfk_transformer.importing.hugging_face.multilingual import (
    FAST,
    FIRST,
    MODEL,
    TABLES,
    UNUSED,
    MultilingualConfig,
    Sides,
    Tokens,
    added_languages,
    fairseq_pieces,
    multilingual_arrays,
    read_sides,
)
from tfk_transformer.importing.hugging_face.search_notes import known_settings
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages
from tfk_transformer.importing.vocabulary import END, PAD, parsed_model
from tfk_transformer.layers.position_encoding import position_table

VOCABULARY, TOKENIZER_CONFIG = "vocab.json", "tokenizer_config.json"
# In files of earlier versions.
M2M100_POSITIONS = (
    "model.encoder.embed_positions.weights",
    "model.decoder.embed_positions.weights",
)
# Their tokens follow the pieces of vocab.json in this order, by `language_codes` of
# tokenizer_config.json.
M2M100_LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga "
    "gd gl gu ha he hi hr ht hu hy id ig ilo "
    "is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps "
    "pt ro ru sd si sk sl so sq sr ss su sv "
    "sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu".split(),
    "wmt21": "en ha is ja cs ru zh de".split(),
}


class M2M100Config(MultilingualConfig):
    """The values of a config.json of M2M100 or NLLB on which results depend."""

    attention_dropout: float = 0.1

    def to_options(self, sides: Sides) -> TransformerConfig:
        """Return the options of a `Transformer` that computes the same."""
        return TransformerConfig(
            positions="sinusoidal_halves",
            position_offset=UNUSED,
            **self.multilingual_options(sides),
        )

    @classmethod
    def of_options(cls, config: TransformerConfig, rows: int) -> Self:
        """Return the values for a `Transformer` whose table gets this number of rows; the reverse
        of `to_options`.
        """
        return cls(
            **common_values(config),
            vocab_size=rows,
            max_position_embeddings=config.max_length + 1,  # the language's token has one
            pad_token_id=FIRST.index(PAD),
            eos_token_id=FIRST.index(END),
            decoder_start_token_id=FIRST.index(END),
        )


def read_m2m100(folder: Path, values: Mapping[str, Any], languages: Languages) -> Imported:
    """Read a folder of M2M100, which has `vocab.json`, or of NLLB, which has `tokenizer.json`.

    Args:
        folder: with `sentencepiece.bpe.model`, one of these files, and weights.
        values: its config.json.
        languages: codes such as "de" (M2M100) or "deu_Latn" (NLLB).

    Raises:
        ValueError: if a language is missing or unknown, files or arrays are missing or do not fit,
            or values are not supported.
    """
    given = M2M100Config(**values)
    tokens = _tokens(folder)
    sides = read_sides(tokens, given, languages, folder)
    config = given.to_options(sides)
    arrays = _arrays(open_arrays(folder), given, config, sides)
    files = [values, read_json(folder / GENERATION)]
    search, notes = known_settings(
        files, given.max_position_embeddings, [], started=2, chosen=["forced_bos_token_id"]
    )
    return Imported(
        config, arrays, sides.model, sides.model, tokens.family, search, notes, languages
    )


def _tokens(folder: Path) -> Tokens:
    """Read the tokens of M2M100, if there is a vocab.json, or of NLLB."""
    own = (folder / VOCABULARY).is_file()
    check_model_files(folder, [MODEL, VOCABULARY if own else FAST])
    model = parsed_model((folder / MODEL).read_bytes(), str(folder / MODEL))
    if not own:
        languages = added_languages(folder)
        return Tokens(
            {**fairseq_pieces(model, folder / MODEL), **languages}, languages, model, "NLLB"
        )
    pieces = read_pieces(folder / VOCABULARY)
    kind = read_json(folder / TOKENIZER_CONFIG).get("language_codes", "m2m100")
    if not isinstance(kind, str) or kind not in M2M100_LANGUAGES:
        raise ValueError(
            f"tokenizer: expected language_codes {' or '.join(M2M100_LANGUAGES)} in "
            f"{folder / TOKENIZER_CONFIG}, got {kind!r}."
        )
    languages = {code: len(pieces) + i for i, code in enumerate(M2M100_LANGUAGES[kind])}
    return Tokens(
        {**pieces, **{f"__{code}__": row for code, row in languages.items()}},
        languages,
        model,
        "M2M100",
    )


def _arrays(
    file: Arrays, given: M2M100Config, config: TransformerConfig, sides: Sides
) -> dict[str, np.ndarray]:
    """Return all weights of the model, read from a file.

    Raises:
        ValueError: if the arrays of the file are not those of the configuration.
    """
    wanted = multilingual_arrays(file, given, config, sides.vocabulary)
    arrays = read_arrays(file, wanted, {*M2M100_POSITIONS, *TABLES}, sides.vocabulary, rows=None)
    _check_positions(file, given, config)
    return arrays


def _check_positions(file: Arrays, given: M2M100Config, config: TransformerConfig) -> None:
    """Refuse a file with other positions than the family's."""
    table = position_table(
        config.positions, UNUSED + given.max_position_embeddings, config.model_dim
    )
    table[given.pad_token_id] = 0
    for name in M2M100_POSITIONS:
        if name in file.shapes and not (
            file.shapes[name] == table.shape and np.allclose(file.read(name), table, atol=1e-3)
        ):
            raise ValueError(
                f"folder: expected the sinusoids of M2M100 as '{name}' of {file.path}, got "
                "another table."
            )
