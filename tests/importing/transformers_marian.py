"""Imported and exported folders of MarianMT next to the classes of transformers."""

import numpy as np
import pytest
from id_rows import hypotheses_of, padded
from marian_case import MarianCase
from marian_folder import TAGS, sentences
from random_translators import of_transformer

from tfk_transformer.constants import END_ID
from tfk_transformer.export.to_libraries.hugging_face_files import write_marian
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
torch.set_num_threads(1)  # its threads wait actively, which takes ten times as long

LAYERS = {"encoder_layers": 1, "decoder_layers": 2}  # a search is traced layer by layer

CASES = {
    "scaled, swish": {"tags": TAGS, "dropped": ["▁ka", "lo"], **LAYERS},
    "unscaled, relu": {"scale_embedding": False, "activation_function": "relu", **LAYERS},
    "two vocabularies, gelu": {"separate": True, "activation_function": "gelu", **LAYERS},
    "unlike widths, gelu_new": {
        "activation_function": "gelu_new",
        "decoder_ffn_dim": 31,
        **LAYERS,
    },
    "unlike widths, quick_gelu": {
        "activation_function": "quick_gelu",
        "decoder_ffn_dim": 23,
        **LAYERS,
    },
}

# What is exported again: imported models, and a model of this project with options that need more
# than other names of arrays.
EXPORTED = {
    "exported: scaled, swish": CASES["scaled, swish"],
    "exported: two vocabularies, gelu, nothing tied": {
        **CASES["two vocabularies, gelu"],
        "tie_word_embeddings": False,
    },
    "exported: unlike widths, gelu_new": CASES["unlike widths, gelu_new"],
    "exported: unlike widths, quick_gelu": CASES["unlike widths, quick_gelu"],
    "exported: a model of this project": None,
}

LONGEST = 30


class MarianPair(MarianCase):
    """An imported model and the family's own classes, loaded from the same folder."""

    end = 0

    def __init__(self, folder):
        super().__init__(folder)
        self.load(folder)

    def load(self, folder):
        self.model = transformers.MarianMTModel.from_pretrained(folder).eval()
        self.tokenizer = transformers.MarianTokenizer.from_pretrained(folder)

    def generated(self, texts, **settings):
        """Their hypotheses by text, as rows of tokens without the start and with the end, and their
        log-probabilities.
        """
        sources = padded([[*ids, END_ID] for ids in self.translator.source_tokenizer.encode(texts)])
        options = {
            "max_length": LONGEST + 1,
            "forced_eos_token_id": None,
            "return_dict_in_generate": True,
            "output_scores": True,
        }
        with torch.no_grad():
            actual = self.model.generate(
                torch.tensor(self.rows[0][sources]),
                attention_mask=torch.tensor((sources > 0).astype("int64")),
                **options,
                **settings,
            )
        return hypotheses_of(actual, texts, 1, self.end)

    def ours(self, texts, **settings):
        limits = {"max_length": LONGEST, "max_length_factor": 1000}
        for actual in self.translator.translate(texts, token_scores=True, **limits, **settings):
            ids = [
                [
                    self.translator.target_tokenizer._processor.piece_to_id(piece)
                    for piece in h.tokens
                ]
                for h in actual.hypotheses
            ]
            yield [self.rows[1][row].tolist() for row in ids], [h.score for h in actual.hypotheses]


class ExportedPair(MarianPair):
    """A translator, and the family's own classes, loaded from the folder that was written of it.
    Their rows are its ids.
    """

    end = END_ID

    def __init__(self, translator, folder):
        self.translator = translator
        self.rows = [
            np.arange(tokenizer.vocab_size)
            for tokenizer in (translator.source_tokenizer, translator.target_tokenizer)
        ]
        write_marian(translator, folder)
        self.load(folder)


def own_translator():
    """A translator of this project, with random weights and a byte pair encoding of both sides."""
    tokenizer = SubwordTokenizer.train(
        sentences("source", 300) + sentences("target", 300), 90, "bpe"
    )
    options = {
        "keys_are_values": True,
        "attention_scale": "key_dim",
        "attention_bias": ["query", "output"],
        "tie_embeddings": "target",
    }
    family = {"norm": "post_dropout", "norm_epsilon": 1e-5, "positions": "sinusoidal_paper_halves"}
    return of_transformer(
        tokenizer, source_vocab_size=90, target_vocab_size=90, max_length=40, **options, **family
    )
