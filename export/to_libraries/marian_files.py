"""A translator as a folder of MarianMT in Hugging Face's layout, written without torch and
transformers.

It is the reverse of `importing/marian.py`. The rows of the family's tables are this project's ids,
so the start token has a row of its own.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.export.to_libraries.counterparts import MARIAN, unsupported_options
from tfk_transformer.export.to_libraries.plain_attention import plain_attention
from tfk_transformer.importing.hugging_face.bart_layers import (
    BIAS,
    OUTPUT,
    SHARED,
    SOURCE,
    TARGET,
    layer_arrays,
)
from tfk_transformer.importing.hugging_face.marian import MarianConfig, is_tag
from tfk_transformer.importing.hugging_face.model_folder import CONFIG, GENERATION, SAFETENSORS
from tfk_transformer.importing.vocabulary import END, NEVER_FROM_TEXT, PAD, UNKNOWN, Piece
from tfk_transformer.pipelines.bundle import write_json
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

MARK = "\u2581"  # of the start of a word


class SideFiles(NamedTuple):
    """The tokens of the source or of the target in the family's files."""

    pieces: list[str]  # by id
    text_tags: list[str]  # language tokens that a text may have anywhere
    model: bytes  # a SentencePiece model


def write_marian(translator: Translator, folder: Path) -> None:
    """Write a folder that `MarianMTModel` and `MarianTokenizer` of transformers load.

    Args:
        translator: with a `Transformer` in float32.
        folder: a new folder.

    Raises:
        ValueError: with everything that the family lacks.
    """
    if problems := marian_problems(translator):
        raise ValueError(f"model: expected one that MarianMT can hold, got {'; '.join(problems)}.")
    source, target = _sides(translator)
    separate = translator.model.config.tie_embeddings != "all"
    folder.mkdir(parents=True)
    for name, side in (("source.spm", source), ("target.spm", target)):
        (folder / name).write_bytes(side.model)
    for name, side in (("vocab.json", source), ("target_vocab.json", target))[: 1 + separate]:
        write_json(folder / name, {piece: row for row, piece in enumerate(side.pieces)})
    write_json(folder / CONFIG, _config(translator))
    write_json(folder / GENERATION, _generation(translator))
    write_json(folder / "tokenizer_config.json", _tokenizer_config(translator, separate))
    # transformers refuses a file without this note of the framework that its arrays are for.
    arrays = safetensors.numpy.save(_arrays(translator), {"format": "pt"})
    (folder / SAFETENSORS).write_bytes(arrays)


def marian_problems(translator: Translator) -> list[str]:
    """Return everything that the family lacks: options of the model, and properties of the
    tokenizers.
    """
    problems = unsupported_options(translator.model.config, MARIAN)
    return (
        [*problems, *_token_problems(translator)]
        if isinstance(translator.model.config, TransformerConfig)
        else problems
    )


def _token_problems(translator: Translator) -> Iterator[str]:
    sides = _sides(translator)
    for name, side in zip(("source", "target"), sides, strict=True):
        if twice := [piece for piece, count in Counter(side.pieces).items() if count > 1]:
            yield (
                f"the piece '{twice[0]}' of the {name} tokenizer (expected another name: it is "
                "a special token there)"
            )
        if side.text_tags:
            yield (
                f"the piece '{side.text_tags[0]}' of the {name} tokenizer (expected language "
                "tokens only at the start of a word)"
            )
    if translator.model.config.tie_embeddings == "all" and sides[0].pieces != sides[1].pieces:
        yield (
            "tie_embeddings 'all' with tokenizers of other pieces (expected the same pieces on "
            "both sides)"
        )


def _sides(translator: Translator) -> tuple[SideFiles, SideFiles]:
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    taken = {
        piece.piece
        for tokenizer in tokenizers
        for piece in ModelProto.FromString(tokenizer.model).pieces[UNKNOWN_ID + 1 :]
    }
    start = next(
        name for name in (f"<s{'_' * n}>" for n in range(len(taken) + 1)) if name not in taken
    )
    return _side(tokenizers[0], start), _side(tokenizers[1], start)


def _side(tokenizer: SubwordTokenizer, start: str) -> SideFiles:
    """Return the tokens of a tokenizer, with the family's names of special tokens and of language
    tokens.

    The family's tokenizer takes a language token off a text before the SentencePiece model sees it.
    """
    proto = ModelProto.FromString(tokenizer.model)
    others = proto.pieces[UNKNOWN_ID + 1 :]
    text_tags = [
        piece.piece for piece in others if is_tag(piece.piece) and piece.type not in NEVER_FROM_TEXT
    ]
    for piece in others:
        if piece.piece.startswith(MARK) and is_tag(piece.piece.removeprefix(MARK)):
            piece.piece, piece.type = piece.piece.removeprefix(MARK), Piece.UNUSED
    return SideFiles(
        [PAD, start, END, UNKNOWN, *(piece.piece for piece in others)],
        text_tags,
        proto.SerializeToString(),
    )


def _config(translator: Translator) -> dict[str, Any]:
    """Return the content of config.json. The family's class would end every cut translation with
    token 0 by default.
    """
    names = {"architectures": ["MarianMTModel"], "model_type": "marian", "is_encoder_decoder": True}
    unset = {"bos_token_id": None, "forced_eos_token_id": None}
    licence = {"license": translator.origin["license"]} if translator.origin.get("license") else {}
    return {
        **names,
        **unset,
        **licence,
        **MarianConfig.of_options(translator.model.config).model_dump(),
    }


def _generation(translator: Translator) -> dict[str, Any]:
    """Return the content of generation_config.json. Padding and start are never predicted, as in
    this project.
    """
    beams = translator.origin.get("search", {}).get("beam_size", SearchSettings().beam_size)
    return {
        "bad_words_ids": [[PAD_ID], [START_ID]],
        "decoder_start_token_id": START_ID,
        "eos_token_id": END_ID,
        "max_length": translator.model.config.max_length,
        "num_beams": beams,
        "pad_token_id": PAD_ID,
    }


def _tokenizer_config(translator: Translator, separate: bool) -> dict[str, Any]:
    longest = translator.model.config.max_length
    return {
        "model_max_length": longest,
        "separate_vocabs": separate,
        "tokenizer_class": "MarianTokenizer",
    }


def _arrays(translator: Translator) -> dict[str, np.ndarray]:
    """Return all arrays by the family's names."""
    config = translator.model.config
    weights = plain_attention(
        config,
        {name: np.asarray(weight) for name, weight in translator.model.named_weights.items()},
    )
    found = {}
    for name, array in layer_arrays(config).items():
        # Biases that the model lacks are zeros there.
        found[array.name] = (
            array.restore(weights[name]) if name in weights else np.zeros(array.shape, "float32")
        )
    bias = weights.get("output/bias", np.zeros(config.target_vocab_size, "float32"))
    return {
        name: np.ascontiguousarray(array)
        for name, array in {**found, **_tables(config, weights), BIAS: bias[None]}.items()
    }


def _tables(config: TransformerConfig, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    source = weights["source_embedding/embeddings"]
    if config.tie_embeddings == "all":
        return {SHARED: source}
    tables = {SOURCE: source, TARGET: weights["target_embedding/embeddings"]}
    return (
        tables
        if config.tie_embeddings == "target"
        else {**tables, OUTPUT: weights["output/kernel"].T}
    )
