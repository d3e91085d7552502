"""The weights of a PyTorch module become those of a `Transformer`.

A table of names gives each array the name that it has in a file of CTranslate2, whose reader
converts it.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.words import shorten
from tfk_transformer.constants import START_ID
from tfk_transformer.importing.arrays import Arrays, StoredArray
from tfk_transformer.importing.ctranslate2_folder.binary_file import BinaryFile
from tfk_transformer.importing.ctranslate2_folder.options import read_options, tied_tables
from tfk_transformer.importing.ctranslate2_folder.weights import (
    ATTENTION_PRODUCTS,
    STORED_POSITIONS,
    read_weights,
)
from tfk_transformer.importing.pytorch_modules.layouts import (
    LAYOUTS,
    OUTPUT,
    SOURCE,
    TARGET,
    Layout,
)
from tfk_transformer.importing.vocabulary import SpecialRows, Vocabulary, remap_vocabulary
from tfk_transformer.importing.weights import NORM
from tfk_transformer.models.transformer import Transformer

if TYPE_CHECKING:
    import torch

StateDict: TypeAlias = "Mapping[str, torch.Tensor | np.ndarray]"

SPECIAL_TOKENS = ("pad", "start", "end", "unknown")
SUBLAYERS = {
    "encoder": ("self_attention", "ffn"),
    "decoder": ("self_attention", "attention", "ffn"),
}
IN_LAYER = re.compile(r"(?:.*\.)?(encoder|decoder)\.layers\.(\d+)\.(.*)")
FINAL_NORM = re.compile(r"(?:.*\.)?(encoder|decoder)\.norm\.(\w+)")
COMPUTED = {"positions": "sinusoidal", "position_offset": 0}  # where there is no table
MAX_LENGTH = 512  # of a model whose positions are computed
# Letters: D model_dim, H num_heads, K and V the widths of heads, F ff_dim, N the number of a layer.
OUR_TABLE = (
    "source_embedding/embeddings, target_embedding/embeddings (vocabulary, D); "
    "in encoder/layer_N/attention/, decoder/layer_N/self_attention/ and cross_attention/: query, "
    "key, value (H, D, K), query_bias, key_bias, value_bias (H, 1, K), output (H*V, D), "
    "output_bias (D,); in encoder/layer_N/ and decoder/layer_N/: feed_forward/inner/kernel (D, F) "
    "and bias (F,), feed_forward/outer/kernel (F, D) and bias (D,), attention_residual/norm/ "
    "(decoder: self_residual/norm/ and cross_residual/norm/) and ff_residual/norm/ gamma, beta "
    "(D,); encoder/final_norm/ and decoder/final_norm/ gamma, beta (D,); output/kernel (D, "
    "vocabulary), output/bias (vocabulary,)"
)


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
    arrays = {name: _as_array(tensor) for name, tensor in state_dict.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    file = Arrays(Path("state_dict"), shapes, arrays.__getitem__)
    module = ModuleFile(file, layout, {"num_heads": num_heads, **options})
    config, weights = module.convert(module.vocabularies(special_ids))
    return Transformer.from_weights(weights, config)


def _as_array(tensor: "torch.Tensor | np.ndarray") -> np.ndarray:
    if isinstance(tensor, np.ndarray):
        return tensor.astype("float32")
    return tensor.detach().cpu().float().numpy()


class ModuleFile(BinaryFile):
    """The arrays of a module under the names that they have in a file of CTranslate2."""

    def __init__(self, file: Arrays, name: str, options: Mapping[str, Any]) -> None:
        layout = _layout(file, name)
        self.expectation = f"layout: expected the arrays of '{name}' by CTranslate2's names"
        self.layout = layout
        self.arrays = _named_arrays(file, name, layout)
        variables = {
            ours: StoredArray("float32", array.shape, number)
            for number, (ours, array) in enumerate(self.arrays.items())
        }
        super().__init__(file.path, "TransformerSpec", 7, variables)
        self.options = {**layout.options, "source_prefix": (START_ID,), **options}
        if (heads := self.options.get("num_heads")) is None:
            raise ValueError(
                "num_heads: expected the number of attention heads, which the weights do not "
                f"state, got None; it divides the width, {self.shapes[SOURCE][1]}, and is often 8 "
                "(--option num_heads=8)."
            )
        self.attributes = {"num_heads": heads, "pre_norm": self.options["norm"] == "pre"}

    def refuse(self, reason: str) -> NoReturn:
        """Raise the error for arrays that are no `Transformer`."""
        raise ValueError(f"layout: {self.path}: {reason}.")

    def number(self, name: str, default: float) -> float:
        """Return an option by the name of CTranslate2's attribute."""
        return self.attributes.get(name.rpartition("/")[2], default)

    def read(self, name: str) -> np.ndarray:
        """Return an array as float32."""
        return self.arrays[name]

    def vocabularies(
        self,
        special_ids: Mapping[str, int] | None,
        pieces: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {}),
    ) -> tuple[Vocabulary, Vocabulary]:
        """Return the tokens of source and target in the order of this project's ids.

        `pieces` are the rows of the tokens of source and target, if they are known.
        """
        ids = dict(self.layout.special_ids if special_ids is None else special_ids)
        rows = [self.shapes[table][0] for table in (SOURCE, TARGET)]
        needed = set(SPECIAL_TOKENS[:3])
        if (
            not needed <= set(ids) <= set(SPECIAL_TOKENS)
            or not set(ids.values()) <= set(range(min(rows)))
            or len(set(ids.values())) < len(ids)
        ):
            raise ValueError(
                f"special_ids: expected different ids from 0 to {min(rows) - 1} of pad, start and "
                f"end, and of unknown if there is one, got {shorten(str(ids))}."
            )
        sides = []
        for count, rows_of_pieces in zip(rows, pieces, strict=True):
            # Without an unknown token, there is a row of zeros that is never predicted.
            first = (ids["pad"], ids["start"], ids["end"], ids.get("unknown", count))
            total = max(count, first[-1] + 1)
            special = SpecialRows(*first, dedicated_start=True)
            silent = range(count, total)
            sides.append(remap_vocabulary(rows_of_pieces, total, special, never_predicted=silent))
        return sides[0], sides[1]

    def convert(
        self, vocabularies: tuple[Vocabulary, Vocabulary]
    ) -> tuple[TransformerConfig, dict[str, np.ndarray]]:
        """Return the configuration and the weights of the module."""
        stated = read_options(self, self.options["norm_epsilon"])
        if not set(STORED_POSITIONS) <= set(self.arrays):
            stated |= COMPUTED
        length = stated["max_length"] - len(self.options["source_prefix"])
        if stated["positions"] != "learned":
            length = min(length, MAX_LENGTH)
        source, target = vocabularies
        config = TransformerConfig(
            **{
                **stated,
                "tie_embeddings": tied_tables(self, True),
                "max_length": length,
                "source_vocab_size": len(source.pieces),
                "target_vocab_size": len(target.pieces),
                **self.options,
            }
        )
        return config, read_weights(self, config, source, target)


