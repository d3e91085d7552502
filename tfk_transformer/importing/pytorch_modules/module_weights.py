"""The weights of a PyTorch module become those of a `Transformer`, by a table of names."""

import itertools
import operator
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.words import shorten
from tfk_transformer.constants import START_ID
from tfk_transformer.importing.arrays import Arrays
from tfk_transformer.importing.pytorch_modules.layouts import LAYOUTS, Layout
from tfk_transformer.importing.vocabulary import SpecialRows, Vocabulary, remap_vocabulary
from tfk_transformer.importing.weights import (
    NORM,
    STACKS,
    Array,
    layer_arrays,
    norm_arrays,
    read_arrays,
    stored_positions,
    table_arrays,
)
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.weights import check_sizes

if TYPE_CHECKING:
    import torch

StateDict: TypeAlias = "Mapping[str, torch.Tensor | np.ndarray]"

SPECIAL_TOKENS = ("pad", "start", "end", "unknown")
MAX_LENGTH = 512  # of a model whose positions are computed
PAGE = "docs/pytorch.md"
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


class Module(NamedTuple):
    """The arrays of a module, and how they are named."""

    file: Arrays
    name: str
    layout: Layout
    root: str  # before "encoder.layers.0."
    tables: Mapping[str, str]  # names of the arrays outside of stacks, by role


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
            be left out. Default: the layout's, which `docs/pytorch.md` lists.
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
    module = open_module(file, layout)
    vocabularies = module_vocabularies(module, special_ids)
    config, weights = convert(module, vocabularies, {"num_heads": num_heads, **options})
    return Transformer.from_weights(weights, config)


def _as_array(tensor: "torch.Tensor | np.ndarray") -> np.ndarray:
    if isinstance(tensor, np.ndarray):
        return tensor.astype("float32")
    return tensor.detach().cpu().float().numpy()


def open_module(file: Arrays, name: str) -> Module:
    """Find the names of a layout in a file."""
    if name not in LAYOUTS:
        fitting = [other for other, layout in LAYOUTS.items() if _roots(file, layout)]
        hint = f"; the names fit '{fitting[0]}'" if fitting else _other_layout()
        raise ValueError(
            f"layout: expected one of {', '.join(LAYOUTS)}, got '{shorten(str(name))}'{hint}."
        )
    layout = LAYOUTS[name]
    roots = _roots(file, layout)
    if len(roots) != 1:
        fitting = [other for other, each in LAYOUTS.items() if _roots(file, each)]
        hint = f"; the names fit '{fitting[0]}'" if fitting else _other_layout()
        listed = ", ".join(map(shorten, list(file.shapes)[:3]))
        raise ValueError(
            f"layout: expected one array such as '{_first_query(layout)}' for '{name}' in "
            f"{file.path}, got {len(roots)} among {len(file.shapes)}, such as {listed}{hint}."
        )
    (root,) = roots
    found = {role: _table_name(file, layout, root, role) for role in layout.tables}
    tables = {role: table for role, table in found.items() if table}
    if missing := {"source", "target", "output"} - set(tables):
        outside = ", ".join(map(shorten, _outside(file, layout, root))) or "none"
        raise ValueError(
            f"layout: expected one array each as {' and '.join(sorted(missing))} of '{name}' in "
            f"{file.path}, got {outside}; rename it in the state_dict, as {PAGE} shows."
        )
    return Module(file, name, layout, root, tables)


def _first_query(layout: Layout) -> str:
    return f"encoder.layers.0.{layout.attentions[0]}{layout.products['query']}weight"


def _roots(file: Arrays, layout: Layout) -> list[str]:
    """Return what stands before the names of a layout: an empty string, or "transformer."."""
    query = _first_query(layout)
    return [name.removesuffix(query) for name in file.shapes if name.endswith(query)]


def _other_layout() -> str:
    return f"; for another layout, fill the table of Transformer.from_weights ({PAGE}): {OUR_TABLE}"


def _outside(file: Arrays, layout: Layout, root: str) -> list[str]:
    """Return the names of matrices outside of the layers, and of tables of positions."""
    layers = tuple(f"{root}{stack}.layers." for stack in STACKS)
    return [
        name
        for name, shape in file.shapes.items()
        if not name.startswith(layers) and len([size for size in shape if size > 1]) == 2
    ]


