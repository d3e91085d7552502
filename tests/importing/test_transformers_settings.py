"""Imported models translate without options as `generate` of transformers does with the settings of
the folder, where transformers is installed.
"""

import json

import numpy as np
import pytest
import safetensors.numpy
import transformers_marian as one_language
import transformers_multilingual as multilingual
from id_rows import padded, until_end
from marian_folder import random_texts, write_folder

from tfk_transformer.constants import END_ID
from tfk_transformer.importing.model_import import import_model

torch = one_language.torch
pytestmark = pytest.mark.filterwarnings("default")  # of the libraries

FORCED = "forced_eos_token_id"
SETTINGS = {
    "false": {"num_beams": 4, "max_length": 24, "early_stopping": False, FORCED: None},
    "true": {"num_beams": 4, "max_length": 24, "length_penalty": 0.6, "early_stopping": True},
    "never": {
        "num_beams": 3,
        "max_length": 24,
        "length_penalty": 1.4,
        "early_stopping": "never",
        "min_length": 5,
        "renormalize_logits": True,
        FORCED: None,
    },
    "n-grams": {"num_beams": 5, "max_length": 40, "no_repeat_ngram_size": 2},
    "greedy": {"num_beams": 1, "max_length": 24, "no_repeat_ngram_size": 3, FORCED: None},
}
FAMILIES = ("MarianMT", "M2M100", "NLLB", "mBART-50", "mBART-25", "SMaLL-100", "Pegasus")


class Folder:
    """A folder with random weights, whose decoder depends on the source more than the others do."""

    def __init__(self, path, family):
        self.path = path
        self.languages = {}
        if family == "MarianMT":
            write_folder(path, **one_language.CASES["scaled, swish"])
            self.change_weights()
            self.pair = one_language.MarianPair(path)
            self.rows, (self.pad, self.end, self.started) = self.pair.rows, (None, 0, [None])
            self.pad = self.pair.config["pad_token_id"]
            self.started = [self.pad]
            return
        write, model, options, languages = multilingual.CASES[family]
        write(path, **options)
        self.change_weights()
        self.pair = multilingual.MultilingualPair(path, model, languages)
        names = ("source_language", "target_language")
        self.languages = dict(zip(names, languages, strict=True))
        self.rows = [self.pair.rows] * 2
        self.pad, self.end, self.started = self.pair.pad, self.pair.end, self.pair.started

    def change_weights(self):
        arrays = safetensors.numpy.load_file(self.path / "model.safetensors")
        for name in arrays:
            if "encoder_attn" in name and name.endswith("_proj.weight"):
                arrays[name] *= 1 if "k_proj" in name else 5
        safetensors.numpy.save_file(arrays, self.path / "model.safetensors", {"format": "pt"})

    def write_settings(self, settings):
        languages = getattr(self.pair, "languages", {}).values()
        forced = {FORCED: self.end} if FORCED in settings else {}
        tokens = {
            "bad_words_ids": [[self.pad], *([row] for row in languages)],
            "decoder_start_token_id": self.started[0],
            "eos_token_id": self.end,
            "pad_token_id": self.pad,
        }
        # Languages are never predicted here, so that only renormalized scores are comparable.
        renormalized = {"renormalize_logits": True} if languages else {}
        content = {**settings, **forced, **tokens, **renormalized}
        (self.path / "generation_config.json").write_text(json.dumps(content))

    def generated(self, sources):
        """What `generate` gives for rows of ids, without options but the target language."""
        model = type(self.pair.model).from_pretrained(self.path).eval()
        target = {"forced_bos_token_id": self.started[1]} if len(self.started) > 1 else {}
        if hasattr(self.pair, "read"):
            inputs = self.pair.read(sources)
        else:
            mask = torch.tensor((sources > 0).astype("int64"))
            inputs = {"input_ids": torch.tensor(self.rows[0][sources]), "attention_mask": mask}
        with torch.no_grad():
            actual = model.generate(**inputs, **target).numpy()[:, len(self.started) :]
        return [until_end(row.tolist(), self.end) for row in actual]

    def translated(self, translator, texts, **settings):
        results = translator.translate(texts, token_scores=True, split_sentences=False, **settings)
        piece_to_id = translator.target_tokenizer._processor.piece_to_id
        ids = [[piece_to_id(piece) for piece in each.hypotheses[0].tokens] for each in results]
        return [self.rows[1][row].tolist() for row in ids]


def equal_translations(folder, names, count):
    """How many translations equal those of `generate`, by name of the settings.

    The first translator has its settings from the folder. It makes the translations with the
    others' too, since each translator would trace a search.
    """
    first, equal = None, {}
    for name in names:
        folder.write_settings(SETTINGS[name])
        translator = import_model(folder.path, **folder.languages)
        first = first or translator
        assert translator.origin["notes"] == []
        texts = random_texts(2 * count, seed=11)
        lengths = map(len, translator.source_tokenizer.encode(texts))
        texts = [text for text, length in zip(texts, lengths, strict=True) if length][:count]
        rows = [[*ids, END_ID] for ids in translator.source_tokenizer.encode(texts)]
        theirs = folder.generated(padded(rows))
        assert len({tuple(row) for row in theirs}) > count / 8  # they depend on the source
        settings = {} if translator is first else translator.search
        ours = folder.translated(first, texts, **settings)
        equal[name] = int(np.sum([one == other for one, other in zip(ours, theirs, strict=True)]))
    return equal


@pytest.mark.long  # five searches of each family
@pytest.mark.parametrize("family", FAMILIES)
def test_all_families_equal_generate(tmp_path, family):
    equal = equal_translations(Folder(tmp_path / "folder", family), SETTINGS, 80)
    assert min(equal.values()) >= 78, equal
