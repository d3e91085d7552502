"""A model and its tokenizers with some of the rows of their vocabularies."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import LanguageModelConfig, TransformerConfig
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.trimming.piece_selection import SharedIds

SIDES = ("source", "target")
# The side and the axis of the rows of each array with a row for each token.
ROWS = {
    "source_embedding/embeddings": ("source", 0),
    "target_embedding/embeddings": ("target", 0),
    "output/kernel": ("target", 1),
    "output/bias": ("target", 0),
}
TrimmedConfig: TypeAlias = TransformerConfig | LanguageModelConfig


def id_options(config: TrimmedConfig, side: str) -> dict[str, tuple[int, ...]]:
    """Return the options of a model that contain ids of a side, by name."""
    names = (f"{side}_prefix", f"{side}_suffix")
    return {name: ids for name in names if (ids := getattr(config, name, ()))}


class ModelParts(NamedTuple):
    """The configuration and the weights of a model, and its tokenizers."""

    config: TrimmedConfig
    arrays: Mapping[str, Any]  # arrays or Keras's variables, by the names of `named_weights`
    source_tokenizer: SubwordTokenizer
    target_tokenizer: SubwordTokenizer

    @property
    def tokenizers(self) -> list[SubwordTokenizer]:
        """The different tokenizers, the source's first."""
        source = self.source_tokenizer
        target = self.target_tokenizer
        return [source] if source.model == target.model else [source, target]

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(int(np.prod(array.shape)) for array in self.arrays.values())

    def vocabularies(self) -> list[SharedIds]:
        """Return the ids of each side, or of both sides if they have the same ids."""
        tokenizers = self.tokenizers
        ids = [set().union(*id_options(self.config, side).values()) for side in SIDES]
        if len(tokenizers) == 1 or self.config.tie_embeddings == "all":
            return [SharedIds(SIDES, tokenizers, ids[0] | ids[1])]
        return [
            SharedIds(SIDES[:1], tokenizers[:1], ids[0]),
            SharedIds(SIDES[1:], tokenizers[1:], ids[1]),
        ]


def keep_rows(parts: ModelParts, ids: Mapping[str, np.ndarray]) -> ModelParts:
    """Return a model with some of the rows of its vocabularies. Other arrays are not copied.

    Args:
        parts: the model.
        ids: the ids to keep by side, "source" and "target", ascending: the id of each new row.
    """
    sizes = {f"{side}_vocab_size": len(ids[side]) for side in SIDES}
    if isinstance(parts.config, LanguageModelConfig):
        sizes = {"vocab_size": len(ids["target"])}
    options = {
        name: tuple(np.searchsorted(ids[side], tokens).tolist())
        for side in SIDES
        for name, tokens in id_options(parts.config, side).items()
    }
    arrays = dict(parts.arrays)
    for name in ROWS.keys() & arrays.keys():
        side, axis = ROWS[name]
        arrays[name] = np.take(np.asarray(arrays[name]), ids[side], axis=axis)
    tokenizers = [
        keep_pieces(tokenizer, ids[side])
        for side, tokenizer in zip(SIDES, parts.tokenizers, strict=False)
    ]
    config = parts.config.replace(**sizes, **options)
    return ModelParts(config, arrays, tokenizers[0], tokenizers[-1])


def keep_pieces(tokenizer: SubwordTokenizer, ids: np.ndarray) -> SubwordTokenizer:
    """Return a tokenizer with some of its pieces, in the same order.

    Scores, types and normalization stay.

    Args:
        tokenizer: the tokenizer.
        ids: the ids to keep, ascending, with the special tokens.
    """
    model = ModelProto.FromString(tokenizer.model)
    pieces = [model.pieces[token] for token in ids.tolist()]
    kept = ModelProto(
        trainer_spec=model.trainer_spec,
        normalizer_spec=model.normalizer_spec,
        denormalizer_spec=model.denormalizer_spec,
        pieces=pieces,
    )  # without the self tests, whose texts may use other pieces
    kept.trainer_spec.vocab_size = len(pieces)
    return SubwordTokenizer(kept.SerializeToString())
