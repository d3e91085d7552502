"""Pages of the API reference: the public names of `tfk_transformer`, read from their source by
griffe.

Only the package's table of names is imported, so the site is built without TensorFlow. Docstrings
are Google style, and their text is shown as Markdown.
"""

import ast
import itertools
import re
import shutil
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import griffe

import tfk_transformer

# Methods that Keras calls; users call the layer or the model.
OF_KERAS = {
    "build",
    "compute_loss",
    "compute_mask",
    "compute_output_shape",
    "compute_output_spec",
    "from_config",
    "get_config",
    "train_step",
}
TITLES = {
    "config": "Configuration",
    "data": "Batches",
    "datasets": "Datasets",
    "evaluation": "Evaluation",
    "export": "Export and runtimes",
    "importing": "Models from elsewhere",
    "inference": "Methods of all runtimes",
    "layers": "Layers",
    "losses": "Loss, metrics, schedule, optimizers",
    "models": "Models",
    "pipelines": "Bundles: translators and classifiers",
    "plots": "Plots",
    "text": "Results, glossaries, errors",
    "tokenizers": "Tokenizers",
    "training": "Training",
}
# Translators and classifiers inherit the methods of these modules, whose page shows them.
SHOWN_WITH_THEIR_BASE = {
    "tfk_transformer.inference.base_classifier",
    "tfk_transformer.inference.base_translator",
}
# Folders that share a page.
JOINED = {"metrics": "losses", "schedules": "losses", "optimizers": "losses"}
FENCE = "`" * 3
# The functions that declare a field of a record by its default and its description, such as
# `option` and `_setting`.
DECLARES = re.compile(r"Field|option|_[a-z]+")


