"""Write ONNX files with metadata: their origin, a sentence about the graph, and a model card."""

import itertools
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import onnx
import onnx_ir as ir

from tfk_transformer.config.model_options import LANGUAGE_OPTIONS
from tfk_transformer.config.record import Record
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID, __version__
from tfk_transformer.export.file_names import external_weights
from tfk_transformer.export.runtime.sessions import METADATA, MODEL_CARD
from tfk_transformer.export.to_onnx.conversion import DOMAIN, OPSET, quietly
from tfk_transformer.pipelines.text_classifier import TextClassifier
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.languages import Languages

# Bytes of weights in a file: the limit of protobuf is 2**31, and the graph needs space too.
MAX_PROTOBUF_BYTES = 2_000_000_000
MAX_INLINE_BYTES = 256  # smaller weights, such as defaults of settings, are always in the file

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


class OnnxFiles:
    """ONNX files of one format: `models` by file name.

    Each graph is serialized once. The metadata is the last part of a file, so that `add_metadata`
    does not write the graph again: protobuf reads concatenated messages as one message. Weights of
    more than `largest` bytes are in a second file, `NAME.onnx.data`, which must be moved together.
    """

    def __init__(
        self,
        models: Mapping[str, ir.Model],
        folder: Path,
        config: Record,
        metadata: Mapping[str, object] | None = None,
        largest: int = MAX_PROTOBUF_BYTES,
    ):
        self._metadata: dict[str, object] = {
            "version": __version__,
            "config": config.model_dump(),
            "ids": {"pad": PAD_ID, "start": START_ID, "end": END_ID, "unknown": UNKNOWN_ID},
            "opset": OPSET,
            **(metadata or {}),
        }
        self._graph_bytes: dict[Path, int] = {}
        for name, model in models.items():
            save(model, folder / name, largest)
            self._graph_bytes[folder / name] = (folder / name).stat().st_size
        self.add_metadata()

    def add_metadata(self, **more: object) -> None:
        """Add values to the metadata of all files, such as the parity figures."""
        self._metadata |= more
        text = json.dumps(self._metadata, sort_keys=True)
        entry = onnx.StringStringEntryProto(key=METADATA, value=text)
        content = onnx.ModelProto(metadata_props=[entry]).SerializeToString()
        for path, graph_bytes in self._graph_bytes.items():
            os.truncate(path, graph_bytes)
            with path.open("ab") as file:
                file.write(content)


def save(model: ir.Model, path: Path, largest: int = MAX_PROTOBUF_BYTES) -> None:
    """Write a model without this project's metadata."""
    model.metadata_props.pop(METADATA, None)
    by_graph = (graph.initializers.values() for graph in model.graphs())
    values = [
        value
        for value in itertools.chain.from_iterable(by_graph)
        if value.const_value.dtype != ir.DataType.STRING  # texts always remain in the file itself
    ]
    is_external = sum(value.const_value.nbytes for value in values) > largest
    values = [value for value in values if value.const_value.nbytes > MAX_INLINE_BYTES]
    tensors = [value.const_value for value in values]
    try:
        if is_external:
            external = ir.external_data.convert_tensors_to_external(
                tensors, path.parent, external_weights(path.name)
            )
            for value, tensor in zip(values, external, strict=True):
                value.const_value = tensor
        # onnx-ir warns that a SentencePiece model is not UTF-8, but the operator's attribute is a
        # string.
        with quietly("onnx_ir.serde"):
            ir.save(model, path)
    finally:
        for value, tensor in zip(values, tensors, strict=True):
            value.const_value = tensor


def describe(models: Iterable[ir.Model], card: ModelCard) -> None:
    """Write the producer, the sentence about the graph and the model card into models."""
    source, target = (card.get(name) for name in LANGUAGE_OPTIONS)
    values = {
        "verb": VERBS.get(card["task"], ""),
        "direction": f" from {source} to {target}" if source and target else "",
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
    """Return the facts about a model that a reader needs, as far as they are known."""
    config = fitted.model.config
    languages = Languages.of(config.model_dump())
    task, text = CLASSIFICATION, "one text"
    if isinstance(fitted, Translator):
        options = fitted.model.config
        if options.split_sentences:
            text = "one sentence" if options.has_encoder else "one prompt"
        # Models that read whole texts, such as T5 and Pegasus, have other tasks, too.
        task = TRANSLATION if all(languages) or options.split_sentences else TEXT_TO_TEXT
        if not options.has_encoder:
            task = CONTINUATION
    origin = {name: fitted.origin.get(name) for name in ORIGIN}
    stated = {**origin, **dict(zip(LANGUAGE_OPTIONS, languages, strict=True))}
    validation = {name: value for name, value in fitted.metrics.items() if name.startswith("val_")}
    labels = {"labels": list(fitted.labels)} if isinstance(fitted, TextClassifier) else {}
    return {
        "task": task,
        **{name: fact for name, fact in stated.items() if isinstance(fact, str)},
        **labels,
        "input": f"{text} of at most {config.max_length} tokens, including the end token",
        "parameters": fitted.model.count_params(),
        "weights": "8-bit integers" if has_int8_weights else "32-bit floats",
        **({"metrics": validation} if validation else {}),
        "written_by": f"tfk-transformer {__version__}",
    }
