"""A console for tables and lines with the texts of users and of files."""

from typing import Any

from rich.console import Console
from rich.text import Text

from tfk_transformer.config.words import escape_controls


class EscapingConsole(Console):
    """A console that prints texts unchanged, except that control characters are escaped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, soft_wrap=True, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a line or the text of a cell for the terminal."""
        return super().render_str(escape_controls(text), **options)
