"""`tfk-transformer inspect`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from tfk_transformer.apps.cli import arguments
from tfk_transformer.apps.cli.terminal import print_line, print_report
from tfk_transformer.config.setting_values import setting_text
from tfk_transformer.pipelines.licenses import license_warning

INSPECT_EXAMPLES = """
tfk-transformer inspect numbers-files/translate.onnx
# Show only the differences: configuration, signatures, sizes, parity.
tfk-transformer inspect numbers numbers-2
"""


def inspect_command(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    other: Annotated[Path | None, typer.Argument(metavar="OTHER")] = None,
    json_output: arguments.Json = False,
) -> None:
    """Show the signatures, sizes, version and configuration of a file or folder, and how closely
    its results agree with the Keras model.

    With OTHER, show only the differences between FILE and OTHER.

    Args:
        file: An exported file, an exported folder or page, or a bundle.
        other: A file or folder to compare with FILE.
    """
    arguments.prepare(file)
    from tfk_transformer.export.inspection import inspect

    description = inspect(file)
    origin = description.get("model_card") or description.get("facts", {}).get("origin", {})
    if warning := license_warning(origin):
        print_line(f"warning: {warning}")
    if other is None:
        print_report(description, _tables(description), json_output)
        return
    arguments.prepare(other)
    second = inspect(other)
    paths = description["path"], second["path"]
    differ = dict(differences(description, second))
    rows = [(name, *map(_readable, values)) for name, values in differ.items()]
    table = _table(f"{len(differ)} differences", ("", *paths), rows)
    print_report({"paths": paths, "differences": differ}, [table], json_output)


def _tables(description: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the tables of a result of `inspect`, for a console without markup."""
    facts = {
        "kind": description["kind"],
        **{name: f"{size:,} bytes" for name, size in description["files"].items()},
        "parameters": f"{description['parameters']:,}",
        **description["facts"],
    }
    yield _value_table(description["path"], facts)
    if card := description.get("model_card"):
        yield _value_table("model card", card)
    for name, signature in description.get("signatures", {}).items():
        tensors = [(side[:-1], tensor) for side in signature for tensor in signature[side]]
        rows = [
            (side, tensor["name"], tensor["dtype"], _shape(tensor), str(tensor.get("default", "")))
            for side, tensor in tensors
        ]
        yield _table(f"signature {name}", ("", "name", "dtype", "shape", "default"), rows)
    if settings := description.get("settings"):
        columns = ("name", "type", "default", "least", "most")
        rows = []
        for name, rule in settings.items():
            least = str(rule.get("minimum", ""))
            if "exclusiveMinimum" in rule:
                least = f"above {rule['exclusiveMinimum']}"
            words = ", ".join(map(setting_text, rule.get("enum", ())))
            default = setting_text(rule["default"])
            most = str(rule.get("maximum", ""))
            rows.append((name, rule.get("type", words), default, least, most))
        yield _table("search settings", columns, rows)
    titles = {"config": "configuration", "parity": "agreement with the Keras model"}
    for name in titles:
        if values := description.get(name):
            yield _value_table(titles[name], values)


def _table(
    title: str, columns: Iterable[Column | str], rows: Iterable[Sequence[str]], **options: Any
) -> Table:
    table = Table(*columns, title=title, title_justify="left", **options)
    for row in rows:
        table.add_row(*row)
    for column in table.columns:
        column.overflow = "fold"  # instead of an ellipsis, on narrow terminals
    return table


def _value_table(title: str, values: Mapping[str, Any]) -> Table:
    rows = [(name, _format_value(value)) for name, value in values.items()]
    return _table(title, (), rows, show_header=False)


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def differences(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield each name, such as "config.model_dim", with the two values that differ.

    A missing value is None.
    """
    shared = set(first.get("signatures", ())) & set(second.get("signatures", ()))
    flat = [dict(_flat(_comparable(description, shared))) for description in (first, second)]
    for name in {**flat[0], **flat[1]}:
        values = flat[0].get(name), flat[1].get(name)
        if values[0] != values[1]:
            yield name, values


def _comparable(description: Mapping[str, Any], shared: set[str]) -> dict[str, Any]:
    """Return a result of `inspect` without its path; tensors and single signatures are texts."""
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
    default = f", default {tensor['default']}" if "default" in tensor else ""
    return f"{tensor['dtype']} {_shape(tensor)}{default}"


def _shape(tensor: Mapping[str, Any]) -> str:
    """Return a shape as "[?, 128]"."""
    return f"[{', '.join('?' if size is None else str(size) for size in tensor['shape'])}]"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects by their path."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _readable(value: Any) -> str:
    """Format a value as `_format_value` does, but integers with commas, and None as "-"."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return _format_value(value)
