"""PyTorch modules become models, and with their vocabularies translators."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.setting_values import setting_text
from tfk_transformer.config.words import shorten
from tfk_transformer.constants import START_ID
from tfk_transformer.importing.arrays import Arrays, StoredArray
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile
from tfk_transformer.importing.ctranslate2_folder.options import read_options, tied_tables
from tfk_transformer.importing.ctranslate2_folder.weights import STORED_POSITIONS, read_weights
from tfk_transformer.importing.hugging_face.model_folder import open_pickle
from tfk_transformer.importing.imported import FREE_LENGTH, Imported
from tfk_transformer.importing.pytorch_modules.layouts import (
    SOURCE,
    TARGET,
    find_layout,
    named_arrays,
)
from tfk_transformer.importing.token_lists import read_token_list, token_list_model
from tfk_transformer.importing.vocabulary import (
    SpecialRows,
    Vocabulary,
    check_vocab,
    first_rows,
    read_sentencepiece,
)
from tfk_transformer.models.transformer import Transformer

if TYPE_CHECKING:
    import torch

StateDict: TypeAlias = "Mapping[str, torch.Tensor | np.ndarray]"

# Names of special tokens, by which a list of tokens shows that its special ids are right.
SPECIAL_NAMES = {
    "pad": ("<pad>", "<blank>", "[PAD]", "<PAD>"),
    "start": ("<s>", "<sos>", "<bos>", "[CLS]", "[BOS]", "<SOS>", "<BOS>", "<start>", "<go>"),
    "end": ("</s>", "<eos>", "[SEP]", "[EOS]", "<EOS>", "<end>"),
    "unknown": ("<unk>", "[UNK]", "<UNK>"),
}
SPECIAL_TOKENS = tuple(SPECIAL_NAMES)
# The options on which results depend, and which no weight states.
UNSTATED = (
    "num_heads norm norm_epsilon ff_activation scale_embeddings positions source_prefix source_end"
).split()
COMPUTED = {"positions": "sinusoidal", "position_offset": 0}  # where there is no table
MAX_LENGTH = 512  # of a model whose positions are computed


def from_pytorch(
    state_dict: StateDict,
    layout: str,
    *,
    num_heads: int,
    special_ids: Mapping[str, int] | None = None,
    **options: Any,
) -> Transformer:
    """Make a model with the weights of a PyTorch module. No code of the module is run.

    Sizes follow from shapes. The rows of embeddings and output are put in the order of this
    project's ids: padding, start, end, unknown, and all others in their order.

    Args:
        state_dict: the module's tensors, or NumPy arrays, by name.
        layout: "torch" (`torch.nn.Transformer` with embeddings and a projection), "annotated" ("The
            Annotated Transformer") or "seq2seq" (the tutorial bentrevett/pytorch-seq2seq).
        num_heads: the number of attention heads, which no weight states.
        special_ids: the module's ids of "pad", "start", "end" and "unknown", of which the last may
            be left out. Default: 1, 2, 3 and 0; for "annotated", 2, 0, 1 and 3.
        **options: options of `TransformerConfig` in which the module differs from its layout, such
            as `norm="pre"`, `ff_activation="gelu"`, `scale_embeddings=False`, `max_length=100`, or
            `source_prefix=()` for sources without a start token.

    Returns:
        A built model.

    Raises:
        ValueError: with all names that do not fit the layout.
    """

    def read(name: str) -> np.ndarray:
        tensor = state_dict[name]
        values = tensor if isinstance(tensor, np.ndarray) else tensor.detach().cpu().float()
        return np.asarray(values, "float32")

    shapes = {name: tuple(tensor.shape) for name, tensor in state_dict.items()}
    file = Arrays(Path("state_dict"), shapes, read)
    options["num_heads"] = num_heads
    config, weights, _ = _convert(file, layout, options, special_ids)
    return Transformer.from_weights(weights, config)


def read_module(
    path: Path,
    layout: str,
    vocab: Sequence[Path],
    rule: str | None,
    special_ids: Mapping[str, int] | None,
    options: Mapping[str, Any],
) -> Imported:
    """Read a file of `torch.save` with the SentencePiece models or the lists of tokens `vocab`.

    `rule` splits texts into the tokens of lists; see `from_pytorch` for the others.
    """
    if not path.is_file():
        raise ValueError(f"model: expected a file of torch.save, got {path}; name the file.")
    check_vocab(vocab, (1, 2), ", or lists of tokens with their rule (tokens)")
    sides = [_read_side(each, rule) for each in dict.fromkeys(vocab)]
    (source, source_rows, ids), (target, target_rows, target_ids) = sides[0], sides[-1]
    if special_ids is None:
        _check_special_ids(ids, target_ids)
    else:
        ids = dict(special_ids)
    config, weights, vocabularies = _convert(
        open_pickle(path),
        layout,
        {"split_sentences": rule is None, **options},
        ids,
        (source_rows, target_rows),
    )
    unstated = (f"{name}={setting_text(getattr(config, name))}" for name in UNSTATED)
    return Imported(
        config,
        weights,
        vocabularies[0].sentencepiece_model(source),
        vocabularies[1].sentencepiece_model(target),
        family=f"PyTorch, layout {layout}",
        search={"max_length_factor": FREE_LENGTH},
        notes=(
            f"special tokens: {', '.join(f'{name} {row}' for name, row in ids.items())} "
            "(special_ids)",
            f"the weights do not state {', '.join(unstated)} (options)",
        ),
    )


def _read_side(path: Path, rule: str | None) -> tuple[ModelProto, dict[str, int], dict[str, int]]:
    """Return the SentencePiece model of a vocabulary, its pieces' rows and its special ids."""
    if rule is None:
        if path.suffix in (".json", ".txt"):
            raise ValueError(
                f"tokens: expected the rule that splits texts into the tokens of {path}, got None: "
                "'characters', 'words', or a regular expression whose matches are the tokens."
            )
        model = read_sentencepiece(path)
        trainer = model.trainer_spec
        stated = (trainer.pad_id, trainer.bos_id, trainer.eos_id, trainer.unk_id)
        ids = {name: row for name, row in zip(SPECIAL_TOKENS, stated, strict=True) if row >= 0}
        pieces = [piece.piece for piece in model.pieces]
    else:
        tokens = read_token_list(path)
        model, pieces = token_list_model(tokens, rule, set().union(*SPECIAL_NAMES.values()))
        ids = {
            name: tokens.index(token)
            for name, group in SPECIAL_NAMES.items()
            for token in group
            if token in tokens
        }
    return model, first_rows(pieces), ids


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


def _convert(
    file: Arrays,
    layout: str,
    options: Mapping[str, Any],
    special_ids: Mapping[str, int] | None,
    pieces: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {}),
) -> tuple[TransformerConfig, dict[str, np.ndarray], tuple[Vocabulary, Vocabulary]]:
    """Return the configuration, the weights and the vocabularies of a module.

    `pieces` are the rows of the tokens of source and target, if they are known.
    """
    module = _ModuleFile(file, layout, options)
    options = module.options
    sides = _vocabularies(module, special_ids, pieces)
    stated = read_options(module, options["norm_epsilon"])
    if not set(STORED_POSITIONS) <= set(module.arrays):
        stated |= COMPUTED
    stated["max_length"] -= len(options["source_prefix"])
    if stated["positions"] != "learned":
        stated["max_length"] = min(stated["max_length"], MAX_LENGTH)
    stated["tie_embeddings"] = tied_tables(module, True)
    sizes = (len(side.pieces) for side in sides)
    stated |= zip(("source_vocab_size", "target_vocab_size"), sizes, strict=True)
    config = TransformerConfig(**{**stated, **options})
    return config, read_weights(module, config, *sides), sides


