"""Export a translator: write, compare with the model, and only then put in place."""

import json
from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

import tfk_transformer
from tfk_transformer.bundle import written_whole
from tfk_transformer.config import END_ID, PAD_ID, START_ID, UNKNOWN_ID, SearchSettings
from tfk_transformer.export import onnx_graph, parity
from tfk_transformer.export.functions import traced
from tfk_transformer.export.runtime import METADATA, OnnxTranslator, open_session, scalar_inputs
from tfk_transformer.export.saved_model import SavedModelTranslator, write_saved_model
from tfk_transformer.translator import Translator

FORMATS = ("saved_model", "onnx")
PARITY = "parity.json"


def export(translator: Translator, out, formats: Sequence[str] = FORMATS) -> dict:
    """Write a translator as files that need none of this code.

    "saved_model" gives the folder `saved_model/`; "onnx" gives `generate.onnx` (ids) and `translate.onnx` (text). Each is
    run on at least 100 probe sentences, and nothing is written unless every id is the Keras model's. A model that computes
    in a half precision is exported, and compared, in float32.

    Args:
        translator: what to export.
        out: folder of the artefacts; it must not exist.
        formats: which, of `FORMATS`.

    Returns:
        The parity figures, which are also in `parity.json` and in the ONNX files' metadata.

    Raises:
        ValueError: for an unknown format or a folder that exists.
        ParityError: if an artefact differs from the model.
    """
    unknown = sorted(set(formats) - set(FORMATS))
    if unknown or not formats:
        raise ValueError(f"formats: expected some of {', '.join(FORMATS)}, got {', '.join(unknown) or 'none'}.")
    if Path(out).exists():
        raise ValueError(f"out: expected a new folder, got {out}, which exists; choose another name or remove it.")
    translator = translator.in_float32()
    probes = _Probes(translator)
    with written_whole(out) as folder:
        folder.mkdir()
        figures = {"sentences": len(probes.texts), "settings": list(parity.SETTINGS), "ids": "equal"}
        if "saved_model" in formats:
            figures["saved_model"] = _saved_model(translator, folder / "saved_model", probes)
        if "onnx" in formats:
            figures["onnx"] = _onnx(translator, folder, probes)
        (folder / PARITY).write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    return figures


class _Probes:
    """Probe sentences and what the Keras model makes of them under each of `parity.SETTINGS`."""

    def __init__(self, translator: Translator):
        self.texts = parity.probe_texts(translator)
        self.ids = parity.probe_ids(translator, self.texts)
        generate = traced(translator.graph, "generate")
        self.expected = []
        for settings in parity.SETTINGS:
            found = generate(self.ids, *SearchSettings(**settings).model_dump().values())
            self.expected.append((found["ids"].numpy(), found["scores"].numpy()))
        self.readable = [
            text
            for text, ids in zip(self.texts, translator.source_tokenizer.encode(self.texts), strict=True)
            if len(ids) < self.ids.shape[1]
        ]
        self.translations = translator.translate(self.readable)

    def check(self, name: str, generate, translate) -> dict:
        """Compare an artefact's functions with the model's; return the figures."""
        pairs = zip(parity.SETTINGS, self.expected, strict=True)
        differences = [parity.check_ids(name, expected, generate(self.ids, settings)) for settings, expected in pairs]
        parity.check_texts(name, self.translations, translate(self.readable))
        return {"largest_score_difference": max(differences)}


def _saved_model(translator: Translator, folder: Path, probes: _Probes) -> dict:
    write_saved_model(translator, folder)
    loaded = SavedModelTranslator(folder)
    return probes.check("SavedModel", lambda ids, settings: loaded.generate(ids, **settings), loaded.translate)


def _onnx(translator: Translator, folder: Path, probes: _Probes) -> dict:
    generate = onnx_graph.generate_graph(translator)
    models = {"generate.onnx": generate, "translate.onnx": onnx_graph.translate_graph(generate, translator)}
    for name, model in models.items():
        _save(model, folder / name, translator)
    session = open_session(folder / "generate.onnx")

    def run(ids, settings):
        return session.run(["ids", "scores"], {"source_ids": ids, **scalar_inputs(settings, SearchSettings().model_dump())})

    figures = probes.check("ONNX", run, OnnxTranslator(folder / "translate.onnx").translate)
    for name, model in models.items():
        _save(model, folder / name, translator, {"sentences": len(probes.texts), "ids": "equal", **figures})
    return figures


def _save(model: ir.Model, path: Path, translator: Translator, figures: dict | None = None) -> None:
    """Write an ONNX file with its metadata."""
    model.metadata_props[METADATA] = json.dumps(
        {
            "version": tfk_transformer.__version__,
            "config": translator.model.config.model_dump(),
            "ids": {"pad": PAD_ID, "start": START_ID, "end": END_ID, "unknown": UNKNOWN_ID},
            "opset": onnx_graph.OPSET,
            "search": SearchSettings().model_dump(),
            "parity": figures or {},
        },
        sort_keys=True,
    )
    with onnx_graph.quietly("onnx_ir.serde"):  # which warns that a SentencePiece model is no UTF-8; the operator wants it so
        ir.save(model, path)
