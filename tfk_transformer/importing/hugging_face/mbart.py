"""mBART in Hugging Face's layout: learned positions, and a layer norm after the embeddings."""

import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.hugging_face.bart_layers import (
    LOGITS_BIAS,
    Array,
    norm_arrays,
    read_arrays,
)
from tfk_transformer.importing.hugging_face.model_folder import (
    TOKENIZER_CONFIG,
    Arrays,
    check_model_files,
    read_optional_json,
)
from tfk_transformer.importing.hugging_face.multilingual import (
    FAST_TOKENIZER_FILE,
    SENTENCEPIECE_FILE,
    TABLE_NAMES,
    UNUSED_POSITIONS,
    LanguageLayout,
    MultilingualConfig,
    Tokens,
    added_languages,
    fairseq_pieces,
    multilingual_arrays,
    read_multilingual,
)
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages
from tfk_transformer.importing.vocabulary import Vocabulary, read_sentencepiece

# By the class of the tokenizer: the model that first had it.
MBART_TOKENIZERS = {
    "MBartTokenizer": "mBART-25",
    "MBartTokenizerFast": "mBART-25",
    "MBart50Tokenizer": "mBART-50",
    "MBart50TokenizerFast": "mBART-50",
}
MBART_25 = LanguageLayout(prefix=(), suffix=("source",), start=("target",))
# In folders without tokenizer.json, the languages' tokens follow the pieces in this order. mBART-25
# has the first 25.
MBART_LANGUAGES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT "
    "lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK "
    "tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN "
    "mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN "
    "te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI".split()
)


class MBartConfig(MultilingualConfig):
    """The values of a config.json of mBART on which results depend."""

    family_options = {"positions": "learned", "embedding_norm": True}

    # Only in folders of earlier versions. Other values would select another architecture.
    normalize_before: Literal[True] = True
    normalize_embedding: Literal[True] = True
    add_final_layer_norm: Literal[True] = True
    static_position_embeddings: Literal[False] = False


def read_mbart(folder: Path, values: Mapping[str, Any], languages: Languages) -> Imported:
    """Read a folder of mBART-50, or of mBART-25, whose languages stand in other places.

    Args:
        folder: a folder with `sentencepiece.bpe.model` and weights, and `tokenizer.json` if its
            languages differ from the family's.
        values: the content of its config.json.
        languages: codes, for example "de_DE".

    Raises:
        ValueError: if a language is missing or unknown, files or arrays are missing or do not fit,
            or values are not supported.
    """
    tokens = _read_tokens(folder, values)
    checked = dict(values)
    if tokens.layout == MBART_25:
        # The decoder starts with the target language, whatever the folder's own pair is.
        checked["decoder_start_token_id"] = values.get("eos_token_id")
    hf_config = MBartConfig(**checked)
    return read_multilingual(folder, values, languages, hf_config, tokens, _read_weights)


def _read_tokens(folder: Path, values: Mapping[str, Any]) -> Tokens:
    """Read the tokens of a folder.

    Raises:
        ValueError: if files are missing or broken, or the tokenizer is not of this family.
    """
    path = folder / SENTENCEPIECE_FILE
    check_model_files(folder, [path.name])
    tokenizer_class = {**values, **read_optional_json(folder / TOKENIZER_CONFIG)}.get(
        "tokenizer_class"
    )
    model = read_sentencepiece(path)
    pieces = fairseq_pieces(model, path)
    if tokenizer_class is None:
        rows = values.get("vocab_size")
        is_larger = type(rows) is int and rows >= len(pieces) + len(MBART_LANGUAGES)
        tokenizer_class = "MBart50Tokenizer" if is_larger else "MBartTokenizer"
    if str(tokenizer_class) not in MBART_TOKENIZERS:
        raise ValueError(
            "tokenizer: expected the tokenizer_class MBartTokenizer or MBart50Tokenizer in "
            f"{folder}, got {shorten(repr(tokenizer_class))}; other tokenizers may put languages "
            "in other places."
        )
    family = MBART_TOKENIZERS[str(tokenizer_class)]
    layout = MBART_25 if family == "mBART-25" else LanguageLayout()
    if (folder / FAST_TOKENIZER_FILE).is_file():
        languages = added_languages(folder)
    else:
        codes = MBART_LANGUAGES[:25] if layout == MBART_25 else MBART_LANGUAGES
        languages = {code: len(pieces) + i for i, code in enumerate(codes)}
    return Tokens({**pieces, **languages}, languages, model, family, layout)


def _read_weights(
    file: Arrays, hf_config: MultilingualConfig, config: TransformerConfig, vocabulary: Vocabulary
) -> dict[str, np.ndarray]:
    """Return all weights of the model, read from a file.

    Raises:
        ValueError: if the arrays of the file do not match the configuration.
    """
    arrays = multilingual_arrays(file, hf_config, config, vocabulary)
    shape = (UNUSED_POSITIONS + hf_config.max_position_embeddings, hf_config.d_model)
    for ours, theirs, added in (
        ("source_positions", "model.encoder", config.source_additions),
        ("target_positions", "model.decoder", config.target_prefix),
    ):
        used = slice(UNUSED_POSITIONS, UNUSED_POSITIONS + len(added) + config.max_length)
        arrays[f"{ours}/table"] = Array(
            f"{theirs}.embed_positions.weight", shape, operator.itemgetter(used)
        )
        arrays |= dict(norm_arrays(config, f"{ours}/norm", f"{theirs}.layernorm_embedding"))
    bias = Array(LOGITS_BIAS, (1, hf_config.vocab_size), np.ravel)
    return read_arrays(file, arrays, TABLE_NAMES, vocabulary, bias)
