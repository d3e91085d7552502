"""The files of a translator, each compared with the model's own translations."""

import functools
from pathlib import Path

import numpy as np

from tfk_transformer.config.search_settings import SearchSettings, setting_rules
from tfk_transformer.export import parity
from tfk_transformer.export.functions import traced
from tfk_transformer.export.runtime.onnx_scorer import OnnxScorer
from tfk_transformer.export.runtime.onnx_streamer import DECODER_STEP, ENCODER, TOKENIZER, OnnxStreamer
from tfk_transformer.export.runtime.onnx_translator import OnnxTranslator
from tfk_transformer.export.runtime.saved_model_files import write_saved_model
from tfk_transformer.export.runtime.saved_model_translator import SavedModelTranslator
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.export.runtime.setting_checks import scalar_inputs
from tfk_transformer.export.signatures import GENERATE, SAVED_MODEL, SCORE_AND_ATTEND
from tfk_transformer.export.step_functions import host_functions
from tfk_transformer.export.to_onnx import onnx_models
from tfk_transformer.export.to_onnx.onnx_file import save_onnx
from tfk_transformer.export.to_onnx.onnx_layers import PROFILES, Profile, int8_but
from tfk_transformer.export.to_saved_model.warm_up import write_warm_up
from tfk_transformer.inference.streaming import StepModel, next_tokens
from tfk_transformer.pipelines.translator import Translator

# What int8 files keep in float32: the first of these with which the translations stay what they were.
KEPT = ((), ("output/",), ("output/", "feed_forward/outer"), ("output/", "feed_forward"))
AT_ONCE = 32  # probes that onnxruntime is given: all at once, of a large model, they would take more memory than all else
PREFIX = 2  # tokens that are forced upon a probe


class Probes:
    """Probe sentences, and what the Keras model makes of them under each of `parity.SETTINGS`, from a prefix, and in scoring."""

    def __init__(self, translator: Translator):
        self.translator, tokenizer = translator, translator.source_tokenizer
        self.texts = parity.probe_texts(translator.probes, tokenizer)
        self.ids = parity.probe_ids(self.texts, tokenizer, translator.model.config.max_length)
        self.agreed = {"sentences": len(self.texts), "settings": list(parity.SETTINGS), "ids": "equal"}
        generate = traced(translator.functions, GENERATE)

        def search(prefix_ids, settings):
            found = generate(self.ids, prefix_ids, *SearchSettings(**settings).model_dump().values())
            return found["ids"].numpy(), found["scores"].numpy()

        unforced = np.zeros((1, 0), "int32")
        self.expected = [(unforced, settings, search(unforced, settings)) for settings in parity.SETTINGS]
        self.greedy, self.found = (ids[:, 0] for _, _, (ids, _) in self.expected)  # the best ids (N, T) under each
        other = np.roll(self.found[:, :PREFIX], 1, axis=0)  # how the translation of another probe begins
        self.expected.append((other, parity.SETTINGS[0], search(other, parity.SETTINGS[0])))
        scored = traced(translator.functions, SCORE_AND_ATTEND)(self.ids, self.found)
        self.scores = [scored[tensor.name].numpy() for tensor in SCORE_AND_ATTEND.outputs]
        fitting = [row for row, ids in enumerate(tokenizer.encode(self.texts)) if len(ids) < self.ids.shape[1]]
        self.readable = [self.texts[row] for row in fitting]
        self.translations = translator.target_tokenizer.decode(self.found[fitting])

    @functools.cached_property
    def search(self):
        """The search as ONNX, for every profile."""
        return onnx_models.search_graph(self.translator)

    def check(self, name: str, generate, translate) -> dict:
        """Compare an artefact's functions with the model's; return the figures.

        Args:
            name: of the artefact, for errors.
            generate: (source ids, prefix ids, settings) -> ids, scores.
            translate: texts -> translations.
        """
        differences = [parity.check_ids(name, expected, generate(self.ids, *given)) for *given, expected in self.expected]
        parity.check_rows(name, "translations", self.readable, self.translations, [found.text for found in translate(self.readable)])
        return {"largest_score_difference": max(differences)}

    def check_scores(self, name: str, score) -> dict:
        """Compare an artefact's scores of given pairs with the model's; return the figures.

        Args:
            name: of the artefact, for errors.
            score: (source ids, target ids) -> token log-probabilities, their sums, attention.
        """
        return parity.check_scores(name, self.scores, score(self.ids, self.found))

    def check_steps(self, name: str, steps: StepModel) -> None:
        """Compare what a loop over an artefact's steps says with what the model's own greedy search does."""
        settings = SearchSettings(**parity.SETTINGS[0]).as_arrays()
        found = np.stack(list(next_tokens(steps, self.ids, settings)), axis=1)  # (N, T)
        parity.check_tokens(name, self.greedy, found)


def _saved_model(translator: Translator, folder: Path, probes: Probes) -> dict:
    pieces = [piece.encode("utf-8", "surrogateescape") for piece in translator.target_tokenizer.pieces()]
    tokenizers = {"source_tokenizer": translator.source_tokenizer.model, "target_tokenizer": translator.target_tokenizer.model}
    write_saved_model(translator, folder / "saved_model", more=host_functions, pieces=pieces, **tokenizers)
    write_warm_up(folder / "saved_model", SAVED_MODEL, probes.readable)
    loaded = SavedModelTranslator(folder / "saved_model")
    probes.check_steps("SavedModel", loaded.steps)
    figures = probes.check("SavedModel", lambda ids, prefix_ids, settings: loaded.generate(ids, prefix_ids, **settings), loaded.translate)
    return figures | probes.check_scores("SavedModel", lambda *ids: (*loaded.score_ids(*ids), loaded.attention(*ids)))


