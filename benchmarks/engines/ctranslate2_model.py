"""A folder for CTranslate2 whose tokens are the ids as text, so that no tokenizer is compared."""

from pathlib import Path

import ctranslate2


class Engine:
    """A loaded model, which translates `at_once` batches in parallel."""

    version = f"CTranslate2 {ctranslate2.__version__}"

    def __init__(self, threads: int, path: str, compute_type: str, at_once: int = 1):
        layout = {"inter_threads": at_once, "intra_threads": threads // at_once}
        self._model = ctranslate2.Translator(path, compute_type=compute_type, **layout)
        self._has_map = (Path(path) / "vmap.txt").is_file()

    def prepare(self, rows, beam_size: int, batch_size: int, max_length: int):
        """Write the ids as tokens; CTranslate2 adds the end token itself."""
        tokens = [[str(i) for i in row[:-1]] for row in rows]
        search = {"beam_size": beam_size, "max_batch_size": batch_size, "length_penalty": 0}
        return tokens, {**search, "max_decoding_length": max_length, "use_vmap": self._has_map}

    def run(self, inputs):
        """Translate. CTranslate2 makes the batches, and sorts them by length as the rows are."""
        tokens, search = inputs
        return self._model.translate_batch(tokens, **search)

    def result(self, outputs):
        """Return lists of ids."""
        return [[int(token) for token in output.hypotheses[0]] for output in outputs]
