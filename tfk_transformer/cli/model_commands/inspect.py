"""`tfk-transformer inspect`."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.cli.arguments import Json, console, prepare

EXAMPLES = """
tfk-transformer inspect numbers-files/translate.onnx
# Only what differs between two: configuration, signatures, sizes, parity.
tfk-transformer inspect numbers numbers-2
"""


def command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="An exported file, an exported folder (also a page) or a bundle."
        ),
    ],
    other: Annotated[
        Path | None, typer.Argument(metavar="OTHER", help="Another one, to compare the two.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Show the signatures, sizes, version and configuration of a file or folder, and how closely it
    agrees with the Keras model.

    With OTHER, show only what differs between the two.
    """
    prepare(file)
    from tfk_transformer.export.inspection import inspect, tables

    description = inspect(file)
    if other is not None:
        prepare(other)
        _print_differences(description, inspect(other), json_output)
    elif json_output:
        print(json.dumps(description, indent=2))
    else:
        for table in tables(description):
            console().print(table)


def _print_differences(first: Mapping[str, Any], second: Mapping[str, Any], as_json: bool) -> None:
    paths = first["path"], second["path"]
    differ = dict(differences(first, second))
    if as_json:
        print(json.dumps({"paths": paths, "differences": differ}, indent=2))
        return
    from rich.table import Table

    table = Table(title=f"{len(differ)} differences", title_justify="left")
    for title in ("", *paths):
        table.add_column(title, overflow="fold")
    for name, values in differ.items():
        table.add_row(name, *("-" if value is None else _readable(value) for value in values))
    console().print(table)


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the names and values that differ between two results of `inspect`.

    A name is a path such as "config.model_dim". A missing value is None.
    """
    shared = set(first.get("signatures", ())) & set(second.get("signatures", ()))
    flat = [dict(_flat(_comparable(description, shared))) for description in (first, second)]
    for name in {**flat[0], **flat[1]}:
        values = flat[0].get(name), flat[1].get(name)
        if values[0] != values[1]:
            yield name, values


def _comparable(description: Mapping[str, Any], shared: set[str]) -> dict[str, Any]:
    """Return a result of `inspect` in a form that can be compared.

    The path is removed. Tensors, and signatures that are not shared, become texts.
    """
    signatures = {
        name: {
            side: {tensor["name"]: _tensor(tensor) for tensor in tensors}
            for side, tensors in sides.items()
        }
        if name in shared
        else ", ".join(f"{len(tensors)} {side}" for side, tensors in sides.items())
        for name, sides in description.get("signatures", {}).items()
    }
    rules = {
        name: {key: value for key, value in rule.items() if key != "description"}
        for name, rule in (description.get("settings") or {}).items()
    }
    return {
        **{name: value for name, value in description.items() if name != "path"},
        "signatures": signatures,
        "settings": rules,
    }


def _tensor(tensor: Mapping[str, Any]) -> str:
    shape = ", ".join("?" if size is None else str(size) for size in tensor["shape"])
    default = f", default {tensor['default']}" if "default" in tensor else ""
    return f"{tensor['dtype']} [{shape}]{default}"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects by their path."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _readable(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
