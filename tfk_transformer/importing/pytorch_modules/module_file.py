"""A file of PyTorch and its vocabulary become a translator."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.setting_values import setting_text
from tfk_transformer.importing.hugging_face.model_folder import open_pickle
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.pytorch_modules.module_weights import (
    SPECIAL_TOKENS,
    ModuleFile,
)
from tfk_transformer.importing.token_lists import read_token_list, token_list_model
from tfk_transformer.importing.vocabulary import (
    check_vocab,
    read_sentencepiece,
    sentencepiece_model,
)

# Names of special tokens, by which a list of tokens shows that its special ids are right.
SPECIAL_NAMES = {
    "pad": ("<pad>", "<blank>", "[PAD]", "<PAD>"),
    "start": ("<s>", "<sos>", "<bos>", "[CLS]", "[BOS]", "<SOS>", "<BOS>", "<start>", "<go>"),
    "end": ("</s>", "<eos>", "[SEP]", "[EOS]", "<EOS>", "<end>"),
    "unknown": ("<unk>", "[UNK]", "<UNK>"),
}
# The options on which results depend, and which no weight states.
UNSTATED = (
    "num_heads norm norm_epsilon ff_activation scale_embeddings positions source_prefix source_end"
).split()


class ModuleOptions(NamedTuple):
    """What a user states of a file of PyTorch; see `from_pytorch`."""

    layout: str
    special_ids: Mapping[str, int] | None = None
    options: Mapping[str, Any] = {}  # num_heads and others


class _SideTokens(NamedTuple):
    model: ModelProto
    rows: dict[str, int]  # by piece
    special_ids: dict[str, int]  # that the vocabulary states


def read_module(
    path: Path, stated: ModuleOptions, vocab: Sequence[Path], rule: str | None
) -> Imported:
    """Read a file of `torch.save` with the SentencePiece models or the lists of tokens `vocab`.

    `rule` splits texts into the tokens of lists.
    """
    options = {"split_sentences": rule is None, **stated.options}
    module = ModuleFile(open_pickle(path), stated.layout, options)
    check_vocab(vocab, (1, 2), ", or lists of tokens with their rule (tokens)")
    sides = [_read_side(each, rule) for each in dict.fromkeys(vocab)]
    source, target = sides[0], sides[-1]
    ids = stated.special_ids
    if ids is None:
        ids = source.special_ids
        _check_special_ids(ids, target.special_ids)
    vocabularies = module.vocabularies(ids, (source.rows, target.rows))
    config, weights = module.convert(vocabularies)
    unstated = (f"{name}={setting_text(getattr(config, name))}" for name in UNSTATED)
    return Imported(
        config,
        weights,
        sentencepiece_model(source.model, vocabularies[0]),
        sentencepiece_model(target.model, vocabularies[1]),
        family=f"PyTorch, layout {stated.layout}",
        search={},
        notes=(
            f"special tokens: {', '.join(f'{name} {ids[name]}' for name in ids)} (special_ids)",
            f"the weights do not state {', '.join(unstated)} (options)",
        ),
    )


def _read_side(path: Path, rule: str | None) -> _SideTokens:
    if rule is None:
        model = read_sentencepiece(path)
        trainer = model.trainer_spec
        stated = (trainer.pad_id, trainer.bos_id, trainer.eos_id, trainer.unk_id)
        ids = {name: row for name, row in zip(SPECIAL_TOKENS, stated, strict=True) if row >= 0}
        pieces = [piece.piece for piece in model.pieces]
    else:
        tokens = read_token_list(path)
        names = {name for group in SPECIAL_NAMES.values() for name in group}
        model, pieces = token_list_model(tokens, rule, names)
        ids = {
            name: tokens.index(token)
            for name, group in SPECIAL_NAMES.items()
            for token in group
            if token in tokens
        }
    return _SideTokens(model, {piece: row for row, piece in reversed([*enumerate(pieces)])}, ids)


def _check_special_ids(ids: Mapping[str, int], target_ids: Mapping[str, int]) -> None:
    """Refuse vocabularies that do not state the special ids, or not the same ones."""
    missing = [name for name in SPECIAL_TOKENS[:-1] if name not in ids]
    if missing or ids != target_ids:
        got = f"none for {', '.join(missing)}" if missing else f"{ids} and {target_ids}"
        raise ValueError(
            "special_ids: expected vocabularies with the same rows of tokens such as <pad>, <sos>, "
            f"<eos> and <unk>, got {got}; pass the ids of pad, start, end and unknown "
            "(special_ids)."
        )