class _ModuleFile(BinaryFile):
    """The arrays of a module under the names that they have in a file of CTranslate2."""

    def __init__(self, file: Arrays, name: str, options: Mapping[str, Any]) -> None:
        self.layout = find_layout(file, name)
        self.expectation = f"layout: expected the arrays of '{name}' by CTranslate2's names"
        self.arrays = named_arrays(file, name, self.layout)
        # The numbers tell equal shapes apart.
        variables = {
            ours: StoredArray("float32", array.shape, number)
            for number, (ours, array) in enumerate(self.arrays.items())
        }
        super().__init__(file.path, "TransformerSpec", 7, variables)
        self.options = {**self.layout.options, "source_prefix": (START_ID,), **options}
        if (heads := self.options.get("num_heads")) is None:
            raise ValueError(
                "num_heads: expected the number of attention heads, which the weights do not "
                f"state, got None; it divides the width, {self.shapes[SOURCE][1]}, and is often 8 "
                "(--option num_heads=8)."
            )
        self.attributes = {"num_heads": heads, "pre_norm": self.options["norm"] == "pre"}

    def refuse(self, reason: str) -> NoReturn:
        raise ValueError(f"layout: {self.path}: {reason}.")

    def number(self, name: str, default: float) -> float:
        return self.attributes.get(name.rpartition("/")[2], default)

    def read(self, name: str) -> np.ndarray:
        return self.arrays[name]


def _vocabularies(
    module: _ModuleFile,
    special_ids: Mapping[str, int] | None,
    pieces: tuple[Mapping[str, int], Mapping[str, int]],
) -> tuple[Vocabulary, Vocabulary]:
    """Return the tokens of source and target in the order of this project's ids."""
    ids = module.layout.special_ids if special_ids is None else special_ids
    rows = [module.shapes[table][0] for table in (SOURCE, TARGET)]
    if (
        not set(SPECIAL_TOKENS[:3]) <= set(ids) <= set(SPECIAL_TOKENS)
        or not set(ids.values()) <= set(range(min(rows)))
        or len(set(ids.values())) < len(ids)
    ):
        raise ValueError(
            f"special_ids: expected different ids from 0 to {min(rows) - 1} of pad, start and "
            f"end, and of unknown if there is one, got {shorten(str(dict(ids)))}."
        )

    def remapped(count: int, rows_of_pieces: Mapping[str, int]) -> Vocabulary:
        # Without an unknown token, there is a row of zeros that is never predicted.
        unknown = ids.get("unknown", count)
        total = max(count, unknown + 1)
        special = SpecialRows(ids["pad"], ids["start"], ids["end"], unknown, dedicated_start=True)
        return Vocabulary.remapped(
            rows_of_pieces, total, special, never_predicted=range(count, total)
        )

    source, target = map(remapped, rows, pieces)
    return source, target
