"""A model that `engines.ctranslate2_conversion` made, on CTranslate2."""

from pathlib import Path

import ctranslate2

from engines.batches import Search


class Engine:
    """See the package."""

    version = f"CTranslate2 {ctranslate2.__version__}"

    def __init__(self, path: str, threads: int, compute_type: str, at_once: str = "1"):
        layout = {"inter_threads": int(at_once), "intra_threads": threads // int(at_once)}
        self.model = ctranslate2.Translator(path, compute_type=compute_type, **layout)
        self.has_map = (Path(path) / "vmap.txt").is_file()

    def prepare(self, rows):
        """Turn ids into the vocabulary's tokens, which are the ids written out. The engine adds the
        end token itself.
        """
        return [[str(i) for i in row[:-1]] for row in rows]

    def translate(self, rows, search: Search):
        """Leave the batches to the engine: it sorts by length, as the rows already are."""
        return self.model.translate_batch(
            rows,
            max_batch_size=search.batch_size,
            use_vmap=self.has_map,
            beam_size=search.beam_size,
            length_penalty=0,
            min_decoding_length=search.max_length if search.forced else 0,
            max_decoding_length=search.max_length,
        )

    def read(self, found):
        """Return lists of ids."""
        return [[int(token) for token in result.hypotheses[0]] for result in found]
