"""The pages for browsers: what is served, and every path. They need no script and no other host."""

import html
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import HTMLResponse

from tfk_transformer.apps.server.routes import DescribedRoute
from tfk_transformer.apps.server.served_model import ServedModel

Protocols: TypeAlias = Mapping[str, Sequence[DescribedRoute]]  # the routes of each

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; }
code, pre { background: #8882; border-radius: 4px; padding: .1em .3em; }
pre { overflow-x: auto; padding: 1em; }
table { border-collapse: collapse; margin-bottom: 1em; }
td, th { border-bottom: 1px solid #8886; padding: .3em .8em .3em 0; text-align: left;
  vertical-align: top; }
h3 { margin-bottom: 0; }
:root { color-scheme: light dark; }
"""
HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
{content}
</body>
</html>
"""
START_CONTENT = """<p>This server {task} with tfk-transformer.</p>
<h2>A request</h2>
<pre>{command}</pre>
{paths}
<p><a href="{root}docs">All paths with their fields</a>, also
<a href="{root}openapi.json">for programs (OpenAPI)</a>.</p>"""


def start_page(served: ServedModel, protocols: Protocols, request: Request) -> HTMLResponse:
    """Return the page that shows what is served, and how to call it at the request's address."""
    settings = served.settings
    source, target = served.languages
    languages = f" from {source} to {target}" if source and target else ""
    body: dict[str, Any] = {"instances": ["one"]}
    call = f"/v1/models/{settings.name}:predict"
    if not served.classifies:
        call = "/translate"
        body = {"q": "one", "source": source or "auto", "target": target or "und"}
    root = settings.root_path or ""
    url = f"{str(request.base_url).rstrip('/')}{root}{call}"
    key = "" if settings.api_key is None else " -H 'Authorization: Bearer KEY'"
    command = f"curl {shlex.quote(url)}{key} -d {shlex.quote(json.dumps(body))}"
    parts = []
    for protocol, routes in protocols.items():
        rows = [
            [f"<code>{html.escape(f'{route.method} {root}{route.path}')}</code>", _text(route)]
            for route in routes
        ]
        parts.append(f"<h2>{html.escape(protocol)}</h2>{_table(['path', ''], rows)}")
    content = START_CONTENT.format(
        task="classifies texts" if served.classifies else f"translates texts{languages}",
        command=html.escape(command),
        paths="\n".join(parts),
        # Without the root path, a link relative to the page is right behind every proxy.
        root=f"{root}/" if root else "",
    )
    return _page(settings.name, content)


def docs_page(name: str, protocols: Protocols, schemas: Mapping[str, Any]) -> HTMLResponse:
    """Return the page of the model `name` that shows the routes and the objects of their bodies."""
    parts = []
    for protocol, routes in protocols.items():
        parts.append(f"<h2>{html.escape(protocol)}</h2>")
        for route in routes:
            operation = route.operation
            parts.append(f"<h3><code>{html.escape(f'{route.method} {route.path}')}</code></h3>")
            parts.append(f"<p>{_text(route)}</p>")
            if "requestBody" in operation:
                bodies = operation["requestBody"]["content"]
                parts.append(f"<p>Body: {html.escape(', '.join(bodies))}</p>")
                parts.append(_fields(next(iter(bodies.values()))["schema"]))
            responses = operation["responses"].items()
            answers = _table(
                ["status", ""],
                [[str(status), html.escape(item["description"])] for status, item in responses],
            )
            parts.append(f"<details><summary>Answers</summary>{answers}</details>")
    parts.append("<h2>Objects</h2>")
    for title, schema in schemas.items():
        parts.append(f'<h3 id="{title}">{title}</h3>{_fields(schema)}')
    return _page(f"{name}: paths", "\n".join(parts))


def _text(route: DescribedRoute) -> str:
    """Return the description of a route, whose code stands in backquotes."""
    return re.sub("`(.*?)`", r"<code>\1</code>", html.escape(route.operation["description"]))


def _page(title: str, content: str) -> HTMLResponse:
    title = html.escape(title)
    return HTMLResponse(PAGE.format(title=title, style=STYLE, content=content), headers=HEADERS)


def _table(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table. The cells are HTML."""
    head = "".join(f"<th>{column}</th>" for column in columns)
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    return "\n".join(f"<tr>{line}</tr>" for line in (head, *lines)).join(("<table>", "</table>"))


def _fields(schema: Mapping[str, Any]) -> str:
    """Return a table of the fields of an object."""
    rows = []
    for name, field in schema.get("properties", {}).items():
        default = "required"
        if name not in schema.get("required", ()):
            default = html.escape(json.dumps(field.get("default")))
        rows.append([f"<code>{html.escape(name)}</code>", _type(field), default])
    return _table(["field", "type", "default"], rows)


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a field as words. The name of an object is a link to its fields."""
    if "$ref" in schema:
        name = html.escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "items" in schema:
        return f"array of {_type(schema['items'])}"
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values:
        return html.escape(" or ".join(map(json.dumps, values)))
    return html.escape(str(schema.get("type", "any value")))
