"""What ONNX files say about themselves: a sentence about the graph, and a model card."""

import json
from collections.abc import Iterable
from typing import Any, TypeAlias

import onnx_ir as ir

from tfk_transformer.config.model_options import LANGUAGE_OPTIONS
from tfk_transformer.constants import __version__
from tfk_transformer.export.runtime.sessions import MODEL_CARD
from tfk_transformer.export.to_onnx.conversion import DOMAIN
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.languages import Languages

ModelCard: TypeAlias = dict[str, Any]  # JSON values by name, which depend on the model

# Names of tasks, as model cards of Hugging Face have them, and the verb of each.
TRANSLATION = "translation"
TEXT_TO_TEXT = "text2text-generation"
CONTINUATION = "text-generation"
CLASSIFICATION = "text-classification"
VERBS = {TRANSLATION: "Translates", TEXT_TO_TEXT: "Transforms", CONTINUATION: "Continues"}

# The sentence about each graph, by its name. Viewers show it as the graph's description.
SENTENCES = {
    "translate": "{verb} texts{direction}; the tokenizers and the beam search are in the graph.",
    "generate": "{verb} token ids{direction}; the beam search is in the graph.",
    "score": "Computes the log-probability of each token of given target ids, and the attention.",
    "tokenize": "Splits texts into the token ids that encoder.onnx or decoder_step.onnx reads.",
    "encode": "Encodes source ids into the memory that decoder_step.onnx reads.",
    "decoder_step": "Computes one decoding step: logits, the next token and the next KV cache.",
    "classify": "Classifies texts by {labels} labels.",
    "probabilities": "Computes the probabilities of {labels} labels from token ids.",
}

# The facts about an imported model that its card has.
ORIGIN = ("family", "name", "license", "revision", "source_text_prefix")
LICENSE = "model_license"  # the key of the metadata; ONNX defines it


def describe(models: Iterable[ir.Model], card: ModelCard) -> None:
    """Write the producer, the version, the sentence about the graph and the model card into models.

    Args:
        models: models whose graphs have a name of `SENTENCES`.
        card: the result of `model_card`.
    """
    values = {
        "verb": VERBS.get(card["task"], ""),
        "direction": _direction(card),
        "labels": len(card.get("labels", ())),
    }
    # Programs read these without parsing JSON.
    texts = {name: card[name] for name in LANGUAGE_OPTIONS if name in card}
    if "license" in card:
        texts[LICENSE] = card["license"]
    for model in models:
        model.producer_name = "tfk_transformer"
        model.producer_version = __version__
        model.domain = DOMAIN
        model.model_version = 1
        model.graph.doc_string = SENTENCES[model.graph.name].format_map(values)
        described = {"description": model.graph.doc_string, **card}
        model.metadata_props.update(texts)
        model.metadata_props[MODEL_CARD] = json.dumps(described, ensure_ascii=False)


def model_card(fitted: Translator | TextClassifier, has_int8_weights: bool = False) -> ModelCard:
    """Return the facts about a model that a reader needs.

    Facts that are unknown are left out, such as the license of a model that was not imported.
    """
    config = fitted.model.config
    languages = Languages.of(config.model_dump())
    origin = {name: fitted.origin.get(name) for name in ORIGIN}
    stated = {**origin, **dict(zip(LANGUAGE_OPTIONS, languages, strict=True))}
    validation = {name: value for name, value in fitted.metrics.items() if name.startswith("val_")}
    labels = {"labels": list(fitted.labels)} if isinstance(fitted, TextClassifier) else {}
    return {
        "task": _task(fitted, languages),
        **{name: text for name, text in stated.items() if isinstance(text, str)},
        **labels,
        "input": f"{_input(fitted)} of at most {config.max_length} tokens, including the end token",
        "parameters": fitted.model.count_params(),
        "weights": "8-bit integers" if has_int8_weights else "32-bit floats",
        **({"metrics": validation} if validation else {}),
        "written_by": f"tfk-transformer {__version__}",
    }


def _task(fitted: Translator | TextClassifier, languages: Languages) -> str:
    if isinstance(fitted, TextClassifier):
        return CLASSIFICATION
    config = fitted.model.config
    if config.architecture == "decoder":
        return CONTINUATION
    # Models that read whole texts, such as T5 and Pegasus, have other tasks, too.
    return TRANSLATION if all(languages) or config.split_sentences else TEXT_TO_TEXT


def _input(fitted: Translator | TextClassifier) -> str:
    config = fitted.model.config
    if isinstance(fitted, TextClassifier) or not config.split_sentences:
        return "one text"
    return "one prompt" if config.architecture == "decoder" else "one sentence"


def _direction(card: ModelCard) -> str:
    """Return the languages as a part of a sentence. It is empty unless both are known."""
    source, target = (card.get(name) for name in LANGUAGE_OPTIONS)
    return f" from {source} to {target}" if source and target else ""
