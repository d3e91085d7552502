"""A translation as HTML, for notebooks: its words coloured by the source words that they stand
for.
"""

import hashlib
import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfk_transformer.documents.alignment import Alignment, hypothesis_alignment
from tfk_transformer.documents.words import Span

if TYPE_CHECKING:
    from tfk_transformer.inference.results import Translation

# Okabe and Ito's colours, which can be told apart with any of the common kinds of colour blindness.
HIGHLIGHT_COLORS = ("0,114,178", "213,94,0", "0,158,115", "204,121,167", "230,159,0", "86,180,233")
HINT_WORDS = 3  # source words in the hint of a target word


def translation_html(translation: "Translation") -> str:
    """Return a piece of HTML with the source, the hypotheses and their scores.

    If the best hypothesis has attention, each of its words has the colour of the source word with
    most attention, and the words that belong together are underlined when the pointer is over one
    of them. No script and nothing from elsewhere is needed.

    Args:
        translation: the result of `translate`.
    """
    best, *others = translation.hypotheses
    found = hypothesis_alignment(translation.source, best) if best.attention is not None else None
    source, target, style = html.escape(translation.source), html.escape(best.text), ""
    name = f"tfk-{hashlib.sha256(repr((translation.source, best.text)).encode()).hexdigest()[:10]}"
    if found and found.weights is not None and found.weights.size:
        links = dict(enumerate(found.weights.argmax(axis=1).tolist()))  # target word -> source word
        source = _marked(
            translation.source, found.source, "s", {word: word for word in links.values()}, {}
        )
        target = _marked(best.text, found.target, "t", links, _hints(translation.source, found))
        style = _style(name, links)
    rows = [_row("source", source), _row("translation", target, best.score)]
    rows += [
        _row(f"number {number}", html.escape(other.text), other.score)
        for number, other in enumerate(others, 2)
    ]
    return f'{style}<table id="{name}">{"".join(rows)}</table>'


def _row(name: str, text: str, score: float | None = None) -> str:
    shown = "" if score is None else f"{score:.3f}"
    left = 'style="text-align:left"'
    return f'<tr><th {left}>{name}</th><td dir="auto" {left}>{text}</td><td>{shown}</td></tr>'


def _marked(
    text: str, places: Sequence[Span], side: str, links: dict[int, int], hints: dict[int, str]
) -> str:
    """Return a text with an element around each word that has a link."""
    parts, done = [], 0
    for word, (start, end) in enumerate(places):
        parts.append(html.escape(text[done:start]))
        shown = html.escape(text[start:end])
        if word in links:
            colour = HIGHLIGHT_COLORS[links[word] % len(HIGHLIGHT_COLORS)]
            hint = f' title="{html.escape(hints[word])}"' if word in hints else ""
            style = f"background:rgba({colour},0.3);border-radius:3px;padding:0 2px"
            shown = f'<span class="{side}{word}" style="{style}"{hint}>{shown}</span>'
        parts.append(shown)
        done = end
    return "".join([*parts, html.escape(text[done:])])


def _hints(source: str, found: Alignment) -> dict[int, str]:
    """Return for each target word the source words with most attention, and their weights."""
    assert found.weights is not None
    words = [source[start:end] for start, end in found.source]
    order = (-found.weights).argsort(axis=1)[:, :HINT_WORDS]
    return {
        target: ", ".join(f"{words[place]} {found.weights[target, place]:.2f}" for place in row)
        for target, row in enumerate(order.tolist())
    }


def _style(name: str, links: dict[int, int]) -> str:
    """Return rules that underline all words of a link when the pointer is over one of them."""
    rules = []
    for source in sorted(set(links.values())):
        words = [f".s{source}", *(f".t{target}" for target, of in links.items() if of == source)]
        over = ",".join(f"#{name}:has({word}:hover) {other}" for word in words for other in words)
        rules.append(f"{over}{{text-decoration:underline 2px}}")
    return f"<style>{''.join(rules)}</style>"
