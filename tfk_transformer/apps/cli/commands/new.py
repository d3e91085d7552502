"""`tfk-transformer new`."""

import random
import shutil
from pathlib import Path
from typing import Annotated

import typer

from tfk_transformer.apps.cli.terminal import command_line, console
from tfk_transformer.atomic_write import atomic_write, check_new, lock
from tfk_transformer.runtime_environment import with_install_line

TEMPLATE = Path(__file__).with_name("template")
SUFFIX = ".template"  # keeps tools from treating the templates as files of this package
PROJECT_LANGUAGES = ("en", "de")
NUMBERS = 1000  # from 0
HELD_OUT_LINES = {"validation": 50, "test": 50}  # three-digit numbers; the others are for training
NEW_EXAMPLES = """
tfk-transformer new project
cd project
tfk-transformer train recipe.toml --out bundle
"""


def new_command(folder: Annotated[Path, typer.Argument(metavar="DIR")]) -> None:
    """Create a small project to start from: README, recipe, a Keras fit script, and number words as
    data. The project trains without changes.

    To train on your own text pairs, replace the files in DIR/data.

    Args:
        folder: The folder of the project. It must not exist.
    """
    with lock(folder, "DIR"):
        check_new(folder, "DIR")
        with atomic_write(folder) as new:
            new.mkdir()
            for file in sorted(TEMPLATE.iterdir()):
                shutil.copyfile(file, new / file.name.removesuffix(SUFFIX))
            _write_data(new / "data")
    for path in sorted(folder.iterdir()):
        console().print(path)
    console().print(
        f"Next: cd {command_line([str(folder)])} && tfk-transformer train recipe.toml --out bundle"
    )


def _write_data(folder: Path) -> None:
    """Write the splits in the layout that `folder:DIR:en-de` reads."""
    try:
        from tfk_transformer.datasets.numbers import spell

        spell(0, PROJECT_LANGUAGES[0])
    except ImportError:  # a package that training also needs is not installed
        raise with_install_line(ModuleNotFoundError(name="tensorflow")) from None
    folder.mkdir()
    drawn = random.Random(0).sample(range(100, NUMBERS), sum(HELD_OUT_LINES.values()))
    splits = {"train": sorted(set(range(NUMBERS)) - set(drawn))}
    splits |= {
        split: sorted(drawn.pop() for _ in range(size)) for split, size in HELD_OUT_LINES.items()
    }
    for split, numbers in splits.items():
        for language in PROJECT_LANGUAGES:
            lines = "".join(f"{spell(number, language)}\n" for number in numbers)
            (folder / f"{language}.{split}.txt").write_text(lines, encoding="utf-8")
