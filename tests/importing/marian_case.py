"""An imported folder of MarianMT, and the logits of the reference for its ids."""

import json

import marian_reference as reference
import numpy as np
import safetensors.numpy

from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.importing.model_import import import_model


class MarianCase:
    """A folder, the translator of it, and the rows of its ids in the family's tables."""

    def __init__(self, folder):
        self.translator = import_model(folder)
        self.config = json.loads((folder / "config.json").read_text())
        self.arrays = safetensors.numpy.load_file(folder / "model.safetensors")
        names = [
            "vocab.json",
            "target_vocab.json" if (folder / "target_vocab.json").exists() else "vocab.json",
        ]
        tokenizers = self.translator.source_tokenizer, self.translator.target_tokenizer
        self.rows = [
            rows_of(tokenizer, json.loads((folder / name).read_text()))
            for tokenizer, name in zip(tokenizers, names, strict=True)
        ]

    def expected(self, source, target):
        """The logits of a pair of rows of this project's ids, in the order of these ids; NaN where
        the family has no token.
        """
        actual = reference.logits(
            self.arrays, self.config, self.rows[0][source], self.rows[1][target]
        )[:, self.rows[1]]
        return np.where(only_here(self.rows[1]), np.nan, actual)


def rows_of(tokenizer, vocabulary):
    pieces = [tokenizer._processor.id_to_piece(i) for i in range(tokenizer.vocab_size)]
    special = {PAD_ID: "<pad>", START_ID: "<pad>", END_ID: "</s>", UNKNOWN_ID: "<unk>"}
    texts = [
        special.get(i, piece.removeprefix("▁") if piece.startswith("▁>>") else piece)
        for i, piece in enumerate(pieces)
    ]
    return np.array([vocabulary.get(text, vocabulary["<unk>"]) for text in texts])


def only_here(rows):
    """The start token, and pieces that have the unknown token's row."""
    places = np.arange(len(rows))
    return (places == START_ID) | ((rows == rows[UNKNOWN_ID]) & (places != UNKNOWN_ID))
