"""M2M100, NLLB and SMaLL-100 in Hugging Face's layout: one architecture with three tokenizers."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.hugging_face.bart_config import common_values
from tfk_transformer.importing.hugging_face.bart_layers import check_sinusoids, read_arrays
from tfk_transformer.importing.hugging_face.model_folder import (
    TOKENIZER_CONFIG,
    Arrays,
    check_model_files,
    read_optional_json,
    read_pieces,
)
from tfk_transformer.importing.hugging_face.multilingual import (
    FAIRSEQ_SPECIALS,
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
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    PAD_PIECE,
    Vocabulary,
    read_sentencepiece,
)
from tfk_transformer.layers.position_encoding import position_table

VOCABULARY = "vocab.json"
M2M100_POSITIONS = (  # only in files of earlier versions
    "model.encoder.embed_positions.weights",
    "model.decoder.embed_positions.weights",
)
# Languages by `language_codes` of tokenizer_config.json. Their tokens follow the pieces of
# vocab.json in this order.
M2M100_LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga "
    "gd gl gu ha he hi hr ht hu hy id ig ilo "
    "is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps "
    "pt ro ru sd si sk sl so sq sr ss su sv "
    "sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu".split(),
    "wmt21": "en ha is ja cs ru zh de".split(),
}


M2M100_TOKENIZERS = (
    None,
    "M2M100Tokenizer",
    "NllbTokenizer",
    "NllbTokenizerFast",
    "PreTrainedTokenizerFast",
    "TokenizersBackend",
)
SMALL100 = "SMaLL-100"
SMALL100_NAME = re.compile("small-?100", re.IGNORECASE)
LAYOUTS = {
    SMALL100: LanguageLayout(prefix=("target",), start=("end",)),
    "NLLB with legacy_behaviour": LanguageLayout(prefix=(), suffix=("source",)),
}


class M2M100Config(MultilingualConfig):
    """The values of a config.json of these families on which results depend."""

    family_options = {"positions": "sinusoidal_halves", "position_offset": UNUSED_POSITIONS}

    attention_dropout: float = 0.1

    @classmethod
    def from_transformer_config(cls, config: TransformerConfig, rows: int) -> Self:
        """Return the values for a `Transformer` whose table gets this number of rows.

        This is the reverse of `to_transformer_config`.
        """
        return cls(
            **common_values(config),
            vocab_size=rows,
            max_position_embeddings=config.max_length + 1,  # the language's token has a position
            pad_token_id=FAIRSEQ_SPECIALS.index(PAD_PIECE),
            eos_token_id=FAIRSEQ_SPECIALS.index(END_PIECE),
            decoder_start_token_id=FAIRSEQ_SPECIALS.index(END_PIECE),
        )


def read_m2m100(folder: Path, values: Mapping[str, Any], languages: Languages) -> Imported:
    """Read a folder of M2M100 or SMaLL-100, which have `vocab.json`, or of NLLB, which has
    `tokenizer.json`.

    Args:
        folder: a folder with `sentencepiece.bpe.model`, one of these two files, and weights.
        values: the content of its config.json.
        languages: codes, for example "de" (M2M100) or "deu_Latn" (NLLB). SMaLL-100 needs only the
            target language.

    Raises:
        ValueError: if a language is missing or unknown, files or arrays are missing or do not fit,
            or values are not supported.
    """
    hf_config = M2M100Config(**values)
    tokens = _read_tokens(folder)
    family = _family(folder, values, tokens.family)
    tokens = tokens._replace(family=family, layout=LAYOUTS.get(family, tokens.layout))
    return read_multilingual(folder, values, languages, hf_config, tokens, _read_weights)


def _family(folder: Path, values: Mapping[str, Any], family: str) -> str:
    """Return the name of the family, on which the places of the languages depend.

    Args:
        folder: the folder.
        values: the content of its config.json.
        family: the family that its tokenizer's files indicate, M2M100 or NLLB.

    Raises:
        ValueError: if the tokenizer is of another class.
    """
    tokenizer = read_optional_json(folder / TOKENIZER_CONFIG)
    tokenizer_class = tokenizer.get("tokenizer_class")
    names = [str(config.get("_name_or_path")) for config in (values, tokenizer)]
    names += [str(tokenizer.get("name_or_path")), folder.resolve().name]
    # The hub's cache names a folder by its commit, two levels below the name of the model.
    names += [part for part in folder.parts[-3:-2] if part.startswith("models--")]
    names.append(str(tokenizer_class))
    if (folder / "tokenization_small100.py").exists() or SMALL100_NAME.search(" ".join(names)):
        return SMALL100
    if tokenizer_class not in M2M100_TOKENIZERS:
        raise ValueError(
            "tokenizer: expected the tokenizer_class M2M100Tokenizer, SMALL100Tokenizer or "
            f"NllbTokenizer in {folder}, got {shorten(repr(tokenizer_class))}; other tokenizers "
            "may put languages in other places."
        )
    is_legacy = family == "NLLB" and tokenizer.get("legacy_behaviour")
    return "NLLB with legacy_behaviour" if is_legacy else family


def _read_tokens(folder: Path) -> Tokens:
    """Read the tokens of M2M100 if the folder has a vocab.json, and else of NLLB."""
    is_m2m100 = (folder / VOCABULARY).is_file()
    path = folder / SENTENCEPIECE_FILE
    check_model_files(folder, [path.name, VOCABULARY if is_m2m100 else FAST_TOKENIZER_FILE])
    model = read_sentencepiece(path)
    if not is_m2m100:
        languages = added_languages(folder)
        return Tokens({**fairseq_pieces(model, path), **languages}, languages, model, "NLLB")
    pieces = read_pieces(folder / VOCABULARY)
    language_set = read_optional_json(folder / TOKENIZER_CONFIG).get("language_codes", "m2m100")
    if not isinstance(language_set, str) or language_set not in M2M100_LANGUAGES:
        raise ValueError(
            f"tokenizer: expected language_codes {' or '.join(M2M100_LANGUAGES)} in "
            f"{folder / TOKENIZER_CONFIG}, got {language_set!r}."
        )
    languages = {code: len(pieces) + i for i, code in enumerate(M2M100_LANGUAGES[language_set])}
    language_pieces = {f"__{code}__": row for code, row in languages.items()}
    return Tokens({**pieces, **language_pieces}, languages, model, "M2M100")


def _read_weights(
    file: Arrays, hf_config: MultilingualConfig, config: TransformerConfig, vocabulary: Vocabulary
) -> dict[str, np.ndarray]:
    """Return all weights of the model, read from a file.

    Raises:
        ValueError: if the arrays of the file do not match the configuration.
    """
    arrays = multilingual_arrays(file, hf_config, config, vocabulary)
    weights = read_arrays(file, arrays, {*M2M100_POSITIONS, *TABLE_NAMES}, vocabulary)
    positions = UNUSED_POSITIONS + hf_config.max_position_embeddings
    table = position_table(config.positions, positions, config.model_dim)
    table[hf_config.pad_token_id] = 0
    check_sinusoids(file, M2M100_POSITIONS, table, "M2M100")
    return weights
