"""A folder of Firefox's files on Bergamot, the engine of Firefox: from texts to texts, greedily.

`pip install bergamot==0.4.5` has wheels for Python 3.7 to 3.10 and x86. The package requests lists
of models from the web when it is imported, so only its compiled module is loaded.
"""

import importlib.metadata
import importlib.util
import json
from pathlib import Path

# As Firefox sets them, but without alignments and without splitting into sentences.
SETTINGS = {
    "beam-size": 1,
    "normalize": 1.0,
    "word-penalty": 0,
    "max-length-break": 128,
    "mini-batch-words": 1024,
    "workspace": 128,
    "skip-cost": True,
    "quiet": True,
    "quiet-translation": True,
    "ssplit-mode": "sentence",
}


class Engine:
    """A loaded model.

    Args:
        threads: number of workers.
        path: the folder, with one `.bin` file and one or two `.spm` files.
        precision: Marian's `gemm-precision`.
        max_length_factor: limit of a translation's tokens, relative to its source's.
        shortlist: name of a shortlist in the folder; empty: none.
    """

    version = f"Bergamot {importlib.metadata.version('bergamot')}"

    def __init__(
        self, threads: int, path: str, precision: str, max_length_factor: float, shortlist: str = ""
    ):
        folder = Path(path)
        (model,) = folder.glob("model*.bin")
        vocabularies = sorted(folder.glob("*.spm"))
        config = {
            **SETTINGS,
            "models": [str(model)],
            "vocabs": [str(vocabularies[0]), str(vocabularies[-1])],  # "srcvocab" before "trgvocab"
            "gemm-precision": precision,
            "max-length-factor": max_length_factor,
            **({"shortlist": [str(folder / shortlist), 0]} if shortlist else {}),
        }
        self._module = _compiled_module()
        self._service = self._module.Service(self._module.ServiceConfig(numWorkers=threads))
        # JSON is YAML.
        self._model = self._service.modelFromConfig(json.dumps(config))
        self._options = self._module.ResponseOptions(qualityScores=False, sentenceMappings=False)

    def prepare(self, texts: list, group_size=None):
        """Group texts: each call gets `group_size` of them, by default all."""
        size = group_size or len(texts)
        return [texts[i : i + size] for i in range(0, len(texts), size)]

    def run(self, inputs):
        """Translate, in batches that Bergamot makes."""
        return [response for group in inputs for response in self._translated(group)]

    def result(self, outputs):
        """Return the texts."""
        return [response.target.text for response in outputs]

    def _translated(self, texts: list):
        vector = self._module.VectorString(texts)
        return self._service.translate(self._model, vector, self._options)


def _compiled_module():
    """Load `bergamot._bergamot` without running the package's `__init__`."""
    (folder,) = importlib.util.find_spec("bergamot").submodule_search_locations
    (path,) = Path(folder).glob("_bergamot*.so")
    spec = importlib.util.spec_from_file_location("_bergamot", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
