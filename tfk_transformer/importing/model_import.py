"""Import models of other libraries as translators."""

import re
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.languages import Languages
from tfk_transformer.importing.m2m100 import read_m2m100
from tfk_transformer.importing.marian import read_marian
from tfk_transformer.importing.mbart import read_mbart
from tfk_transformer.importing.model_folder import CONFIG, check_files, read_json
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
    folder: str | PathLike[str], *, source_language: str | None = None, target_language: str | None = None, probes: Sequence[str] = ()
) -> Translator:
    """Make a translator of a model of another library. No code of the folder is run.

    Args:
        folder: a folder in Hugging Face's layout: `config.json`, weights and the files of the tokenizers. The family is `marian`
            (MarianMT: the opus-mt models), `m2m_100` (M2M100 and NLLB-200) or `mbart` (mBART-50). `docs/models.md` has what is supported,
            how it was proven, and what differs.
        source_language: the language of the sources of a multilingual model, by the family's code, such as "de" (M2M100), "deu_Latn"
            (NLLB-200) or "de_DE" (mBART-50). None for MarianMT.
        target_language: the language to translate to.
        probes: source texts on which exports are compared with the model. Default: texts of random pieces.

    Returns:
        A translator, which is saved and exported as any other. Its `origin` has the family, the folder's name and licence, and its
        search settings.

    Raises:
        ValueError: with everything that is missing, does not fit or is not supported.
        ImportError: if the weights are a pickle, and torch is not installed, which reads it safely.
    """
    path = Path(folder)
    check_files(path, [CONFIG])
    values = read_json(path / CONFIG)
    if (family := values.get("model_type")) not in FAMILIES:
        raise ValueError(f"folder: expected a model_type of {', '.join(FAMILIES)} in {path / CONFIG}, got {family!r}.")
    found = FAMILIES[family](path, values, Languages(source_language, target_language))
    model = Transformer.from_weights(found.arrays, found.config)
    return Translator(
        model, SubwordTokenizer(found.source_model), SubwordTokenizer(found.target_model), probes, _origin(path, values, found)
    )


def _origin(path: Path, values: Mapping[str, Any], found: Imported) -> dict[str, Any]:
    """Return what the bundle remembers of a folder."""
    name = values.get("_name_or_path") or path.resolve().name
    languages = {f"{side}_language": language for side, language in found.languages._asdict().items() if language is not None}
    facts = {"family": found.family, "name": str(name), "license": _license(path), **languages}
    return {**facts, "search": dict(found.search), "notes": list(found.notes)}


def _license(path: Path) -> str | None:
    """Return the licence of a folder: of its configuration, or of the front matter of its README.md."""
    card = path / "README.md"
    front = re.match(r"---\n(.*?\n)---\n", card.read_text(encoding="utf-8", errors="replace"), re.DOTALL) if card.is_file() else None
    line = re.search(r"(?m)^license: *['\"]?([\w.+-]+)", front[1]) if front else None
    return line[1] if line else read_json(path / CONFIG).get("license")
