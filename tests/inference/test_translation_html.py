"""A translation as notebooks show it."""

import html5lib
import numpy as np

from tfk_transformer.text.results import Hypothesis, Translation


def elements(translation):
    page = html5lib.parse(translation._repr_html_(), namespaceHTMLElements=False)
    return (
        [["".join(cell.itertext()) for cell in row] for row in page.iter("tr")],
        list(page.iter("span")),
        list(page.iter("style")),
    )


def test_html_escapes_hypotheses():
    best, other = Hypothesis('<i>"le chien"</i>', -0.25), Hypothesis("& un chien", -1.5)
    rows, words, styles = elements(Translation("<script>the dog", [best, other]))
    assert rows == [
        ["source", "<script>the dog", ""],
        ["translation", '<i>"le chien"</i>', "-0.250"],
        ["number 2", "& un chien", "-1.500"],
    ]
    assert words == styles == []


def test_aligned_words_share_a_color():
    weights = np.array(
        [[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.6, 0.1], [0.0, 0.8, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]],
        "float32",
    )
    pieces = ["▁le", "▁<chien>", "▁rouge", "</s>"]
    best = Hypothesis(
        "le <chien> rouge",
        -1.0,
        pieces,
        None,
        np.stack([weights, weights])[None],
        ["▁the", "▁red", "▁dog", "</s>"],
    )
    rows, words, styles = elements(Translation("the red dog", [best]))
    assert [row[1] for row in rows] == ["the red dog", "le <chien> rouge"]
    colors = {(word.get("class")[0], word.text): word.get("style").split(";")[0] for word in words}
    assert colors["s", "the"] == colors["t", "le"]
    assert colors["s", "red"] == colors["t", "rouge"] != colors["t", "le"]
    assert colors["s", "dog"] == colors["t", "chien"] == colors["t", "<"]
    hints = {word.text: word.get("title") for word in words if word.get("title")}
    assert hints["rouge"] == "red 0.80, dog 0.10, the 0.00"
    number = next(word.get("class")[1:] for word in words if word.text == "rouge")
    assert f":has(.s1:hover) .t{number}" in styles[0].text


def test_blank_translation_is_shown():
    blank = Hypothesis("", 0.0, ["</s>"], None, np.ones((1, 1, 1, 1), "float32"), ["</s>"])
    assert elements(Translation("", [blank]))[0] == [
        ["source", "", ""],
        ["translation", "", "0.000"],
    ]
