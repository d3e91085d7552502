"""A translation as HTML, for notebooks: target words have the colors of their source words."""

import hashlib
import html
import itertools
from collections.abc import Sequence

from tfk_transformer.text.alignment import Hypothesis, hypothesis_alignment
from tfk_transformer.text.words import Span

# The palette of Okabe and Ito, which is distinguishable with common types of color blindness.
HIGHLIGHT_COLORS = ("0,114,178", "213,94,0", "0,158,115", "204,121,167", "230,159,0", "86,180,233")
HINT_WORDS = 3  # source words in the tooltip of a target word


def translation_html(source_text: str, hypotheses: Sequence[Hypothesis]) -> str:
    """Return an HTML fragment with the source, the hypotheses and their scores, without scripts.

    If the best hypothesis has attention, each of its words has the color of the source word with
    the most attention. When the pointer is over a word, it and its linked words are underlined.
    """
    best, *alternatives = hypotheses
    source = html.escape(source_text)
    target = html.escape(best.text)
    style = ""
    name = f"tfk-{hashlib.sha256(repr((source_text, best.text)).encode()).hexdigest()[:10]}"
    alignment = None if best.attention is None else hypothesis_alignment(source_text, best)
    if alignment and alignment.weights is not None and alignment.weights.size:
        weights = alignment.weights
        links = dict(enumerate(weights.argmax(axis=1).tolist()))  # target -> source word
        source_links = {word: word for word in links.values()}
        source = _mark(source_text, alignment.source, "s", source_links, {})
        words = [source_text[start:end] for start, end in alignment.source]
        most = (-weights).argsort(axis=1)[:, :HINT_WORDS].tolist()
        hints = {
            row: ", ".join(f"{words[word]} {weights[row, word]:.2f}" for word in order)
            for row, order in enumerate(most)
        }
        target = _mark(best.text, alignment.target, "t", links, hints)
        style = _style(name, links)
    rows = [("source", source, ""), ("translation", target, f"{best.score:.3f}")]
    for rank, other in enumerate(alternatives, 2):
        rows.append((f"number {rank}", html.escape(other.text), f"{other.score:.3f}"))
    left = 'style="text-align:left"'
    table = "".join(
        f'<tr><th {left}>{title}</th><td dir="auto" {left}>{text}</td><td>{score}</td></tr>'
        for title, text, score in rows
    )
    return f'{style}<table id="{name}">{table}</table>'


def _mark(
    text: str, spans: Sequence[Span], side: str, links: dict[int, int], hints: dict[int, str]
) -> str:
    """Return the HTML of a text with an element around each word that has a link."""
    parts = []
    done = 0
    for word, (start, end) in enumerate(spans):
        parts.append(html.escape(text[done:start]))
        element = html.escape(text[start:end])
        if word in links:
            color = HIGHLIGHT_COLORS[links[word] % len(HIGHLIGHT_COLORS)]
            hint = f' title="{html.escape(hints[word])}"' if word in hints else ""
            style = f"background:rgba({color},0.3);border-radius:3px;padding:0 2px"
            element = f'<span class="{side}{word}" style="{style}"{hint}>{element}</span>'
        parts.append(element)
        done = end
    return "".join([*parts, html.escape(text[done:])])


def _style(name: str, links: dict[int, int]) -> str:
    """Return CSS that underlines all words of a link when the pointer is over one of them."""
    rules = []
    for source in sorted(set(links.values())):
        words = [f".s{source}", *(f".t{target}" for target, of in links.items() if of == source)]
        selector = ",".join(
            f"#{name}:has({hovered}:hover) {word}"
            for hovered, word in itertools.product(words, repeat=2)
        )
        rules.append(f"{selector}{{text-decoration:underline 2px}}")
    return f"<style>{''.join(rules)}</style>"
