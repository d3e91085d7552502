"""The files of `tfk-transformer plot`: checked before any work, and written whole."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.atomic_write import written_whole

PICTURES, PAGE = (".png", ".svg", ".pdf"), ".html"

Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="The file: .png, .svg or .pdf; for attention also .html.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an --out that exists.")]


def check_picture(out: Path, force: bool, pages: bool = False) -> bool:
    """Refuse a file of another kind, or one that exists, and return whether it is a page.

    Args:
        out: the file.
        force: whether a file may be replaced.
        pages: whether it may be an HTML page.

    Raises:
        ValueError: if the file is refused.
    """
    kinds = (*PICTURES, PAGE) if pages else PICTURES
    if out.suffix.lower() not in kinds:
        raise ValueError(f"--out: expected a file that ends in {', '.join(kinds)}, got {out}.")
    if out.is_dir():
        raise ValueError(f"--out: expected a file, got the folder {out}; name a file in it.")
    if out.exists() and not force:
        raise ValueError(
            f"--out: expected a new file, got {out}, which exists; give another name, or --force "
            "to replace it."
        )
    return out.suffix.lower() == PAGE


def write_picture(draw: Callable[[], Any], out: Path) -> None:
    """Draw a figure and write it. What matplotlib or a picture warns of is printed as a note to
    standard error.
    """
    with warnings.catch_warnings(record=True) as noticed:
        warnings.simplefilter("always", UserWarning)
        figure = draw()
        with written_whole(out) as new:
            figure.savefig(new, dpi=120)
    for line in dict.fromkeys(
        str(warning.message) for warning in noticed if warning.category is UserWarning
    ):
        typer.echo(f"note: {line}", err=True)


def write_html(text: str, out: Path) -> None:
    """Write an HTML page."""
    with written_whole(out) as new:
        new.write_text(text, encoding="utf-8")