def write(repository: Path, folder: Path) -> None:
    """Write one page for each group of public names, and an index, into an emptied `folder`."""
    packages = load(repository)
    pages: dict[str, list[str]] = {}
    for name, home in homes(repository).items():
        group = home.split(".")[0]
        pages.setdefault(JOINED.get(group, group), []).append(
            render(name, find(packages, name, home))
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    order = sorted(pages, key=lambda group: TITLES.get(group, group))
    for group in order:
        (folder / f"{group}.md").write_text(
            f"# {TITLES.get(group, group)}\n\n" + "\n".join(pages[group]), encoding="utf-8"
        )
    contents = "\n".join([f"{FENCE}{{toctree}}", "", *order, FENCE])
    intro = (
        "Every name on these pages is imported from `tfk_transformer`, and is loaded when it "
        "is first used."
    )
    (folder / "index.md").write_text(
        f"# API reference\n\n{intro}\n\n{contents}\n", encoding="utf-8"
    )


def homes(repository: Path) -> dict[str, str]:
    """Return the module of each public name, where a type checker finds it if that differs from
    where it is loaded from.
    """
    source = ast.parse((repository / "tfk_transformer" / "__init__.py").read_text(encoding="utf-8"))
    imports = [
        node
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tfk_transformer.")
    ]
    typed = {
        alias.asname or alias.name: node.module.removeprefix("tfk_transformer.")
        for node in imports
        for alias in node.names
    }
    return {name: typed.get(name, home) for name, home in tfk_transformer._HOME.items()}


def load(repository: Path) -> griffe.ModulesCollection:
    """Read the sources as they are installed: `export` is a folder of the package, and lazy names
    are not in the way.
    """
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "tfk_transformer"
        shutil.copytree(repository / "tfk_transformer", package)
        shutil.copytree(repository / "export", package / "export")
        (package / "__init__.py").write_text("")
        loader = griffe.GriffeLoader(search_paths=[folder], docstring_parser="google")
        loader.load("tfk_transformer", try_relative_path=False)
        loader.resolve_aliases()
    return loader.modules_collection


def find(packages: griffe.ModulesCollection, name: str, home: str) -> griffe.Object:
    """Return the object that a public name refers to: a member of its module, or a module."""
    module = packages[f"tfk_transformer.{home}"]
    found = module.members.get(name, module)
    return found.final_target if found.is_alias else found


def render(name: str, thing: griffe.Object) -> str:
    """Return a top-level entry as Markdown with directives of Sphinx's Python domain."""
    if thing.is_module:
        members = [render(f"{name}.{key}", found) for key, found in public_members(thing)]
        return directive("py:module", name, describe(thing), depth=3) + "\n" + "\n".join(members)
    if thing.is_class:
        inner = [member(found) for key, found in public_members(thing)]
        return directive(
            "py:class",
            f"{name}{parameters(thing)}",
            "\n\n".join([describe(thing), *inner]),
            depth=4,
        )
    kind = "py:function" if thing.is_function else "py:data"
    return directive(kind, f"{name}{signature(thing)}", describe(thing), depth=4)


def public_members(owner: griffe.Object) -> Iterator[tuple[str, griffe.Object]]:
    """Yield the documented members of a class, inherited ones included, or those that a module
    exports.
    """
    for key, found in owner.all_members.items():
        if owner.is_module and owner.exports is not None and key not in owner.exports:
            continue
        try:
            found = found.final_target if found.is_alias else found
        except griffe.AliasResolutionError:
            continue  # from a library that is not read
        if (
            key.startswith("_")
            or key in OF_KERAS
            or not (found.has_docstring or is_field(found))
            or found.is_module
        ):
            continue
        if owner.module != found.module and found.module.path in SHOWN_WITH_THEIR_BASE:
            continue
        yield key, found


def is_field(thing: griffe.Object) -> bool:
    """Tell whether this is a field of a record."""
    return thing.is_attribute and thing.annotation is not None


def member(thing: griffe.Object) -> str:
    """Return an entry of a class."""
    if thing.is_function:
        options = [
            f":{label}:" for label in ("classmethod", "staticmethod") if label in thing.labels
        ]
        return directive(
            "py:method",
            f"{thing.name}{signature(thing)}",
            describe(thing),
            depth=3,
            options=options,
        )
    options = [f":type: {one_line(thing.annotation)}"] if thing.annotation is not None else []
    value, description = field_of_a_record(thing)
    if value is not None:
        options.append(f":value: {value}")
    return directive(
        "py:attribute",
        thing.name,
        describe(thing) or markdown(description),
        depth=3,
        options=options,
    )


def field_of_a_record(thing: griffe.Object) -> tuple[str | None, str]:
    """Return the default of an attribute and its description, which pydantic's fields state in a
    call.
    """
    value = thing.value if thing.is_attribute and "property" not in thing.labels else None
    if not is_declaration(value):
        return (None if value is None else one_line(value)), ""
    named = {
        each.name: str(each.value)
        for each in value.arguments
        if isinstance(each, griffe.ExprKeyword)
    }
    placed = [str(each) for each in value.arguments if not isinstance(each, griffe.ExprKeyword)]
    named |= dict(zip(("default", "description"), placed, strict=False))
    default = named.get("default")
    return (None if default in (None, "...") else default), ast.literal_eval(
        f"({named.get('description', repr(''))})"
    )


def is_declaration(value: object) -> bool:
    """Return whether a value calls a function that declares a field of a record."""
    return (
        isinstance(value, griffe.ExprCall)
        and DECLARES.fullmatch(str(value.function)) is not None
        and len(value.arguments) > 1
    )


def parameters(owner: griffe.Object) -> str:
    """Return the parameter list of a class, "" for a record that declares fields only."""
    found = [
        each
        for each in owner.parameters
        if each.name not in ("self", "cls") and not is_declaration(each.default)
    ]
    return f"({', '.join(listed(found))})" if found else ""


def signature(thing: griffe.Object) -> str:
    """Return parameters and result of a function; "" for anything else."""
    if not thing.is_function:
        return ""
    found = [each for each in thing.parameters if each.name not in ("self", "cls")]
    result = f" -> {one_line(thing.returns)}" if thing.returns is not None else ""
    return f"({', '.join(listed(found))}){result}"


def listed(found: list[griffe.Parameter]) -> Iterator[str]:
    """Yield each parameter as it is declared, with `*` and `/` where they stand."""
    kinds = griffe.ParameterKind
    starred = False
    for each, after in itertools.zip_longest(found, found[1:]):
        if each.kind is kinds.keyword_only and not starred:
            starred = True
            yield "*"
        starred |= each.kind is kinds.var_positional
        stars = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(each.kind, "")
        note = f": {one_line(each.annotation)}" if each.annotation is not None else ""
        default = f" = {one_line(each.default)}" if each.default is not None and not stars else ""
        yield f"{stars}{each.name}{note}{default}"
        if each.kind is kinds.positional_only and (
            after is None or after.kind is not kinds.positional_only
        ):
            yield "/"


def one_line(expression: object) -> str:
    """Return source text on one line, without quotes around forward references."""
    return re.sub(r"\s+", " ", str(expression))


def describe(thing: griffe.Object) -> str:
    """Return a docstring as Markdown: its text, then fields for arguments, result and errors."""
    if thing.docstring is None:
        return ""
    return "\n\n".join(
        part
        for part in (section(each) for each in thing.docstring.parse("google", warnings=False))
        if part
    )


def section(each: griffe.DocstringSection) -> str:
    """Return one section of a docstring."""
    kind = each.kind.value
    if kind == "text":
        return markdown(each.value)
    if kind in ("parameters", "other parameters"):
        return "\n".join(
            field(f"param {item.name.lstrip('*')}", item.description) for item in each.value
        )
    if kind == "attributes":
        return "\n".join(field(f"ivar {item.name}", item.description) for item in each.value)
    if kind in ("returns", "yields"):
        return field("returns", " ".join(item.description for item in each.value))
    if kind == "raises":
        return "\n".join(
            field(f"raises {item.annotation}", item.description) for item in each.value
        )
    if kind == "admonition":
        return f"**{each.title}** {markdown(each.value.contents)}"
    if kind == "examples":
        return "\n\n".join(
            markdown(text) if of.value == "text" else f"{FENCE}python\n{text}\n{FENCE}"
            for of, text in each.value
        )
    raise ValueError(
        "docstring section: expected one of Args, Returns, Yields, Raises, Attributes, Examples, "
        f"got {kind!r}."
    )


def field(name: str, text: str) -> str:
    """Return an item of a field list; its continuation lines are indented."""
    return f":{name}: " + textwrap.indent(markdown(text), "    ").strip()


def markdown(text: str) -> str:
    """Return docstring text with the characters escaped that Markdown would read as markup, outside
    code.
    """
    parts = re.split(r"(```.*?```|``.*?``|`[^`]*`)", text.strip(), flags=re.DOTALL)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*<\[\]])", r"\\\1", part) for part in parts
    )


def directive(name: str, argument: str, body: str, depth: int, options: Sequence[str] = ()) -> str:
    """Return a MyST directive; a greater `depth` has a longer fence, so that it can hold lesser
    ones.
    """
    fence = "`" * (depth + 1)
    return "\n".join([f"{fence}{{{name}}} {argument}", *options, "", body, fence, ""])
