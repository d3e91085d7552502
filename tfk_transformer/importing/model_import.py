"""Import models of other libraries as translators."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

from tfk_transformer.config.words import shorten
from tfk_transformer.importing import model_paths
from tfk_transformer.importing.checking.description import read_examples, read_license
from tfk_transformer.importing.ctranslate2_folder import argos
from tfk_transformer.importing.ctranslate2_folder.folder import read_ctranslate2
from tfk_transformer.importing.hugging_face.marian import read_marian
from tfk_transformer.importing.hugging_face.model_folder import (
    TOKENIZER_CONFIG,
    check_model_files,
    read_optional_json,
)
from tfk_transformer.importing.hugging_face.multilingual import read_m2m100, read_mbart
from tfk_transformer.importing.hugging_face.pegasus import read_pegasus
from tfk_transformer.importing.hugging_face.t5 import read_t5
from tfk_transformer.importing.imported import Imported, with_text_prefix
from tfk_transformer.importing.marian_files.model_file import read_marian_model
from tfk_transformer.importing.model_paths import CONFIG
from tfk_transformer.importing.pytorch_modules.module_weights import read_module
from tfk_transformer.importing.samples import check_samples
from tfk_transformer.importing.vocabulary import WORD_MARK, is_tag
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.licenses import warn_of_license
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.languages import Languages, is_language
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.trimming import TRIMMING, ModelParts, trim_parts

# Readers by `model_type` of config.json: they take a folder, its config.json and two languages.
FAMILIES: dict[str, Callable[[Path, Mapping[str, Any], Languages], Imported]] = {
    "marian": read_marian,
    "m2m_100": read_m2m100,
    "mbart": read_mbart,
    "pegasus": read_pegasus,
    **dict.fromkeys(("t5", "mt5", "umt5"), read_t5),
}


def import_model(
    model: str | PathLike[str],
    *,
    vocab: Sequence[str | PathLike[str]] = (),
    tokens: str | None = None,
    layout: str | None = None,
    special_ids: Mapping[str, int] | None = None,
    options: Mapping[str, Any] | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    source_text_prefix: str | None = None,
    search: Mapping[str, Any] | None = None,
    probes: Sequence[str] = (),
    keep_texts: Iterable[str] | None = None,
    vocab_size: int | None = None,
) -> Translator:
    """Convert a model of another library to a translator. No code of the model is run.

    Args:
        model: a folder in Hugging Face's layout with `config.json`, weights and the files of the
            tokenizers. The family is `marian` (MarianMT: the opus-mt models), `m2m_100` (M2M100,
            NLLB-200 and SMaLL-100), `mbart`, `pegasus`, `t5` (T5, flan-T5, MADLAD-400 and ByT5),
            `mt5` or `umt5`. The name of a model on the Hugging Face hub, for example
            "Helsinki-NLP/opus-mt-de-en", is downloaded. A folder of CTranslate2, an .argosmodel
            file of Argos Translate, and a folder or an .npz or .bin file of Marian, such as a model
            of Firefox, are accepted, too, and with `layout` a file of `torch.save`.
            `docs/models.md` lists supported models, tests and differences.
        vocab: for a file of Marian or PyTorch, or a folder of CTranslate2 without SentencePiece
            models: one SentencePiece model for both sides, or one for the source and one for the
            target. With `tokens`, for a file of PyTorch, lists of tokens by row: a text file with
            one a line, or a JSON list.
        tokens: how texts are split into the tokens of vocabularies that are no SentencePiece
            models: "characters", "words" or a regular expression; see
            `SubwordTokenizer.from_tokens`.
        layout: the names of the weights in a file of PyTorch; see `from_pytorch`.
        special_ids: for a file of PyTorch, as in `from_pytorch`. Default: what the vocabularies
            state.
        options: for a file of PyTorch, its `num_heads`, and options of `TransformerConfig` in
            which it differs from its layout; see `from_pytorch`.
        source_language: the source language of a multilingual model, by the family's code, for
            example "de" (M2M100), "deu_Latn" (NLLB-200) or "de_DE" (mBART-50). Of the other
            families, the language that the model reads. Default: the language that the folder or
            its name states.
        target_language: the language to translate to, or that the model writes.
        source_text_prefix: a text that the model puts before every source, such as
            "translate English to German: " for T5. Default: none; it can be typed before each
            source.
        search: search settings, such as {"beam_size": 1}, to store with the translator in place of
            the model's own.
        probes: source texts on which exports are compared with the model. Default: texts of random
            pieces.
        keep_texts: texts of all languages to keep. The vocabulary is cut to their pieces as by
            `trim`, before the model is made, which needs less memory. Default: the whole
            vocabulary.
        vocab_size: with `keep_texts`, the maximum number of pieces; see `trim`.

    Returns:
        A translator, which can be saved and exported. It translates with the search settings of
        the folder and of `search`. Its `origin` has the family, the model's name and license, and
        these settings.

    Raises:
        ValueError: with everything that is missing, does not fit or is not supported.
        ImportError: if the weights are a pickle and torch, which reads it safely, is not installed;
            if the model is a name of the hub and huggingface_hub is not installed; or if the model
            is a file of Marian and PyYAML is not installed.
    """
    if vocab_size is not None and keep_texts is None:
        raise ValueError(
            f"vocab_size: expected none without keep_texts, got {vocab_size}; pass texts of the "
            "languages to keep, too."
        )
    path = model_paths.resolve_model_path(model)
    languages = Languages(source_language, target_language)
    files = [Path(name) for name in vocab]
    if layout is not None:
        imported = read_module(path, layout, files, tokens, special_ids, options or {})
        origin: dict[str, Any] = {"name": path.name, "license": None}
    elif special_ids or options:
        raise ValueError(
            "layout: expected the layout of a PyTorch module with special_ids or options, got None."
        )
    else:
        model_paths.check_model_path(path)
        imported, origin = _read_model(path, files, languages, tokens)
    if tokens is not None:
        origin |= {"tokens": tokens}
    if source_text_prefix is not None:
        imported = with_text_prefix(imported, source_text_prefix)
        origin |= {"source_text_prefix": source_text_prefix}
    origin |= {f"{side}_language": code for side, code in imported.languages.known().items()}
    if path != Path(model):
        # The hub's cache names a folder by its commit.
        origin |= {"name": str(model), "revision": path.name}
    warn_of_license(origin)
    languages = _languages_of(imported, path, str(origin["name"]), languages)
    config = imported.config.replace(
        source_language=languages.source, target_language=languages.target
    )
    tokenizers = map(SubwordTokenizer, (imported.source_model, imported.target_model))
    parts = ModelParts(config, imported.arrays, *tokenizers)
    texts = [*probes, *(read_examples(path) if path.is_dir() else ())]
    table = imported.arrays["source_embedding/embeddings"]
    notes = [*imported.notes, *check_samples(parts.source_tokenizer, table, texts, tokens)]
    search = {**imported.search, **(search or {})}
    if keep_texts is not None:
        parts, trimming = trim_parts(parts, keep_texts, vocab_size=vocab_size)
        imported = imported._replace(arrays={})  # to save memory
        origin[TRIMMING] = trimming
    return Translator(
        Transformer.from_weights(parts.arrays, parts.config),
        parts.source_tokenizer,
        parts.target_tokenizer,
        probes,
        {"family": imported.family, **origin, "search": search, "notes": notes},
        search=search,
    )


def _read_model(
    path: Path, vocab: Sequence[Path], languages: Languages, tokens: str | None
) -> tuple[Imported, dict[str, Any]]:
    """Return the model at a path, its name and its license."""
    is_package = path.suffix == model_paths.ARGOS_SUFFIX
    is_ctranslate2 = is_package or model_paths.is_ctranslate2_folder(path)
    if tokens is not None and not is_ctranslate2:
        raise ValueError(
            f"tokens: expected none for {path}, got {tokens!r}; it is for folders of CTranslate2 "
            "and files of PyTorch (layout)."
        )
    if model_paths.is_marian_folder(path) or model_paths.is_marian_file(path):
        imported = read_marian_model(path, vocab, languages)
        folder = path if path.is_dir() else path.parent
        return imported, {"name": path.resolve().name, "license": read_license(folder)}
    if is_ctranslate2:
        with argos.unpacked(path) if is_package else nullcontext(path) as folder:
            name, stated, target_prefix = argos.read_package(folder)
            imported = read_ctranslate2(folder, target_prefix, vocab, languages, tokens)
            if any(stated):
                pairs = zip(languages, stated, strict=True)
                selected = Languages(*(passed or code for passed, code in pairs))
                imported = imported._replace(languages=selected)
            name = name or (path if is_package else path.resolve()).name
            return imported, {"name": name, "license": read_license(folder)}
    check_model_files(path, [CONFIG])
    if vocab:
        raise ValueError(
            f"vocab: expected none for {path}, which contains its tokenizers, got "
            f"{', '.join(map(str, vocab))}."
        )
    values = read_optional_json(path / CONFIG)
    imported = _read_folder(path, values, languages)
    name = values.get("_name_or_path") or path.resolve().name
    return imported, {"name": str(name), "license": read_license(path)}


def _read_folder(path: Path, values: Mapping[str, Any], languages: Languages) -> Imported:
    if str(family := values.get("model_type")) not in FAMILIES:
        raise ValueError(
            f"folder: expected a model_type of {', '.join(FAMILIES)} in {path / CONFIG}, got "
            f"{shorten(repr(family))}"
            f"{model_paths.model_type_problem(values) or model_paths.folder_type(path)}."
        )
    if quantization := values.get("quantization_config"):
        raise ValueError(
            f"folder: expected weights that are not quantized, got a quantization_config in "
            f"{path / CONFIG}, {shorten(str(quantization))}; use the original model, or dequantize "
            "it and save it in float32."
        )
    return FAMILIES[str(family)](path, values, languages)


def _languages_of(imported: Imported, path: Path, name: str, passed: Languages) -> Languages:
    """Return the languages of the reader, or else of the user, the tokenizer, or the name."""
    if any(imported.languages):
        return imported.languages
    tokenizer = SubwordTokenizer(imported.source_model)
    pieces = tokenizer.pieces_of(range(tokenizer.vocab_size))
    has_tags = any(is_tag(piece.removeprefix(WORD_MARK)) for piece in pieces)
    if has_tags and (known := passed.known()):
        got = ", ".join(f"{side}_language {code!r}" for side, code in known.items())
        raise ValueError(
            f"languages: expected none for a folder of {imported.family}, whose models have one "
            f"source language, got {got}; a model for several target languages expects the "
            "language token in the text."
        )
    stated = read_optional_json(path / TOKENIZER_CONFIG)
    # A name such as "Helsinki-NLP/opus-mt-en-de".
    *_, source, target = ("", "", *name.partition("opus-mt-")[2].split("-"))
    sources = (stated.get("source_lang"), source)
    targets = (stated.get("target_lang"), target)
    return Languages(
        passed.source or next(filter(is_language, sources), None),
        passed.target or next(filter(is_language, targets), None),
    )