def _onnx(translator: Translator, folder: Path, probes: Probes) -> dict:
    generate = onnx_models.generate_graph(probes.search, translator)
    models = {
        "generate.onnx": generate,
        "translate.onnx": onnx_models.translate_graph(generate, translator),
        "score.onnx": onnx_models.score_graph(translator),
    }
    config, about = translator.model.config, {"search": setting_rules(translator.model.config.max_length)}
    save_onnx(models, folder, config, **about)
    scorer = OnnxScorer(folder / "score.onnx")
    figures = probes.check("ONNX", _generating(folder / "generate.onnx"), _translating(folder / "translate.onnx"))
    figures |= probes.check_scores("ONNX", lambda *ids: (*scorer.score_ids(*ids), scorer.attention(*ids)))
    save_onnx(models, folder, config, **about, parity={**probes.agreed, **figures})
    return figures


def _generating(path: Path):
    """Return (source ids, prefix ids, settings) -> ids, scores of an ONNX file."""
    session, rules = open_session(path, arena=False), setting_rules()

    def run(ids, prefix_ids, settings):
        prefixes = np.broadcast_to(prefix_ids, (len(ids), prefix_ids.shape[1]))
        parts = [slice(first, first + AT_ONCE) for first in range(0, len(ids), AT_ONCE)]
        inputs = [{"source_ids": ids[part], "prefix_ids": prefixes[part], **scalar_inputs(settings, rules)} for part in parts]
        found, scores = zip(*(session.run(["ids", "scores"], given) for given in inputs), strict=True)
        longest = max(part.shape[2] for part in found)
        padded = [np.pad(part, [(0, 0), (0, 0), (0, longest - part.shape[2])]) for part in found]
        return np.concatenate(padded), np.concatenate(scores)

    return run


def _translating(path: Path):
    """Return texts -> translations of an ONNX file."""
    return functools.partial(OnnxTranslator(path).translate, batch_size=AT_ONCE)


def _onnx_fast(translator: Translator, folder: Path, probes: Probes) -> dict:
    models = _both_graphs(translator, probes, "fast", PROFILES["fast"])
    config, about = translator.model.config, {"search": setting_rules(translator.model.config.max_length), "profile": "fast"}
    save_onnx(models, folder, config, **about)
    figures = probes.check("ONNX fast", _generating(folder / "generate.fast.onnx"), _translating(folder / "translate.fast.onnx"))
    save_onnx(models, folder, config, **about, parity={**probes.agreed, **figures})
    return figures


def _onnx_int8(translator: Translator, folder: Path, probes: Probes) -> dict:
    """Round all weights, or all but those without which the translations stay what they were."""
    config, found = translator.model.config, []
    for kept in KEPT:
        models = _both_graphs(translator, probes, "int8", int8_but(kept))
        about = {"search": setting_rules(translator.model.config.max_length), "profile": "int8", "kept_float32": list(kept)}
        save_onnx(models, folder, config, **about)
        texts = [translation.text for translation in _translating(folder / "translate.int8.onnx")(probes.readable)]
        found.append(parity.agreement(probes.translations, texts))
        if found[-1] >= parity.AGREEMENT:
            figures = {"sentences": len(texts), "bleu_with_the_model": found[-1], "kept_float32": list(kept)}
            save_onnx(models, folder, config, **about, parity=figures)
            return figures
    raise parity.ParityError(
        f"ONNX int8: expected a BLEU over characters of {parity.AGREEMENT:g} with the model's own translations of "
        f"{len(probes.readable)} probe sentences, got {max(found):.1f} with any weights left in float32; "
        "export it without this format. Nothing was written."
    )


def _both_graphs(translator: Translator, probes: Probes, suffix: str, profile: Profile) -> dict:
    generate = onnx_models.generate_graph(probes.search, translator, profile)
    return {f"generate.{suffix}.onnx": generate, f"translate.{suffix}.onnx": onnx_models.translate_graph(generate, translator)}


def _onnx_steps(translator: Translator, folder: Path, probes: Probes) -> dict:
    graphs, names = onnx_models.step_graphs(translator), {"encode": ENCODER, "decoder_step": DECODER_STEP}
    models = {**{names[name]: graph for name, graph in graphs.items()}, TOKENIZER: onnx_models.tokenizer_graph(translator.source_tokenizer)}
    about = {"search": setting_rules(translator.model.config.max_length), "pieces": translator.target_tokenizer.pieces()}
    save_onnx(models, folder, translator.model.config, **about)
    probes.check_steps("ONNX steps", OnnxStreamer(folder).steps)
    save_onnx(models, folder, translator.model.config, **about, parity={**probes.agreed, "settings": list(parity.SETTINGS[:1])})
    return {"ids": "equal"}


WRITERS = {
    "saved_model": _saved_model,
    "onnx": _onnx,
    "onnx_steps": _onnx_steps,
    "onnx_fast": _onnx_fast,
    "onnx_int8": _onnx_int8,
}
UNASKED = ("saved_model", "onnx", "onnx_steps")  # written where no formats are given
