"""Import models of other libraries as translators."""

import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tfk_transformer.importing.hub import located
from tfk_transformer.importing.hugging_face.m2m100 import read_m2m100
from tfk_transformer.importing.hugging_face.marian import read_marian
from tfk_transformer.importing.hugging_face.mbart import read_mbart
from tfk_transformer.importing.hugging_face.model_folder import CONFIG, check_model_files, read_json
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages, check_no_languages
from tfk_transformer.importing.marian_npz import NPZ, read_marian_file
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# By `model_type` of config.json. Each reads a folder and its config.json, for two languages.
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
    """Make a translator of a model of another library. No code of the model is run.

    Args:
        model: a folder in Hugging Face's layout: `config.json`, weights and the files of the
            tokenizers. The family is `marian` (MarianMT: the opus-mt models), `m2m_100` (M2M100 and
            NLLB-200) or `mbart` (mBART-50). Or the name of such a model on the Hugging Face hub,
            such as "Helsinki-NLP/opus-mt-de-en", which is downloaded. Or an .npz file that Marian
            itself wrote. `docs/models.md` has what is supported, how it was proven, and what
            differs.
        vocab: for a file of Marian: the SentencePiece model of both sides, or those of the source
            and of the target.
        source_language: the language of the sources of a multilingual model, by the family's code,
            such as "de" (M2M100), "deu_Latn" (NLLB-200) or "de_DE" (mBART-50). None for the other
            families.
        target_language: the language to translate to.
        probes: source texts on which exports are compared with the model. Default: texts of random
            pieces.

    Returns:
        A translator, which is saved and exported as any other. Its `origin` has the family, the
        model's name and licence, and its search settings.

    Raises:
        ValueError: with everything that is missing, does not fit or is not supported.
        ImportError: if the weights are a pickle, and torch is not installed, which reads it safely;
            or if huggingface_hub or PyYAML is not installed, which names of the hub and files of
            Marian need.
    """
    path, languages = located(model), Languages(source_language, target_language)
    read = _read_file if path.suffix == NPZ else _read_folder
    found, origin = read(path, [Path(name) for name in vocab], languages)
    if path != Path(model):
        # The hub's cache names a folder by its commit.
        origin |= {"name": str(model), "revision": path.name}
    transformer = Transformer.from_weights(found.arrays, found.config)
    tokenizers = SubwordTokenizer(found.source_model), SubwordTokenizer(found.target_model)
    return Translator(
        transformer,
        *tokenizers,
        probes,
        {**origin, "search": dict(found.search), "notes": list(found.notes)},
    )


def _read_file(
    path: Path, vocab: Sequence[Path], languages: Languages
) -> tuple[Imported, dict[str, Any]]:
    """Read a file of Marian; return also what the bundle remembers of it."""
    check_no_languages(languages, "Marian")
    found = read_marian_file(path, vocab)
    return found, {"family": found.family, "name": path.name, "license": _license(path.parent)}


def _read_folder(
    path: Path, vocab: Sequence[Path], languages: Languages
) -> tuple[Imported, dict[str, Any]]:
    """Read a folder in Hugging Face's layout; return also what the bundle remembers of it."""
    check_model_files(path, [CONFIG])
    if vocab:
        raise ValueError(
            f"vocab: expected none for {path}, a folder with tokenizers of its own, got "
            f"{', '.join(map(str, vocab))}."
        )
    values = read_json(path / CONFIG)
    if (family := values.get("model_type")) not in FAMILIES:
        raise ValueError(
            f"folder: expected a model_type of {', '.join(FAMILIES)} in {path / CONFIG}, got "
            f"{family!r}."
        )
    found = FAMILIES[family](path, values, languages)
    chosen = {
        f"{side}_language": language
        for side, language in found.languages._asdict().items()
        if language is not None
    }
    name = str(values.get("_name_or_path") or path.resolve().name)
    return found, {"family": found.family, "name": name, "license": _license(path), **chosen}


def _license(folder: Path) -> str | None:
    """Return the licence of a folder: of the front matter of its README.md, or of its
    configuration.
    """
    card = folder / "README.md"
    front = (
        re.match(
            r"---\n(.*?\n)---\n", card.read_text(encoding="utf-8", errors="replace"), re.DOTALL
        )
        if card.is_file()
        else None
    )
    line = re.search(r"(?m)^license: *['\"]?([\w.+-]+)", front[1]) if front else None
    return line[1] if line else read_json(folder / CONFIG).get("license")
