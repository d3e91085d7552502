"""The attention weights of one sentence and an HTML page of them, without matplotlib."""

import base64
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.constants import START_ID
from tfk_transformer.inference.base_translator import BaseTranslator

TITLES = {  # by kind of attention
    "cross": "decoder to source",
    "encoder": "encoder, source to source",
    "decoder": "decoder, to the tokens before",
}
START = "<s>"  # the first token that a decoder-only model attends to
WORD = "\u2581"  # SentencePiece's mark of a blank
MAX_CHARACTERS = 24  # of a label
DATA_MARK = "/*DATA*/"  # in explorer.html


class SelectedHeads(NamedTuple):
    """Some heads of one kind of attention, with their titles in a figure."""

    weights: np.ndarray  # float32 (heads, T, S)
    titles: list[str]  # of each head
    layer: str  # the name of their layer


class HeadMaps(NamedTuple):
    """The weights of one kind of attention, in all L layers and H heads."""

    weights: np.ndarray  # float32 (L, H, T, S); each row sums to 1
    rows: list[str]  # the T tokens that attend
    columns: list[str]  # the S tokens attended to

    def select(
        self, layer: int | None = None, head: int | None = None, mean: bool = False
    ) -> SelectedHeads:
        """Return heads of one layer, or a mean.

        Args:
            layer: the number of the layer from 1; negative numbers count from the last. Default:
                the last layer, or the mean of all layers with `mean`.
            head: the number of the head from 1; negative numbers count from the last. Default: all
                heads separately.
            mean: whether to return the mean of the heads.

        Raises:
            ValueError: if the layer or the head does not exist, or `head` is combined with `mean`.
        """
        if mean and head is not None:
            raise ValueError(
                f"head: expected none with the mean of all heads, got {head}; give one of them."
            )
        layers, heads = self.weights.shape[:2]
        if mean and layer is None:
            weights, layer_name = self.weights.mean(axis=(0, 1))[None], f"mean of {layers} layers"
        else:
            number = _index("layer", -1 if layer is None else layer, layers)
            weights, layer_name = self.weights[number], f"layer {number + 1} of {layers}"
            weights = weights.mean(axis=0)[None] if mean else weights
        if mean:
            return SelectedHeads(weights, ["mean of all heads"], layer_name)
        selected = range(heads) if head is None else [_index("head", head, heads)]
        titles = [f"head {n + 1}" for n in selected]
        return SelectedHeads(weights[list(selected)], titles, layer_name)


class AttentionWeights(NamedTuple):
    """A translation and its attention weights.

    Kinds of attention that the model or the file does not have are None.
    """

    source: str
    translation: str
    score: float | None  # the score of the search; None for a translation of the caller
    cross: HeadMaps | None  # of the decoder to the source; a row for each predicted token
    encoder: HeadMaps | None = None  # of the source tokens to each other
    decoder: HeadMaps | None = None  # of the decoder to the tokens before the predicted one
    missing: str = ""  # why kinds are None, a sentence

    def kinds(self) -> dict[str, HeadMaps]:
        """Return the weights by name of each kind that is not None."""
        return {name: maps for name in TITLES if (maps := getattr(self, name)) is not None}


