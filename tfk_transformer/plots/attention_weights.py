"""The attention weights of one sentence, from any runtime, as the pictures take them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tfk_transformer.constants import START_ID
from tfk_transformer.inference.interface import TranslatorProtocol

# Of all kinds.
TITLES = {
    "cross": "decoder to source",
    "encoder": "encoder, source to source",
    "decoder": "decoder, to the tokens before",
}
START = "<s>"  # the first token that a decoder-only model attends to


class ChosenHeads(NamedTuple):
    """Some heads of one kind of attention, as a picture shows them."""

    weights: np.ndarray  # float32 (heads, T, S)
    titles: list[str]  # of each head
    layer: str  # the name of their layer


class HeadMaps(NamedTuple):
    """The weights of one kind of attention, in all L layers and H heads."""

    weights: np.ndarray  # float32 (L, H, T, S); each row sums to 1
    rows: list[str]  # the T tokens that attend
    columns: list[str]  # the S tokens attended to

    def chosen(
        self, layer: int | None = None, head: int | None = None, mean: bool = False
    ) -> ChosenHeads:
        """Return heads of one layer, or a mean.

        Args:
            layer: the number of the layer from 1; negative numbers count from the last. Default:
                the last layer, or with `mean` all.
            head: the number of the head from 1, in the same way. Default: all heads, each by
                itself.
            mean: whether the mean of the heads is returned.

        Raises:
            ValueError: if there is no such layer or head, or `head` is given with `mean`.
        """
        if mean and head is not None:
            raise ValueError(
                f"head: expected none with the mean of all heads, got {head}; give one of them."
            )
        layers, heads = self.weights.shape[:2]
        if mean and layer is None:
            return ChosenHeads(
                self.weights.mean(axis=(0, 1))[None],
                ["mean of all heads"],
                f"mean of {layers} layers",
            )
        number = _index("layer", -1 if layer is None else layer, layers)
        weights, name = self.weights[number], f"layer {number + 1} of {layers}"
        if mean:
            return ChosenHeads(weights.mean(axis=0)[None], ["mean of all heads"], name)
        shown = range(heads) if head is None else [_index("head", head, heads)]
        return ChosenHeads(weights[list(shown)], [f"head {n + 1}" for n in shown], name)


class AttentionWeights(NamedTuple):
    """A translation and the attention that led to it. Kinds that the model or the file does not
    have are None.
    """

    source: str
    translation: str
    score: float | None  # the search's score; None for a given translation
    cross: HeadMaps | None  # of the decoder to the source; a row for each token that was predicted
    encoder: HeadMaps | None = None  # of the source's tokens to each other
    decoder: HeadMaps | None = None  # of the decoder to the tokens before the predicted one
    missing: str = ""  # why kinds are None, a sentence

    def kinds(self) -> Iterator[tuple[str, HeadMaps]]:
        """Yield the name and the weights of each kind that is there."""
        for name in TITLES:
            if (maps := getattr(self, name)) is not None:
                yield name, maps


def attention_of(
    model: TranslatorProtocol, text: str, translation: str | None = None, **settings: Any
) -> AttentionWeights:
    """Translate a text and return the attention weights of its best translation.

    A bundle's model gives the self-attention of its encoder and decoder, too. SavedModels and ONNX
    files have only the output
    `attention`: the decoder's attention to the source, or in a decoder-only model to all tokens
    before.

    Args:
        model: what `tfk_transformer.load` returns for a translator.
        text: the source text.
        translation: the translation whose attention is wanted. Default: the one that the search
            finds.
        **settings: search settings.

    Raises:
        ValueError: if the text is blank or too long, or the files do not hold the attention.
    """
    if not text.strip():
        raise ValueError("text: expected a sentence, got blank text.")
    if translation is None:
        found: Any = model.translate([text], attention=True, **settings)[0].hypotheses[0]
    else:
        found = model.score_tokens([text], [translation], attention=True)[0]
    score = float(found.score) if translation is None else None
    maps = HeadMaps(found.attention, found.tokens, found.source_tokens)
    if found.source_tokens[:1] == [START]:
        return AttentionWeights(
            text, found.text, score, None, None, maps, "A decoder-only model has no encoder."
        )
    keras_model = getattr(model, "model", None)
    if not hasattr(keras_model, "attention_maps"):
        return AttentionWeights(text, found.text, score, maps, missing=_why(keras_model))
    return AttentionWeights(
        text,
        found.text,
        score,
        maps,
        *_self_attention(model, keras_model, found.source_tokens, found.tokens),
    )


def _index(name: str, number: int, count: int) -> int:
    """Return the index of a number that counts from 1, or if negative from the last."""
    if not (1 <= number <= count or -count <= number <= -1):
        raise ValueError(
            f"{name}: expected a number from 1 to {count}, or from -1 to -{count} for the last "
            f"ones, got {number}."
        )
    return number - 1 if number > 0 else count + number


def _why(keras_model: Any) -> str:
    if keras_model is None:
        return (
            "Exported files hold the attention to the source only; a bundle shows that of "
            "encoder and decoder, too."
        )
    return "An ensemble has only the mean attention of its members to the source."


def _self_attention(
    model: Any, keras_model: Any, source: list[str], target: list[str]
) -> tuple[HeadMaps, HeadMaps]:
    """Return the encoder's and the decoder's attention to their own tokens, from one full pass over
    both sides.
    """
    before = [*model.target_tokenizer.pieces_of([START_ID]), *target[:-1]]
    read = [START_ID, *model.target_tokenizer.ids_of(target[:-1])]
    inputs = {
        "source": np.array([model.source_tokenizer.ids_of(source)]),
        "target": np.array([read]),
    }
    found = keras_model.attention_maps(inputs)
    encoder, decoder = (
        np.stack([np.asarray(layer)[0] for layer in part])
        for part in (found.encoder, found.decoder)
    )
    return HeadMaps(encoder, source, source), HeadMaps(decoder, target, before)
