"""An imported folder of a multilingual family, and the logits of the reference for its ids."""

import json

import multilingual_reference as reference
import numpy as np
import safetensors.numpy
from multilingual_folder import MODEL, pieces_of

from tfk_transformer.constants import START_ID, UNKNOWN_ID
from tfk_transformer.importing.model_import import import_model


class MultilingualCase:
    """A folder, the translator of it, and the rows of its ids in the family's table."""

    def __init__(self, folder, languages):
        self.translator = import_model(
            folder, source_language=languages[0], target_language=languages[1]
        )
        self.config = json.loads((folder / "config.json").read_text())
        self.arrays = safetensors.numpy.load_file(folder / "model.safetensors")
        self.languages = language_rows(folder)
        self.source, self.target = (self.languages.get(language) for language in languages)
        self.rows = rows_of(self.translator, self.arrays["model.shared.weight"])
        self.family = self.translator.origin["family"]
        # The rows before and after a source, and before a target.
        self.before, self.after, self.started = {
            "SMaLL-100": ([self.target], [], [2]),
            "mBART-25": ([], [self.source], [self.target]),
            "NLLB with legacy_behaviour": ([], [self.source], [2, self.target]),
            "Pegasus": ([], [], [0]),
        }.get(self.family, ([self.source], [], [2, self.target]))
        assert self.rows[START_ID] == self.started[-1]
        assert self.translator.languages == languages

    def expected(self, source, target):
        """The logits of a pair of rows of this project's ids, in the order of these ids; NaN for
        tokens that are never predicted.
        """
        read = [*self.before, *self.rows[source], *self.after]
        written = [*self.started[:-1], *self.rows[target]]
        actual = reference.logits(self.arrays, self.config, read, written)
        return np.where(self.never, np.nan, actual[len(self.started) - 1 :, self.rows])

    @property
    def never(self):
        places = np.arange(len(self.rows))
        lacking = (self.rows == self.rows[UNKNOWN_ID]) & (places != UNKNOWN_ID)
        silent = [1, *self.languages.values()] if self.languages else []
        return (places == START_ID) | lacking | np.isin(self.rows, silent)

    @property
    def special(self):
        """The rows that no text has."""
        return {*range(3 if self.languages else 105), *self.languages.values()}


def language_rows(folder):
    if (folder / "tokenizer.json").exists():
        added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
        return {
            token["content"]: token["id"]
            for token in added
            if token["id"] > 3 and token["content"] != "<mask>"
        }
    if (folder / "vocab.json").exists():
        first = len(json.loads((folder / "vocab.json").read_text()))
        return {code: first + i for i, code in enumerate("en ha is ja cs ru zh de".split())}
    if not (folder / MODEL).exists():
        return {}
    first = 4 + len(pieces_of((folder / MODEL).read_bytes()))
    count = json.loads((folder / "config.json").read_text())["vocab_size"] - first - 1
    return {
        {0: "ar_AR", 2: "de_DE", 3: "en_XX", 51: "sl_SI"}.get(i, str(i)): first + i
        for i in range(count)
    }


def rows_of(translator, table):
    """Find each row of the model's table in the family's."""
    places = {row.tobytes(): i for i, row in enumerate(table)}
    return np.array(
        [
            places[row.tobytes()]
            for row in np.asarray(translator.model.named_weights["source_embedding/embeddings"])
        ]
    )
