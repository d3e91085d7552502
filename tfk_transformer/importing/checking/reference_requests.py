"""Requests to `reference_program`: texts to translate with the library that a model is from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfk_transformer.importing.checking.reference_program import CTRANSLATE2, TRANSFORMERS
from tfk_transformer.importing.ctranslate2_folder import argos
from tfk_transformer.importing.ctranslate2_folder.binary_file import open_binary
from tfk_transformer.importing.ctranslate2_folder.folder import FAMILY
from tfk_transformer.importing.ctranslate2_folder.language_tokens import (
    language_tokens,
    passed_tokens,
)
from tfk_transformer.importing.ctranslate2_folder.token_files import (
    FolderConfig,
    find_tokenizers,
    read_vocabularies,
)
from tfk_transformer.importing.hugging_face.m2m100 import SMALL100
from tfk_transformer.importing.hugging_face.path_problems import (
    ARGOS_MODEL_FOLDER,
    CTRANSLATE2_BINARY,
    is_ctranslate2_folder,
    is_marian_file,
    is_marian_folder,
)
from tfk_transformer.importing.languages import Languages
from tfk_transformer.importing.vocabulary import read_sentencepiece
from tfk_transformer.pipelines.translator import Translator

Request = dict[str, Any]  # JSON values by name

# The packages that each library needs to run a model.
LIBRARIES = {TRANSFORMERS: ("transformers", "torch"), CTRANSLATE2: ("ctranslate2",)}
MULTILINGUAL = ("M2M100", "NLLB", "mBART")  # beginnings of families whose decoder gets a language
STARTS_WITH_LANGUAGE = "mBART-25"


def library_of(path: Path) -> str | None:
    """Return the library that a folder or file is from, or None if there is none to compare."""
    if is_marian_folder(path) or is_marian_file(path):
        return None
    return CTRANSLATE2 if is_ctranslate2_folder(path) else TRANSFORMERS


def library_request(
    path: Path, translator: Translator, texts: Sequence[str], vocab: Sequence[Path]
) -> Request:
    """Return a request to translate texts with the settings that the import took over.

    Args:
        path: the model's folder.
        translator: the imported model.
        texts: sources that the model reads whole.
        vocab: the SentencePiece models that are not in the folder.
    """
    if library_of(path) == TRANSFORMERS:
        return _transformers_request(path, translator, texts)
    return _ctranslate2_request(path, translator, texts, vocab)


def _transformers_request(path: Path, translator: Translator, texts: Sequence[str]) -> Request:
    family = str(translator.origin["family"])
    source, target = _languages(translator)
    languages = {"src_lang": source, "tgt_lang": target}
    setting = None
    if family == SMALL100:
        # The class of SMaLL-100 is in its own folders. It reads the target's language as M2M100's
        # class reads the source's.
        languages["src_lang"] = target
    elif family == STARTS_WITH_LANGUAGE:
        setting = "decoder_start_token_id"
    elif family.startswith(MULTILINGUAL):
        setting = "forced_bos_token_id"
    else:
        languages = {}
    prefix = translator.origin.get("source_text_prefix")
    return {
        "library": TRANSFORMERS,
        "folder": str(path),
        "tokenizer": "M2M100Tokenizer" if family == SMALL100 else "AutoTokenizer",
        "languages": languages,
        "language_setting": setting,
        "texts": [*texts] if prefix is None else _with_prefix(translator, prefix, texts),
    }


def _languages(translator: Translator) -> Languages:
    """Return the selected languages of a model of several languages, in the family's codes."""
    codes = (translator.origin.get(f"{side}_language") for side in Languages._fields)
    return Languages(*(code if isinstance(code, str) else None for code in codes))


def _with_prefix(translator: Translator, prefix: str, texts: Sequence[str]) -> list[str]:
    """Return texts after a prefix, so that their tokens are the model's own."""
    encode = translator.source_tokenizer.encode
    (first,) = encode([prefix])
    with_blank = encode([f"{prefix.rstrip()} {texts[0]}"])[0] == [*first, *encode(texts[:1])[0]]
    joined = f"{prefix.rstrip()} " if with_blank else prefix
    return [joined + text for text in texts]


def _ctranslate2_request(
    path: Path, translator: Translator, texts: Sequence[str], vocab: Sequence[Path]
) -> Request:
    """Return a request with the tokens that users of CTranslate2 pass."""
    is_package = not (path / CTRANSLATE2_BINARY).is_file()
    folder = path / ARGOS_MODEL_FOLDER if is_package else path
    values = FolderConfig.read(folder, open_binary(folder / CTRANSLATE2_BINARY))
    tokens = read_vocabularies(folder, values.unk_token)[1]
    proto = read_sentencepiece(find_tokenizers(list(dict.fromkeys((folder, path))), vocab)[0])
    target_prefix = argos.read_package(path).target_prefix
    passed, _ = passed_tokens(
        values,
        language_tokens(tokens, proto),
        _languages(translator),
        target_prefix,
        FAMILY,
    )
    tokenizer = translator.source_tokenizer
    # CTranslate2 adds the tokens that config.json states.
    before = passed.source_prefix[1:] if values.add_source_bos else passed.source_prefix
    adds_end = translator.model.config.source_end and not values.add_source_eos
    after = [values.eos_token] * adds_end + [*passed.source_suffix]
    prefix = [] if passed.start == values.decoder_start_token else [passed.start]
    search = translator.search_settings
    return {
        "library": CTRANSLATE2,
        "folder": str(folder),
        "tokens": [[*before, *tokenizer.pieces_of(ids), *after] for ids in tokenizer.encode(texts)],
        "target_prefix": prefix,
        "settings": {
            "beam_size": search.beam_size,
            "length_penalty": search.length_penalty,
            "max_decoding_length": search.max_length + len(prefix),
        },
    }
