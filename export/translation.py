"""The files of a translator, each compared with the model's own translations."""

from pathlib import Path

import numpy as np

from tfk_transformer.config import SearchSettings, setting_rules
from tfk_transformer.export import onnx_graph, parity
from tfk_transformer.export.functions import traced
from tfk_transformer.export.onnx_file import save_onnx
from tfk_transformer.export.onnx_streaming import DECODER_STEP, ENCODER, TOKENIZER, OnnxStreamer
from tfk_transformer.export.runtime import OnnxTranslator, open_session, scalar_inputs
from tfk_transformer.export.saved_model import SavedModelTranslator, write_saved_model
from tfk_transformer.export.signatures import GENERATE
from tfk_transformer.export.steps import host_functions
from tfk_transformer.streaming import StepModel, next_tokens
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

    def check_steps(self, name: str, steps: StepModel) -> None:
        """Compare what a loop over an artefact's steps says with what the model's own greedy search does."""
        settings = SearchSettings(**parity.SETTINGS[0]).as_arrays()
        found = np.stack(list(next_tokens(steps, self.ids, settings)), axis=1)  # (N, T)
        parity.check_tokens(name, self.expected[0][0][:, 0], found)


def _saved_model(translator: Translator, folder: Path, probes: Probes) -> dict:
    pieces = [piece.encode("utf-8", "surrogateescape") for piece in translator.target_tokenizer.pieces()]
    write_saved_model(translator, folder / "saved_model", more=host_functions, pieces=pieces)
    loaded = SavedModelTranslator(folder / "saved_model")
    probes.check_steps("SavedModel", loaded.steps)
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


def _onnx_steps(translator: Translator, folder: Path, probes: Probes) -> dict:
    graphs, names = onnx_graph.step_graphs(translator), {"encode": ENCODER, "decoder_step": DECODER_STEP}
    models = {**{names[name]: graph for name, graph in graphs.items()}, TOKENIZER: onnx_graph.tokenizer_graph(translator.source_tokenizer)}
    about = {"search": setting_rules(), "pieces": translator.target_tokenizer.pieces()}
    save_onnx(models, folder, translator.model.config, **about)
    probes.check_steps("ONNX steps", OnnxStreamer(folder).steps)
    save_onnx(models, folder, translator.model.config, **about, parity={**probes.agreed, "settings": list(parity.SETTINGS[:1])})
    return {"ids": "equal"}


WRITERS = {"saved_model": _saved_model, "onnx": _onnx, "onnx_steps": _onnx_steps}