def _layout(file: Arrays, name: str) -> Layout:
    """Return the layout of this name, whose names a file must have."""
    fitting = [other for other, layout in LAYOUTS.items() if _fits(file, layout)]
    if name in fitting:
        return LAYOUTS[name]
    hint = f"for others, fill Transformer.from_weights (docs/pytorch.md): {OUR_TABLE}"
    if fitting:
        hint = f"the names fit '{fitting[0]}'"
    listed = ", ".join(map(shorten, list(file.shapes)[:3]))
    raise ValueError(
        f"layout: expected one of {', '.join(LAYOUTS)} whose names are in {file.path}, got "
        f"'{shorten(str(name))}' and names such as {listed}; {hint}."
    )


def _fits(file: Arrays, layout: Layout) -> bool:
    first = f"encoder.layers.0.{layout.attentions[0]}{next(iter(layout.products))}weight"
    return sum(name.endswith(first) for name in file.shapes) == 1


def _named_arrays(file: Arrays, name: str, layout: Layout) -> dict[str, np.ndarray]:
    """Return the arrays of a file by CTranslate2's names."""
    ours = {theirs: _layer_name(theirs, layout) for theirs in file.shapes}
    outside = [theirs for theirs, new in ours.items() if new is None]
    arrays = {new: file.read(theirs) for theirs, new in ours.items() if new is not None}
    used = set()
    for table, patterns in layout.tables.items():
        matches = ([each for each in outside if re.search(pattern, each)] for pattern in patterns)
        for theirs in next((found for found in matches if len(found) == 1), ()):
            used.add(theirs)
            array = file.read(theirs)
            # PyTorch's tutorial stores a table of positions as (rows, 1, D).
            arrays[table] = array.reshape(-1, array.shape[-1])
            bias = theirs.removesuffix("weight") + "bias"
            if table == OUTPUT and bias in outside:
                used.add(bias)
                arrays["decoder/projection/bias"] = file.read(bias)
    missing = [table for table in (SOURCE, TARGET, OUTPUT) if table not in arrays]
    others = [each for each in outside if each not in used and not each.endswith("mask")]
    if missing or others:
        got = f"no {', '.join(missing)}" if missing else "also"
        listed = ", ".join(f"'{shorten(each)}' {file.shapes[each]}" for each in others[:5])
        raise ValueError(
            f"layout: expected the embeddings, positions and output of '{name}' outside of the "
            f"layers in {file.path}, got {got} {listed}; rename them in the state_dict, or remove "
            "what the module does not compute with."
        )
    _join_products(arrays, layout)
    width = arrays[SOURCE].shape[1]
    factor = np.float32(np.sqrt((width - 1) / width) if layout.unbiased_norm else 1)
    for norm in [each.removesuffix("gamma") for each in arrays if each.endswith("/gamma")]:
        arrays[f"{norm}gamma"] = arrays[f"{norm}gamma"] * factor
        # Without a beta, CTranslate2's norm would be one by the root mean square.
        arrays.setdefault(f"{norm}beta", np.zeros(width, "float32"))
    return arrays


