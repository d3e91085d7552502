"""The output files of `tfk-transformer plot`: checks and atomic writes."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tfk_transformer.atomic_write import atomic_write

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
PAGE_SUFFIX = ".html"

Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="The output file: .png, .svg or .pdf; for attention also .html.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an --out that exists.")]


def check_picture(out: Path, force: bool, pages: bool = False) -> bool:
    """Check the name of an output file, and return whether the file is an HTML page.

    Args:
        out: the file.
        force: whether an existing file may be replaced.
        pages: whether HTML pages are allowed.

    Raises:
        ValueError: if the suffix is not allowed, or the file must not be replaced.
    """
    suffixes = (*PICTURE_SUFFIXES, PAGE_SUFFIX) if pages else PICTURE_SUFFIXES
    if out.suffix.lower() not in suffixes:
        raise ValueError(f"--out: expected a file that ends in {', '.join(suffixes)}, got {out}.")
    if out.is_dir():
        raise ValueError(f"--out: expected a file, got the folder {out}; name a file in it.")
    if os.path.lexists(out) and not force:
        raise ValueError(
            f"--out: expected a new file, got {out}, which exists; give another name, or --force "
            "to replace it."
        )
    return out.suffix.lower() == PAGE_SUFFIX


def write_picture(draw: Callable[[], Any], out: Path) -> None:
    """Draw a figure, and write it to a file.

    Warnings of matplotlib and of this library are printed as notes to standard error.
    """
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always", UserWarning)
        figure = draw()
        with atomic_write(out) as new:
            figure.savefig(new, dpi=120)
    notes = [str(warning.message) for warning in recorded if warning.category is UserWarning]
    for note in dict.fromkeys(notes):
        typer.echo(f"note: {note}", err=True)


def write_html(text: str, out: Path) -> None:
    """Write an HTML page to a file."""
    with atomic_write(out) as new:
        new.write_text(text, encoding="utf-8")
