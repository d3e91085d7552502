"""mBART-50 in Hugging Face's layout: learned positions, and a norm on the sum of embeddings and
positions.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.hugging_face.bart_layers import Array, norm_arrays, read_arrays
from tfk_transformer.importing.hugging_face.model_folder import (
    GENERATION,
    Arrays,
    check_model_files,
    open_arrays,
    read_json,
)
from tfk_transformer.importing.hugging_face.multilingual import (
    FAST,
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
from tfk_transformer.importing.vocabulary import parsed_model

FAMILY, TOKENIZER_CONFIG = "mBART-50", "tokenizer_config.json"
CLASSES = (None, "MBart50Tokenizer", "MBart50TokenizerFast")
# Their tokens follow the pieces in this order, in folders without tokenizer.json.
MBART_LANGUAGES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT "
    "lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK "
    "tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN "
    "mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN "
    "te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI".split()
)


class MBartConfig(MultilingualConfig):
    """The values of a config.json of mBART-50 on which results depend."""

    # Values of folders of earlier versions, which have no effect unless they are these.
    normalize_before: Literal[True] = True
    normalize_embedding: Literal[True] = True
    add_final_layer_norm: Literal[True] = True
    static_position_embeddings: Literal[False] = False

    def to_options(self, sides: Sides) -> TransformerConfig:
        """Return the options of a `Transformer` that computes the same."""
        return TransformerConfig(
            positions="learned", embedding_norm=True, **self.multilingual_options(sides)
        )


def read_mbart(folder: Path, values: Mapping[str, Any], languages: Languages) -> Imported:
    """Read a folder of mBART-50.

    Args:
        folder: with `sentencepiece.bpe.model` and weights, and `tokenizer.json` if its languages
            are not those of the family.
        values: its config.json.
        languages: codes such as "de_DE".

    Raises:
        ValueError: if a language is missing or unknown, files or arrays are missing or do not fit,
            or values are not supported.
    """
    given = MBartConfig(**values)
    sides = read_sides(_tokens(folder, values), given, languages, folder)
    config = given.to_options(sides)
    arrays = _arrays(open_arrays(folder), given, config, sides)
    files = [values, read_json(folder / GENERATION)]
    search, notes = known_settings(
        files, given.max_position_embeddings, [], started=2, chosen=["forced_bos_token_id"]
    )
    return Imported(config, arrays, sides.model, sides.model, FAMILY, search, notes, languages)


def _tokens(folder: Path, values: Mapping[str, Any]) -> Tokens:
    check_model_files(folder, [MODEL])
    kind = read_json(folder / TOKENIZER_CONFIG).get(
        "tokenizer_class", values.get("tokenizer_class")
    )
    if kind not in CLASSES:
        raise ValueError(
            f"tokenizer: expected the tokenizer_class MBart50Tokenizer in {folder}, got {kind!r}; "
            "of the models of this kind, only "
            "mBART-50 puts the language before the text."
        )
    model = parsed_model((folder / MODEL).read_bytes(), str(folder / MODEL))
    pieces = fairseq_pieces(model, folder / MODEL)
    own = (folder / FAST).is_file()
    languages = (
        added_languages(folder)
        if own
        else {code: len(pieces) + i for i, code in enumerate(MBART_LANGUAGES)}
    )
    return Tokens({**pieces, **languages}, languages, model, FAMILY)


def _arrays(
    file: Arrays, given: MBartConfig, config: TransformerConfig, sides: Sides
) -> dict[str, np.ndarray]:
    """Return all weights of the model, read from a file.

    Raises:
        ValueError: if the arrays of the file are not those of the configuration.
    """
    wanted = multilingual_arrays(file, given, config, sides.vocabulary)
    shape = (UNUSED + given.max_position_embeddings, given.d_model)
    for ours, theirs in (
        ("source_positions", "model.encoder"),
        ("target_positions", "model.decoder"),
    ):
        wanted[f"{ours}/table"] = Array(
            f"{theirs}.embed_positions.weight", shape, lambda table: table[UNUSED:]
        )
        wanted |= dict(norm_arrays(config, f"{ours}/norm", f"{theirs}.layernorm_embedding"))
    return read_arrays(file, wanted, TABLES, sides.vocabulary, given.vocab_size)