def attention_of(
    model: BaseTranslator, text: str, translation: str | None = None, **settings: Any
) -> AttentionWeights:
    """Translate a text and return the attention weights of its best translation.

    The model of a bundle has self-attention in its encoder and decoder, too. SavedModels and ONNX
    files have only the output `attention`: the attention of the decoder to the source, or in a
    decoder-only model to all earlier tokens.

    Args:
        model: a translator from `tfk_transformer.load`.
        text: the source text.
        translation: the translation whose attention is returned. Default: the result of a search.
        **settings: search settings.

    Raises:
        ValueError: if the text is blank or too long, or the files do not contain the attention.
    """
    if not text.strip():
        raise ValueError("text: expected a sentence, got blank text.")
    if translation is None:
        translations = model.translate([text], attention=True, split_sentences=False, **settings)
        result: Any = translations[0].hypotheses[0]
    else:
        result = model.score_tokens([text], [translation], attention=True)[0]
    score = float(result.score) if translation is None else None
    maps = HeadMaps(result.attention, result.tokens, result.source_tokens)
    if result.source_tokens[:1] == [START]:
        return AttentionWeights(
            text, result.text, score, None, None, maps, "A decoder-only model has no encoder."
        )
    keras_model = getattr(model, "model", None)
    if not hasattr(keras_model, "attention_maps"):
        reason = (
            "Exported files hold the attention to the source only; a bundle shows that of "
            "encoder and decoder, too."
            if keras_model is None
            else "An ensemble has only the mean attention of its members to the source."
        )
        return AttentionWeights(text, result.text, score, maps, missing=reason)
    encoder, decoder = _self_attention(model, result.source_tokens, result.tokens)
    if decoder.weights.shape[1] == 0:
        reason = "A decoder of SSRUs has no self-attention."
        return AttentionWeights(text, result.text, score, maps, encoder, missing=reason)
    return AttentionWeights(text, result.text, score, maps, encoder, decoder)


def _index(name: str, number: int, count: int) -> int:
    """Return the index of a number that counts from 1, or from the last if it is negative."""
    if not (1 <= number <= count or -count <= number <= -1):
        raise ValueError(
            f"{name}: expected a number from 1 to {count}, or from -1 to -{count} for the last "
            f"ones, got {number}."
        )
    return number - 1 if number > 0 else count + number


def _self_attention(model: Any, source: list[str], target: list[str]) -> tuple[HeadMaps, HeadMaps]:
    """Return the self-attention of the encoder and of the decoder, from one full pass."""
    target_inputs = [*model.target_tokenizer.pieces_of([START_ID]), *target[:-1]]
    target_ids = [START_ID, *model.target_tokenizer.ids_of(target[:-1])]
    source_ids = model.source_tokenizer.ids_of(source)
    maps = model.model.attention_maps(
        {"source": np.array([source_ids]), "target": np.array([target_ids])}
    )
    encoder, decoder = (
        np.stack([np.asarray(layer)[0] for layer in layers])
        for layers in (maps.encoder, maps.decoder)
    )
    return HeadMaps(encoder, source, source), HeadMaps(decoder, target, target_inputs)


def attention_page(attention: AttentionWeights) -> str:
    """Return an HTML page with the attention of every layer and head.

    The page shows one heat map at a time, whose cells can be read one by one. It is a single file.
    Weights are rounded to multiples of 1/255.

    Args:
        attention: the result of `attention_of`.
    """
    data = {
        "source": attention.source,
        "translation": attention.translation,
        "score": attention.score,
        "missing": attention.missing,
        "kinds": [
            {
                "title": TITLES[name],
                "layers": maps.weights.shape[0],
                "heads": maps.weights.shape[1],
                "rows": token_labels(maps.rows),
                "columns": token_labels(maps.columns),
                # As bytes from 0 to 255, in base64.
                "weights": base64.b64encode(
                    np.rint(np.clip(maps.weights, 0, 1) * 255).astype("uint8").tobytes()
                ).decode("ascii"),
            }
            for name, maps in attention.kinds().items()
        ],
    }
    # "</script" would end the element that contains the data.
    text = json.dumps(data, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")
    page = resources.files("tfk_transformer.plots").joinpath("explorer.html")
    return page.read_text(encoding="utf-8").replace(DATA_MARK, text)


def token_labels(tokens: Sequence[str]) -> list[str]:
    """Return tokens without SentencePiece's mark of a blank; a token of only this mark is "␣"."""
    return [label_text(token.removeprefix(WORD).replace(WORD, " ")) or "\u2423" for token in tokens]


def label_text(text: str) -> str:
    """Return a text as a label of limited length without control characters."""
    text = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