def _table_name(file: Arrays, layout: Layout, root: str, role: str) -> str | None:
    outside = _outside(file, layout, root)
    for pattern in layout.tables[role]:
        matches = [name for name in outside if re.search(pattern, name)]
        if len(matches) == 1:
            return matches[0]
    return None


def module_vocabularies(
    module: Module,
    special_ids: Mapping[str, int] | None,
    pieces: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {}),
) -> tuple[Vocabulary, Vocabulary]:
    """Return the tokens of source and target in the order of this project's ids.

    `pieces` are the rows of the tokens of source and target, if they are known.
    """
    ids = dict(module.layout.special_ids if special_ids is None else special_ids)
    rows = [module.file.shapes[module.tables[side]][0] for side in ("source", "target")]
    missing = [name for name in SPECIAL_TOKENS[:-1] if name not in ids]
    unknown = [name for name in ids if name not in SPECIAL_TOKENS]
    outside = [row for row in ids.values() if not 0 <= row < min(rows)]
    if missing or unknown or outside or len({*ids.values()}) < len(ids):
        raise ValueError(
            f"special_ids: expected different ids from 0 to {min(rows) - 1} of pad, start and end, "
            f"and of unknown if there is one, got {shorten(str(ids))}."
        )
    sides = []
    for count, side_pieces in zip(rows, pieces, strict=True):
        # Without an unknown token, there is a row of zeros that is never predicted.
        special = SpecialRows(
            ids["pad"], ids["start"], ids["end"], ids.get("unknown", count), dedicated_start=True
        )
        total = max(count, special.unknown + 1)
        sides.append(
            remap_vocabulary(side_pieces, total, special, never_predicted=range(count, total))
        )
    return sides[0], sides[1]


def convert(
    module: Module,
    vocabularies: tuple[Vocabulary, Vocabulary],
    options: Mapping[str, Any],
) -> tuple[TransformerConfig, dict[str, np.ndarray]]:
    """Return the configuration and the weights of a module."""
    source, target = vocabularies
    if options.get("num_heads") is None:
        raise ValueError(
            "num_heads: expected the number of attention heads, which the weights do not state, "
            f"got None; it divides the width, {_width(module)}, and is often 8 (--option "
            "num_heads=8)."
        )
    options = {
        **_stated_options(module),
        **module.layout.options,
        "source_vocab_size": len(source.pieces),
        "target_vocab_size": len(target.pieces),
        "source_prefix": (START_ID,),
        **options,
    }
    config = TransformerConfig(**{**_position_options(module, options), **options})
    return config, _read(module, config, source, target)


def _width(module: Module) -> int:
    return module.file.shapes[module.tables["source"]][1]


def _stated_options(module: Module) -> dict[str, Any]:
    """Return the options that follow from the names and shapes of the arrays."""
    file, layout = module.file, module.layout
    widths = [
        file.shapes.get(f"{_layer(module, stack, 0)}{layout.feed_forward[0]}weight", (0,))[0]
        for stack in STACKS
    ]
    attention = _layer(module, "encoder", 0) + layout.attentions[0]
    return {
        "model_dim": _width(module),
        "ff_dim": widths[0],
        "decoder_ff_dim": widths[1] if widths[1] != widths[0] else None,
        "attention_bias": tuple(
            role
            for role, name in layout.products.items()
            if f"{attention}{name}bias" in file.shapes
        ),
        "ff_bias": f"{_layer(module, 'encoder', 0)}{layout.feed_forward[0]}bias" in file.shapes,
        "output_bias": True,
        "tie_embeddings": _tied(module),
        **{f"{stack}_layers": _count_layers(module, stack) for stack in STACKS},
        **{
            f"{stack}_final_norm": f"{_final_norm(module, stack)}{layout.norm_weights[0]}"
            in file.shapes
            for stack in STACKS
        },
    }


def _layer(module: Module, stack: str, index: int) -> str:
    return f"{module.root}{stack}.layers.{index}."


def _final_norm(module: Module, stack: str) -> str:
    return f"{module.root}{stack}.{module.layout.final_norm}"


def _count_layers(module: Module, stack: str) -> int:
    first = module.layout.feed_forward[0]
    layers = (f"{_layer(module, stack, index)}{first}weight" for index in itertools.count())
    return sum(1 for _ in itertools.takewhile(module.file.shapes.__contains__, layers))


