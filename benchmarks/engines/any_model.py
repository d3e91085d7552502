"""A bundle, SavedModel or ONNX file of this project, from texts to texts."""

import importlib.metadata

import tfk_transformer


class Engine:
    """A loaded model, with the search settings of its bundle."""

    version = f"tfk-transformer {importlib.metadata.version('tfk-transformer')}"

    def __init__(self, threads: int, path: str):
        self._translator = tfk_transformer.load(path)  # on the processors of this process

    def prepare(self, texts: list[str], group_size: int | None = None, **settings):
        """Group texts: each call of `translate` gets `group_size` of them, by default all."""
        size = group_size or len(texts)
        return [texts[i : i + size] for i in range(0, len(texts), size)], settings

    def run(self, inputs):
        """Translate; each text is one sentence."""
        groups, settings = inputs
        options = {"split_sentences": False, **settings}
        return [one for group in groups for one in self._translator.translate(group, **options)]

    def result(self, outputs):
        """Return texts and scores of the hypotheses of each text."""
        return [[(h.text, h.score) for h in translation.hypotheses] for translation in outputs]
