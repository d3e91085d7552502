"""The files of a translator, each compared with the model's own translations."""

from pathlib import Path

from tfk_transformer.config import SearchSettings, setting_rules
from tfk_transformer.export import onnx_graph, parity
from tfk_transformer.export.functions import traced
from tfk_transformer.export.onnx_file import save_onnx
from tfk_transformer.export.runtime import OnnxTranslator, open_session, scalar_inputs
from tfk_transformer.export.saved_model import SavedModelTranslator, write_saved_model
from tfk_transformer.export.signatures import GENERATE, SAVED_MODEL
from tfk_transformer.export.warm_up import write_warm_up
from tfk_transformer.translator import Translator


class Probes:
    """Probe sentences and what the Keras model makes of them under each of `parity.SETTINGS`."""

    def __init__(self, translator: Translator):
        tokenizer = translator.source_tokenizer
        self.texts = parity.probe_texts(translator.probes, tokenizer)
        self.ids = parity.probe_ids(self.texts, tokenizer, translator.model.config.max_length)
        self.agreed = {"sentences": len(self.texts), "settings": list(parity.SETTINGS), "ids": "equal"}
        generate = traced(translator.graph, GENERATE)
        self.expected = []
        for settings in parity.SETTINGS:
            found = generate(self.ids, *SearchSettings(**settings).model_dump().values())
            self.expected.append((found["ids"].numpy(), found["scores"].numpy()))
        self.readable = [text for text, ids in zip(self.texts, tokenizer.encode(self.texts), strict=True) if len(ids) < self.ids.shape[1]]
        self.translations = translator.translate(self.readable)

    def check(self, name: str, generate, translate) -> dict:
        """Compare an artefact's functions with the model's; return the figures."""
        pairs = zip(parity.SETTINGS, self.expected, strict=True)
        differences = [parity.check_ids(name, expected, generate(self.ids, settings)) for settings, expected in pairs]
        parity.check_texts(name, self.translations, translate(self.readable))
        return {"largest_score_difference": max(differences)}


def _saved_model(translator: Translator, folder: Path, probes: Probes) -> dict:
    write_saved_model(translator, folder / "saved_model")
    write_warm_up(folder / "saved_model", SAVED_MODEL, probes.readable)
    loaded = SavedModelTranslator(folder / "saved_model")
    return probes.check("SavedModel", lambda ids, settings: loaded.generate(ids, **settings), loaded.translate)


def _onnx(translator: Translator, folder: Path, probes: Probes) -> dict:
    generate = onnx_graph.generate_graph(translator)
    models = {"generate.onnx": generate, "translate.onnx": onnx_graph.translate_graph(generate, translator)}
    config, search = translator.model.config, setting_rules()
    save_onnx(models, folder, config, search=search)
    session = open_session(folder / "generate.onnx")

    def run(ids, settings):
        return session.run(["ids", "scores"], {"source_ids": ids, **scalar_inputs(settings, search)})

    figures = probes.check("ONNX", run, OnnxTranslator(folder / "translate.onnx").translate)
    save_onnx(models, folder, config, search=search, parity={**probes.agreed, **figures})
    return figures


WRITERS = {"saved_model": _saved_model, "onnx": _onnx}