def _layer_name(name: str, layout: Layout) -> str | None:
    """Return CTranslate2's name of an array of a stack; None: it is outside of the stacks.

    Arrays of an attention still have the layout's names after the attention's.
    """
    weights = dict(zip(layout.norm_weights, NORM, strict=True))
    if match := FINAL_NORM.fullmatch(name):
        return f"{match[1]}/layer_norm/{weights.get(match[2], match[2])}"
    if not (match := IN_LAYER.fullmatch(name)):
        return None
    stack, number, rest = match.groups()
    sublayers = SUBLAYERS[stack]
    norms = zip(layout.norms[stack], sublayers, strict=True)
    prefixes = {theirs: f"{sublayer}/layer_norm/" for theirs, sublayer in norms}
    prefixes |= dict(zip(layout.feed_forward, ("ffn/linear_0/", "ffn/linear_1/"), strict=True))
    prefixes |= {
        theirs: f"{sublayer}/"
        for theirs, sublayer in zip(layout.attentions, sublayers[:-1], strict=False)
    }
    for theirs, prefix in prefixes.items():
        if rest.startswith(theirs):
            last = rest.removeprefix(theirs)
            last = weights.get(last, last) if theirs in layout.norms[stack] else last
            return f"{stack}/layer_{number}/{prefix}{last}"
    return f"{stack}/layer_{number}/{rest}"


def _join_products(arrays: dict[str, np.ndarray], layout: Layout) -> None:
    """Give the products of attentions the names and the rows that they have in CTranslate2."""
    first = next(iter(layout.products))
    ends = tuple(f"attention/{first}{part}" for part in ("weight", "bias"))
    for name in [each for each in arrays if each.endswith(ends)]:
        path, _, last = name.rpartition(first)
        roles: dict[str, np.ndarray] = {}
        for product, names in layout.products.items():
            if (array := arrays.pop(f"{path}{product}{last}", None)) is not None:
                roles |= zip(names, np.split(array, len(names)), strict=True)
        numbers = ATTENTION_PRODUCTS[path.split("/")[-2]]
        for number in set(numbers.values()):
            parts = [roles[role] for role in roles if numbers[role] == number]
            if parts:
                arrays[f"{path}linear_{number}/{last}"] = np.concatenate(parts)