def _tied(module: Module) -> str:
    """Return the value of `tie_embeddings`: which of the three tables are equal."""
    names = (module.tables[role] for role in ("source", "target", "output"))
    source, target, output = map(module.file.read, names)
    shares_source, ties_output = np.array_equal(source, target), np.array_equal(target, output)
    if ties_output:
        return "all" if shares_source else "target"
    return "inputs" if shares_source else "none"


def _position_options(module: Module, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `max_length`, and the type of positions if the file has tables of them.

    The rows of a learned table also serve the tokens before a source.
    """
    names = [module.tables.get(f"{side}_positions") for side in ("source", "target")]
    tables = [_position_table(module, name) for name in names if name]
    if len(tables) < len(names):
        return {"max_length": MAX_LENGTH}
    prefix = len(options["source_prefix"])
    length = min(map(len, tables))
    stated = stored_positions([table[:length] for table in tables])
    fitting = min(len(tables[0]) - prefix, len(tables[1]))
    learned = stated["positions"] == "learned"
    return {**stated, "max_length": fitting if learned else min(fitting, MAX_LENGTH)}


def _position_table(module: Module, name: str) -> np.ndarray:
    """Return a table of positions, which PyTorch's tutorial stores as (rows, 1, D)."""
    return module.file.read(name).reshape(-1, _width(module))


def _read(
    module: Module, config: TransformerConfig, source: Vocabulary, target: Vocabulary
) -> dict[str, np.ndarray]:
    """Return all weights of a model with this configuration."""
    file, tables = module.file, module.tables
    check_sizes(config, file.shapes, file.path)
    arrays: dict[str, Array] = {}
    for stack in STACKS:
        for index in range(getattr(config, f"{stack}_layers")):
            attentions, others = _layer_names(module, config, stack)
            prefix = _layer(module, stack, index)
            arrays |= layer_arrays(config, stack, index, prefix, attentions, others)
        if getattr(config, f"{stack}_final_norm"):
            norm = [_final_norm(module, stack) + weight for weight in module.layout.norm_weights]
            arrays |= norm_arrays(config, f"{stack}/final_norm", *norm)
    if module.layout.unbiased_norm:
        factor = np.float32(np.sqrt((config.model_dim - 1) / config.model_dim))
        arrays |= {
            name: array.prepared(partial(np.multiply, factor))
            for name, array in arrays.items()
            if name.endswith("/gamma")
        }
    names = [tables[role] for role in ("source", "target", "output")]
    rows = [file.shapes[name][0] for name in names[:2]]
    arrays |= table_arrays(config, names, rows, source, target)
    if config.has_learned_positions:
        for side, count in (("source", len(config.source_prefix)), ("target", 0)):
            name = tables.get(f"{side}_positions", f"{side} positions")
            used = operator.itemgetter(slice(config.max_length + count))
            shape = file.shapes.get(name, (config.max_length + count, config.model_dim))
            flat = Array(name, shape, used).prepared(partial(_flat, width=config.model_dim))
            arrays[f"{side}_positions/table"] = flat
    masks = {name for name in file.shapes if name.endswith("mask")}
    return read_arrays(
        file,
        arrays,
        {*tables.values(), *masks},
        target,
        Array(f"{names[2].removesuffix('weight')}bias", (rows[1],)),
        f"layout: expected the arrays of '{module.name}'",
    )


def _flat(table: np.ndarray, width: int) -> np.ndarray:
    return table.reshape(-1, width)


def _layer_names(
    module: Module, config: TransformerConfig, stack: str
) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Return the names of attentions and the other names of a layer for `layer_arrays`."""
    layout = module.layout
    *norms, last_norm = layout.norms[stack]
    attentions = [
        {
            **{role: f"{attention}{name}weight" for role, name in layout.products.items()},
            **{
                f"{role}_bias": f"{attention}{layout.products[role]}bias"
                for role in config.attention_bias
            },
            **{ours: norm + theirs for ours, theirs in zip(NORM, layout.norm_weights, strict=True)},
        }
        for attention, norm in zip(layout.attentions, norms, strict=False)
    ]
    parts = [("kernel", "weight"), *[("bias", "bias")] * config.ff_bias]
    products = zip(("inner", "outer"), layout.feed_forward, strict=True)
    feed_forward = {
        f"feed_forward/{ours}/{part}": theirs + weight
        for ours, theirs in products
        for part, weight in parts
    }
    last = zip(NORM, layout.norm_weights, strict=True)
    return attentions, {
        **feed_forward,
        **{f"ff_residual/norm/{ours}": last_norm + theirs for ours, theirs in last},
    }
