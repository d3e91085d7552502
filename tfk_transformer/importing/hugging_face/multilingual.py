"""M2M100, NLLB, SMaLL-100 and mBART in Hugging Face's layout.

They have norms before the sublayers, and tokens of languages. They differ in their tokenizers, and
in the places of these tokens.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.small_files import MAX_VOCABULARY_BYTES
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.hugging_face import bart, model_folder
from tfk_transformer.importing.hugging_face.tokenizer_json import (
    TOKENIZER_JSON,
    dictionaries,
    read_tokenizer_json,
)
from tfk_transformer.importing.imported import Imported, check_languages
from tfk_transformer.importing.vocabulary import (
    END_PIECE,
    PAD_PIECE,
    UNKNOWN_PIECE,
    SpecialRows,
    Vocabulary,
    read_sentencepiece,
    text_pieces,
)
from tfk_transformer.text.languages import Languages

# The rows of all pieces and of the languages' tokens, and the SentencePiece model.
Tokens: TypeAlias = tuple[dict[str, int], dict[str, int], ModelProto]

SENTENCEPIECE_FILE = "sentencepiece.bpe.model"
START_PIECE = "<s>"
FAIRSEQ_SPECIALS = (START_PIECE, PAD_PIECE, END_PIECE, UNKNOWN_PIECE)  # rows 0 to 3 in fairseq
MASK_PIECE = "<mask>"
CURE = f"copy {SENTENCEPIECE_FILE} of the original model into the folder"
VOCABULARY = "vocab.json"
# Languages by `language_codes` of tokenizer_config.json. Their tokens follow the pieces of
# vocab.json in this order.
M2M100_LANGUAGES = {
    "m2m100": (
        "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl "
        "gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml "
        "mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th "
        "tl tn tr uk ur uz vi wo xh yi yo zh zu"
    ).split(),
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
LEGACY_NLLB = "NLLB with legacy_behaviour"
MBART_25 = "mBART-25"
# By the class of the tokenizer: the model that first had it.
MBART_TOKENIZERS = {
    "MBartTokenizer": MBART_25,
    "MBartTokenizerFast": MBART_25,
    "MBart50Tokenizer": "mBART-50",
    "MBart50TokenizerFast": "mBART-50",
}
# In folders without tokenizer.json, the languages' tokens follow the pieces in this order. mBART-25
# has the first 25.
MBART_LANGUAGES = (
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR "
    "lt_LT lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN "
    "fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE "
    "sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI".split()
)


class Layout(NamedTuple):
    """The places of the tokens of languages, "source" and "target", and of the end token, "end"."""

    prefix: tuple[str, ...] = ("source",)  # before a source
    suffix: tuple[str, ...] = ()  # after the end token of a source
    start: tuple[str, ...] = ("end", "target")  # before a target; the last one is the start token


# Of the families that differ from M2M100, NLLB and mBART-50.
LAYOUTS = {
    SMALL100: Layout(prefix=("target",), start=("end",)),
    LEGACY_NLLB: Layout(prefix=(), suffix=("source",)),
    MBART_25: Layout(prefix=(), suffix=("source",), start=("target",)),
}


class MultilingualConfig(bart.BartConfig):
    """The values of a config.json that these families share."""

    equal_values = (("eos_token_id", "decoder_start_token_id"),)

    pad_token_id: Literal[1]  # the row before the row of the first position
    tie_word_embeddings: Literal[True] = True


class M2M100Config(MultilingualConfig):
    """The values of a config.json of M2M100, NLLB and SMaLL-100 on which results depend."""

    # Only in files of earlier versions.
    position_names = (
        "model.encoder.embed_positions.weights",
        "model.decoder.embed_positions.weights",
    )
    has_logits_bias = False
    family_options = {
        **bart.PRE_NORM_OPTIONS,
        "positions": "sinusoidal_halves",
        "position_offset": bart.UNUSED_POSITIONS,
    }

    attention_dropout: float = 0.1

    @classmethod
    def from_transformer_config(cls, config: TransformerConfig, rows: int) -> Self:
        """Return the values for a `Transformer` whose table gets this number of rows."""
        return cls(
            **bart.common_values(config),
            vocab_size=rows,
            max_position_embeddings=config.max_length + 1,  # the language's token has a position
            pad_token_id=FAIRSEQ_SPECIALS.index(PAD_PIECE),
            eos_token_id=FAIRSEQ_SPECIALS.index(END_PIECE),
            decoder_start_token_id=FAIRSEQ_SPECIALS.index(END_PIECE),
        )


class MBartConfig(MultilingualConfig):
    """The values of a config.json of mBART on which results depend."""

    position_names = ()
    family_options = {**bart.PRE_NORM_OPTIONS, "positions": "learned", "embedding_norm": True}

    # Only in folders of earlier versions. Other values would select another architecture.
    normalize_before: Literal[True] = True
    normalize_embedding: Literal[True] = True
    add_final_layer_norm: Literal[True] = True
    static_position_embeddings: Literal[False] = False


def read_m2m100(folder: Path, values: Mapping[str, Any], languages: Languages) -> Imported:
    """Read a folder of M2M100, SMaLL-100, which needs only a target language, or NLLB."""
    hf_config = M2M100Config(**values)
    # M2M100 and SMaLL-100 have vocab.json, and NLLB has tokenizer.json.
    is_m2m100 = (folder / VOCABULARY).is_file()
    family = _m2m100_family(folder, values, is_m2m100)
    tokens = _m2m100_tokens(folder) if is_m2m100 else _fairseq_tokens(folder, [TOKENIZER_JSON])
    return _import_pair(folder, values, languages, hf_config, tokens, family)


def read_mbart(folder: Path, values: Mapping[str, Any], languages: Languages) -> Imported:
    """Read a folder of mBART-50, or of mBART-25, whose languages stand in other places."""
    pieces, language_rows, model = _fairseq_tokens(folder)
    tokenizer = model_folder.read_optional_json(folder / model_folder.TOKENIZER_CONFIG)
    tokenizer_class = {**values, **tokenizer}.get("tokenizer_class")
    if tokenizer_class is None:
        rows = values.get("vocab_size")
        text_rows = len(pieces) - len(language_rows)
        is_larger = type(rows) is int and rows >= text_rows + len(MBART_LANGUAGES)
        tokenizer_class = "MBart50Tokenizer" if is_larger else "MBartTokenizer"
    if str(tokenizer_class) not in MBART_TOKENIZERS:
        raise ValueError(
            "tokenizer: expected the tokenizer_class MBartTokenizer or MBart50Tokenizer in "
            f"{folder}, got {shorten(repr(tokenizer_class))}; other tokenizers may put languages "
            "in other places."
        )
    family = MBART_TOKENIZERS[str(tokenizer_class)]
    if not language_rows:
        codes = MBART_LANGUAGES[:25] if family == MBART_25 else MBART_LANGUAGES
        language_rows = {code: len(pieces) + i for i, code in enumerate(codes)}
    tokens = ({**pieces, **language_rows}, language_rows, model)
    checked = dict(values)
    if family == MBART_25:
        # The decoder starts with the target language, whatever the folder's own pair is.
        checked["decoder_start_token_id"] = values.get("eos_token_id")
    return _import_pair(folder, values, languages, MBartConfig(**checked), tokens, family)


def _import_pair(
    folder: Path,
    values: Mapping[str, Any],
    languages: Languages,
    hf_config: MultilingualConfig,
    tokens: Tokens,
    family: str,
) -> Imported:
    pieces, language_rows, model = tokens
    prefix, suffix, start = LAYOUTS.get(family, Layout())
    check_languages(languages, language_rows, family, {*prefix, *suffix, *start})
    rows = {side: language_rows[language] for side, language in languages.known().items()}
    rows["end"] = pieces[END_PIECE]
    special = SpecialRows.of(pieces)._replace(start=rows[start[-1]])
    special.check(hf_config.pad_token_id, hf_config.eos_token_id, folder)
    added = set(text_pieces(model)) - set(pieces)
    never = {special.pad, *language_rows.values()}
    vocabulary = Vocabulary.remapped(pieces, hf_config.vocab_size, special, added, never)
    side = (vocabulary, vocabulary.sentencepiece_model(model))
    # Added tokens have positions, too.
    additions = max(len(prefix) + len(suffix), len(start) - 1)
    config = hf_config.to_transformer_config(
        vocabulary,
        vocabulary,
        max_length=hf_config.max_position_embeddings - additions,
        source_prefix=tuple(vocabulary.id_of(rows[name]) for name in prefix),
        source_suffix=tuple(vocabulary.id_of(rows[name]) for name in suffix),
        target_prefix=tuple(vocabulary.id_of(rows[name]) for name in start[:-1]),
    )
    imported = bart.import_folder(
        folder,
        values,
        hf_config,
        config,
        side,
        side,
        family,
        [[row] for row in (hf_config.pad_token_id, *language_rows.values())],
        leading_tokens=len(start),
        replaced=["forced_bos_token_id", "decoder_start_token_id"],
    )
    return imported._replace(languages=languages)


def _m2m100_family(folder: Path, values: Mapping[str, Any], is_m2m100: bool) -> str:
    """Return the name of the family, on which the places of the languages depend."""
    tokenizer = model_folder.read_optional_json(folder / model_folder.TOKENIZER_CONFIG)
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
    if is_m2m100:
        return "M2M100"
    return LEGACY_NLLB if tokenizer.get("legacy_behaviour") else "NLLB"


def _m2m100_tokens(folder: Path) -> Tokens:
    model_folder.check_model_files(folder, [SENTENCEPIECE_FILE, VOCABULARY])
    pieces = model_folder.read_pieces(folder / VOCABULARY)
    config_path = folder / model_folder.TOKENIZER_CONFIG
    codes = model_folder.read_optional_json(config_path).get("language_codes", "m2m100")
    if not isinstance(codes, str) or codes not in M2M100_LANGUAGES:
        raise ValueError(
            f"tokenizer: expected language_codes {' or '.join(M2M100_LANGUAGES)} in "
            f"{config_path}, got {codes!r}."
        )
    rows = {code: len(pieces) + i for i, code in enumerate(M2M100_LANGUAGES[codes])}
    pieces |= {f"__{code}__": row for code, row in rows.items()}
    return pieces, rows, read_sentencepiece(folder / SENTENCEPIECE_FILE)


def _fairseq_tokens(folder: Path, required: Sequence[str] = ()) -> Tokens:
    """Return the tokens of NLLB or mBART. transformers 5 saves only tokenizer.json.

    Without tokenizer.json, there are no languages. `required` names files that the family needs.
    """
    path, json_path = folder / SENTENCEPIECE_FILE, folder / TOKENIZER_JSON
    if json_path.is_file() and not path.is_file():
        return _tokens_of_json(json_path)
    model_folder.check_model_files(folder, [path.name, *required])
    model = read_sentencepiece(path)
    names = [piece.piece for piece in model.pieces]
    if names[:3] != [UNKNOWN_PIECE, START_PIECE, END_PIECE]:
        raise ValueError(
            f"tokenizer: expected {UNKNOWN_PIECE}, {START_PIECE}, {END_PIECE} as the first pieces "
            f"of {path}, got {', '.join(names[:3])}."
        )
    # fairseq's special tokens replace the model's first three.
    pieces = {name: row for row, name in enumerate([*FAIRSEQ_SPECIALS, *names[3:]])}
    languages = _added_languages(json_path) if json_path.is_file() else {}
    return {**pieces, **languages}, languages, model


def _tokens_of_json(path: Path) -> Tokens:
    model_folder.check_model_files(path.parent, [path.name])
    rows, added, model = read_tokenizer_json(path, CURE)
    languages = _added_languages(path)
    others = added - {*languages, *FAIRSEQ_SPECIALS, MASK_PIECE}
    if others or not set(FAIRSEQ_SPECIALS) <= set(rows):
        got = f"the added token {shorten(min(others))}" if others else "others"
        raise ValueError(
            f"tokenizer: expected {', '.join(FAIRSEQ_SPECIALS)} and tokens of languages as the "
            f"only added tokens in {path}, got {got}; {CURE}."
        )
    rows.pop(MASK_PIECE, None)
    return rows, languages, model


def _added_languages(path: Path) -> dict[str, int]:
    """Return the rows of the languages' tokens: the added special tokens of tokenizer.json."""
    values = model_folder.read_optional_json(path, MAX_VOCABULARY_BYTES)
    languages: dict[str, Any] = {
        str(token.get("content")): token.get("id")
        for token in dictionaries(values.get("added_tokens"))
        if token.get("special") and token.get("content") not in (*FAIRSEQ_SPECIALS, MASK_PIECE)
    }
    if not languages or not all(type(row) is int for row in languages.values()):
        got = shorten(str(languages)) if languages else "none"
        raise ValueError(
            "tokenizer: expected the languages' tokens as special added_tokens in "
            f"{path}, got {got}."
        )
    return languages
