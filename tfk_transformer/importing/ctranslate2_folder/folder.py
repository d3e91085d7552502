"""A folder of CTranslate2 becomes a translator."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.words import shorten
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile, open_binary
from tfk_transformer.importing.ctranslate2_folder.options import (
    check_supported,
    read_options,
    tied_tables,
)
from tfk_transformer.importing.ctranslate2_folder.tokens import (
    FAMILY,
    FolderConfig,
    PassedTokens,
    ids_of,
    passed_tokens,
    read_sides,
    read_tokenizers,
)
from tfk_transformer.importing.ctranslate2_folder.weights import (
    OUTPUT_BIAS,
    STORED_POSITIONS,
    read_weights,
    table_names,
)
from tfk_transformer.importing.imported import FREE_LENGTH, Imported
from tfk_transformer.importing.model_paths import (
    ARGOS_MODEL_FOLDER,
    CTRANSLATE2_BINARY,
    check_no_pointers,
)
from tfk_transformer.importing.vocabulary import PAD_PIECE, Vocabulary
from tfk_transformer.text.languages import Languages

VOCABULARY_MAP = "vmap.txt"
# The output bias from which on a token is never predicted; the least that fits float16.
MAX_SILENT_BIAS = -6e4
MAX_DECODING_LENGTH = 256
# Of `Translator.translate_batch`, which excludes tokens before it computes probabilities.
CTRANSLATE2_SETTINGS = {"beam_size": 2, "length_penalty": 1.0, "renormalize_logits": True}
# Of argostranslate/translate.py and settings.py.
ARGOS_SETTINGS = {**CTRANSLATE2_SETTINGS, "beam_size": 4, "length_penalty": 0.2}


def read_ctranslate2(
    path: Path,
    target_prefix: str | None,
    vocab: Sequence[Path],
    languages: Languages,
    rule: str | None = None,
) -> Imported:
    """Read a folder of CTranslate2, or a package of Argos Translate, which has one as `model`.

    `rule` splits texts into the tokens of a folder without SentencePiece models.
    """
    is_package = not (path / CTRANSLATE2_BINARY).is_file()
    folder = path / ARGOS_MODEL_FOLDER if is_package else path
    check_no_pointers([folder / CTRANSLATE2_BINARY])
    file = open_binary(folder / CTRANSLATE2_BINARY)
    check_supported(file)
    values = FolderConfig.read(folder, file)
    folders = list(dict.fromkeys((folder, path)))
    tokenizers, _, vocabularies = read_tokenizers(folders, vocab, rule, values)
    source_tokens, target_tokens = vocabularies
    options = read_options(file, values.layer_norm_epsilon)
    passed, selected = passed_tokens(values, target_tokens, tokenizers[0], languages, target_prefix)
    # Whether the first token of the decoder has an embedding of zeros.
    starts_with_zeros = file.number("decoder/start_from_zero_embedding", 0) != 0
    start = passed.start
    if passed.target_prefix and (start not in target_tokens or starts_with_zeros):
        problem = "start_from_zero_embedding" if starts_with_zeros else "a vocabulary without"
        raise ValueError(
            f"folder: expected a decoder that reads '{shorten(start)}' before every target in "
            f"{folder}, got {problem} it."
        )
    tied = tied_tables(file, source_tokens == target_tokens)
    source_table, target_table, _ = table_names(file)
    rows = (file.shapes[source_table][0], file.shapes[target_table][0])
    never_predicted: list[int] = []
    if file.shapes.get(OUTPUT_BIAS) == rows[1:]:
        never_predicted = np.flatnonzero(file.read(OUTPUT_BIAS) <= MAX_SILENT_BIAS).tolist()
    (source, source_model), (target, target_model) = read_sides(
        values,
        vocabularies,
        tokenizers,
        rows,
        never_predicted,
        None if starts_with_zeros else start,
        tied in ("inputs", "all"),
    )
    options |= {
        "tie_embeddings": tied,
        "source_end": _reads_end(values, starts_with_zeros, is_package),
        # A dot ends no sentence where tokens are not those of a language.
        "split_sentences": rule is None,
    }
    config = _config(file, options, (source, target), vocabularies, passed, values.unk_token)
    return Imported(
        config,
        read_weights(file, config, source, target),
        source_model,
        target_model,
        FAMILY,
        search=_default_search(config, is_package),
        notes=tuple(_notes(folder, values, config.source_end, is_package)),
        languages=selected,
    )


def _config(
    file: BinaryFile,
    options: dict[str, Any],
    sides: tuple[Vocabulary, Vocabulary],
    vocabularies: tuple[list[str], ...],
    passed: PassedTokens,
    unknown: str,
) -> TransformerConfig:
    (source, target), (source_tokens, target_tokens) = sides, vocabularies
    prefix = ids_of(source, source_tokens, passed.source_prefix, unknown)
    suffix = ids_of(source, source_tokens, passed.source_suffix, unknown)
    forced = ids_of(target, target_tokens, passed.target_prefix, unknown)
    if STORED_POSITIONS[0] in file.shapes:
        # The rows of a table also serve the tokens with every text.
        options["max_length"] -= max(len(prefix) + len(suffix), len(forced))
    return TransformerConfig(
        source_vocab_size=len(source.pieces),
        target_vocab_size=len(target.pieces),
        source_prefix=prefix,
        source_suffix=suffix,
        target_prefix=forced,
        **options,
    )


def _reads_end(values: FolderConfig, starts_with_zeros: bool, is_package: bool) -> bool:
    """Return whether the model reads the end token of a source.

    Models of Hugging Face and fairseq do, but their tokenizers add it, so that config.json does not
    mention it. Other than OpenNMT's, their decoders start with zeros, with another token than the
    one before a sentence, or with padding. Argos Translate adds no tokens.
    """
    if values.add_source_eos or is_package:
        return values.add_source_eos
    start = values.decoder_start_token
    return starts_with_zeros or start != values.bos_token or start == PAD_PIECE


def _default_search(config: TransformerConfig, is_package: bool) -> dict[str, Any]:
    """Return the search settings of CTranslate2 or Argos Translate.

    CTranslate2 counts a token after the start token that its user passes, such as a language token,
    as part of a translation. Here it is the start token.
    """
    passed = len(config.target_prefix)
    return {
        **(ARGOS_SETTINGS if is_package else CTRANSLATE2_SETTINGS),
        "length_penalty_form": "length_with_start" if passed else "length",
        # At least one token, and the end token.
        "min_length": 0 if passed else 2,
        "max_length": min(MAX_DECODING_LENGTH - passed, config.max_length),
        "max_length_factor": FREE_LENGTH,
    }


def _notes(folder: Path, values: FolderConfig, has_end: bool, is_package: bool) -> Iterator[str]:
    if has_end and not values.add_source_eos:
        yield (
            f"the model reads {values.eos_token} at the end of a source, which the tokenizers of "
            "transformers and fairseq add, although config.json has no add_source_eos"
        )
    if (folder / VOCABULARY_MAP).is_file():
        yield f"{VOCABULARY_MAP}, the shortlist of the folder, is not imported"
    if is_package:
        yield (
            "Argos Translate splits sentences by other rules, replaces unknown tokens by source "
            "tokens, and writes underscores as blanks"
        )
