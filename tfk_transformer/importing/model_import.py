"""Import models of other libraries as translators."""

import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tfk_transformer.config.small_files import read_small_text
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.ctranslate2_folder import argos
from tfk_transformer.importing.ctranslate2_folder.folder import read_ctranslate2
from tfk_transformer.importing.hub import resolve_model_path
from tfk_transformer.importing.hugging_face.m2m100 import read_m2m100
from tfk_transformer.importing.hugging_face.marian import is_tag, read_marian
from tfk_transformer.importing.hugging_face.mbart import read_mbart
from tfk_transformer.importing.hugging_face.model_folder import (
    CONFIG,
    TOKENIZER_CONFIG,
    check_model_files,
    read_optional_json,
)
from tfk_transformer.importing.hugging_face.path_problems import (
    ARGOS_SUFFIX,
    NPZ,
    check_model_path,
    folder_type,
    is_ctranslate2_folder,
)
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages, check_no_languages
from tfk_transformer.importing.marian_npz import read_marian_file
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.sentences.languages import is_language
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# Readers by `model_type` of config.json: they take a folder, its config.json and two languages.
FAMILIES: dict[str, Callable[[Path, Mapping[str, Any], Languages], Imported]] = {
    "marian": read_marian,
    "m2m_100": read_m2m100,
    "mbart": read_mbart,
}


def import_model(
    model: str | PathLike[str],
    *,
    vocab: Sequence[str | PathLike[str]] = (),
    source_language: str | None = None,
    target_language: str | None = None,
    probes: Sequence[str] = (),
) -> Translator:
    """Convert a model of another library to a translator. No code of the model is run.

    Args:
        model: a folder in Hugging Face's layout with `config.json`, weights and the files of the
            tokenizers. The family is `marian` (MarianMT: the opus-mt models), `m2m_100` (M2M100 and
            NLLB-200) or `mbart` (mBART-50). The name of a model on the Hugging Face hub, for
            example "Helsinki-NLP/opus-mt-de-en", is downloaded. A folder of CTranslate2, an
            .argosmodel file of Argos Translate and an .npz file written by Marian are accepted,
            too. `docs/models.md` lists supported models, tests and differences.
        vocab: for a file of Marian, or a folder of CTranslate2 without SentencePiece models: one
            SentencePiece model for both sides, or one for the source and one for the target.
        source_language: the source language of a multilingual model, by the family's code, for
            example "de" (M2M100), "deu_Latn" (NLLB-200) or "de_DE" (mBART-50). Of the other
            families, the language that the model reads. Default: the language that the folder or
            its name states.
        target_language: the language to translate to, or that the model writes.
        probes: source texts on which exports are compared with the model. Default: texts of random
            pieces.

    Returns:
        A translator, which can be saved and exported. Its `origin` has the family, the model's name
        and license, and its search settings.

    Raises:
        ValueError: with everything that is missing, does not fit or is not supported.
        ImportError: if the weights are a pickle and torch, which reads it safely, is not installed;
            if the model is a name of the hub and huggingface_hub is not installed; or if the model
            is a file of Marian and PyYAML is not installed.
    """
    path = resolve_model_path(model)
    check_model_path(path)
    languages = Languages(source_language, target_language)
    imported, origin = _read_model(path, vocab, languages)
    selected = {
        f"{side}_language": language
        for side, language in imported.languages._asdict().items()
        if language is not None
    }
    if path != Path(model):
        # The hub's cache names a folder by its commit.
        origin |= {"name": str(model), "revision": path.name}
    source_tokenizer = SubwordTokenizer(imported.source_model)
    if not any(imported.languages):
        pieces = source_tokenizer.pieces_of(range(source_tokenizer.vocab_size))
        if any(is_tag(piece.removeprefix("▁")) for piece in pieces):
            check_no_languages(languages, imported.family)
        languages = _stated_languages(path, str(origin["name"]), languages)
    else:
        languages = imported.languages
    config = imported.config.replace(
        source_language=languages.source, target_language=languages.target
    )
    return Translator(
        Transformer.from_weights(imported.arrays, config),
        source_tokenizer,
        SubwordTokenizer(imported.target_model),
        probes,
        {
            "family": imported.family,
            **origin,
            **selected,
            "search": dict(imported.search),
            "notes": list(imported.notes),
        },
    )


def _read_model(
    path: Path, vocab: Sequence[str | PathLike[str]], languages: Languages
) -> tuple[Imported, dict[str, str | None]]:
    """Return the model at a path, its name and its license.

    Raises:
        ValueError: see `import_model`.
    """
    models = [Path(name) for name in vocab]
    if path.suffix == NPZ:
        imported = read_marian_file(path, models)
        return imported, {"name": path.name, "license": _license(path.parent)}
    if path.suffix == ARGOS_SUFFIX:
        with argos.unpacked(path) as folder:
            return _read_ctranslate2(folder, path.name, models, languages)
    if is_ctranslate2_folder(path):
        return _read_ctranslate2(path, path.resolve().name, models, languages)
    imported = _read_folder(path, vocab, languages)
    name = read_optional_json(path / CONFIG).get("_name_or_path") or path.resolve().name
    return imported, {"name": str(name), "license": _license(path)}


def _read_ctranslate2(
    folder: Path, name: str, models: Sequence[Path], languages: Languages
) -> tuple[Imported, dict[str, str | None]]:
    """Return the model in a folder of CTranslate2, its name and its license.

    Args:
        folder: the folder, or an unpacked package of Argos Translate.
        name: the name of a model that does not state one.
        models: SentencePiece models that are elsewhere.
        languages: the languages that the user states.

    Raises:
        ValueError: see `read_ctranslate2`.
    """
    package = argos.read_package(folder)
    imported = read_ctranslate2(folder, models, languages)
    if any(package.languages):
        stated = (passed or code for passed, code in zip(languages, package.languages, strict=True))
        imported = imported._replace(languages=Languages(*stated))
    return imported, {"name": package.name or name, "license": _license(folder)}


def _read_folder(
    path: Path, vocab: Sequence[str | PathLike[str]], languages: Languages
) -> Imported:
    """Return the model in a folder in Hugging Face's layout.

    Raises:
        ValueError: if files are missing, `vocab` is not empty, the family is not supported, or the
            weights are quantized.
    """
    check_model_files(path, [CONFIG])
    if vocab:
        raise ValueError(
            f"vocab: expected none for {path}, which contains its tokenizers, got "
            f"{', '.join(map(str, vocab))}."
        )
    values = read_optional_json(path / CONFIG)
    if str(family := values.get("model_type")) not in FAMILIES:
        raise ValueError(
            f"folder: expected a model_type of {', '.join(FAMILIES)} in {path / CONFIG}, got "
            f"{shorten(repr(family))}{folder_type(path)}."
        )
    if quantization := values.get("quantization_config"):
        raise ValueError(
            f"folder: expected weights that are not quantized, got a quantization_config in "
            f"{path / CONFIG}, {shorten(str(quantization))}; use the original model, or dequantize "
            "it and save it in float32."
        )
    # A MarianMT model has one pair of languages, or reads a language token in the text.
    selected = Languages() if family == "marian" else languages
    return FAMILIES[str(family)](path, values, selected)


def _stated_languages(path: Path, name: str, passed: Languages) -> Languages:
    """Return the languages of a MarianMT folder or an .npz file.

    Args:
        path: the folder or file.
        name: the name of the model, such as "Helsinki-NLP/opus-mt-en-de".
        passed: the languages that the user states.
    """
    tokenizer = read_optional_json(path / TOKENIZER_CONFIG)
    *_, source, target = ("", "", *name.partition("opus-mt-")[2].split("-"))
    sources = (tokenizer.get("source_lang"), source)
    targets = (tokenizer.get("target_lang"), target)
    return Languages(
        passed.source or next(filter(is_language, sources), None),
        passed.target or next(filter(is_language, targets), None),
    )


def _license(folder: Path) -> str | None:
    """Return the license from the front matter of a folder's README.md or from its config.json."""
    card = folder / "README.md"
    text = read_small_text(card, errors="replace") if card.is_file() else ""
    front_matter = re.match(r"---\n(.*?\n)---\n", text, re.DOTALL)
    line = re.search(r"(?m)^license: *['\"]?([\w.+-]+)", front_matter[1]) if front_matter else None
    stated = line[1] if line else read_optional_json(folder / CONFIG).get("license")
    return shorten(stated) if isinstance(stated, str) else None
