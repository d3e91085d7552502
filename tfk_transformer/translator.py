"""Model and tokenizers together: text to text, saved and loaded as a bundle."""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tfk_transformer.bundle import written_whole
from tfk_transformer.config import SETTING_DTYPES, SearchSettings
from tfk_transformer.contents import SOURCE_TOKENIZER, TARGET_TOKENIZER, TRANSLATOR, plain_copy, read_model, read_probes, write_parts
from tfk_transformer.streaming import stream_text
from tfk_transformer.texts import Translation, check_texts, in_batches, to_translations
from tfk_transformer.tokenizers import SubwordTokenizer


class Translator:
    """A fitted model with its tokenizers: text to text.

    Args:
        model: a built `Transformer`; or a `LanguageModel`, which "translates" a prompt to its continuation.
        source_tokenizer: of the texts to translate.
        target_tokenizer: of the translations; None: the same.
        probes: source texts on which exports are compared with the model.

    Raises:
        ValueError: if the model predicts no tokens, or a tokenizer and the model differ in vocabulary size.
    """

    def __init__(
        self, model, source_tokenizer: SubwordTokenizer, target_tokenizer: SubwordTokenizer | None = None, probes: Sequence[str] = ()
    ):
        if model.config.architecture not in ("encoder_decoder", "decoder"):
            raise ValueError(f"model: expected a Transformer or a LanguageModel, got a {type(model).__name__}.")
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer or source_tokenizer
        self.probes = list(probes)
        for side, tokenizer in (("source", self.source_tokenizer), ("target", self.target_tokenizer)):
            wanted = getattr(model.config, f"{side}_vocab_size")
            if wanted != tokenizer.vocab_size:
                raise ValueError(f"{side}_tokenizer: expected {wanted} pieces, the model's {side}_vocab_size, got {tokenizer.vocab_size}.")

    def translate(self, texts: Sequence[str], batch_size: int = 64, use_cache: bool = True, **settings) -> list[Translation]:
        """Translate texts, in their order; those of like length go together.

        Args:
            texts: sentences; a blank one has the blank translation, with score 0.
            batch_size: texts translated at once; it does not change the result.
            use_cache: whether each step computes the last position alone, with the keys and values of those before, or the
                whole prefix anew; that does not change the result either, but for rounding, and takes longer.
            **settings: of `SearchSettings`.

        Raises:
            ValueError: if a text is too long for the model, or a setting is invalid.
        """
        limits = SearchSettings(**settings)
        check_texts(texts)
        translate = self._translate if use_cache else self._translate_without_cache

        def run(batch):
            found = translate(np.array(batch, object), *limits.model_dump().values())
            return found.texts.numpy(), found.scores.numpy()

        return to_translations(texts, in_batches(texts, batch_size, run), self.model.config.max_length)

    def stream(self, text: str, **settings) -> Iterator[str]:
        """Translate a text and yield its translation as its tokens come.

        What comes, joined, is what `translate` gives with `beam_size=1`, greedy or drawn with a `temperature`.

        Args:
            text: a sentence; a blank one has the blank translation.
            **settings: of `SearchSettings`; there is one beam.

        Raises:
            ValueError: at once, if the text is too long for the model, a setting is invalid, or there are more beams.
        """
        return stream_text(self._steps, text, SearchSettings(**{"beam_size": 1, **settings}).as_arrays())

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
        """Return the log-probability of each target given its source, float32 (N,), by the full masked pass.

        Raises:
            ValueError: if the sides differ in number, or a text is too long for the model.
        """
        check_texts(sources)
        check_texts(targets)
        if len(sources) != len(targets):
            raise ValueError(f"targets: expected one for each of {len(sources)} sources, got {len(targets)}.")
        scores = self._score(np.array(sources, object), np.array(targets, object)).numpy()
        too_long = np.flatnonzero(np.isnan(scores)) + 1
        if too_long.size:
            raise ValueError(
                f"texts: expected at most {self.model.config.max_length} tokens a side, got more in pair number {too_long[0]}."
            )
        return scores

    @functools.cached_property
    def graph(self):
        """The translator as TensorFlow graph functions."""
        from tfk_transformer.graphs import ContinuationGraph, TranslationGraph

        kind = ContinuationGraph if self.model.config.architecture == "decoder" else TranslationGraph
        return kind(self.model, self.source_tokenizer, self.target_tokenizer)

    @functools.cached_property
    def _steps(self):
        from tfk_transformer.steps import keras_steps

        return keras_steps(self.model, self.source_tokenizer, self.target_tokenizer)

    @functools.cached_property
    def _translate(self):
        return self._translation(use_cache=True)

    @functools.cached_property
    def _translate_without_cache(self):
        return self._translation(use_cache=False)

    def _translation(self, use_cache):
        import tensorflow as tf

        from tfk_transformer.search import Limits

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string), *limit_specs().values()])
        def translate(texts, *limits):
            return self.graph.translate(texts, Limits(*limits), use_cache)

        return translate

    @functools.cached_property
    def _score(self):
        import tensorflow as tf

        return tf.function(self.graph.score, autograph=False, input_signature=[tf.TensorSpec([None], tf.string)] * 2)

    def save(self, path, history: dict | None = None, metrics: dict | None = None, more: Callable[[Path], None] | None = None) -> None:
        """Write the bundle: whole, or not at all.

        Args:
            path: of the folder; one that is there is replaced at the very end.
            history: what `model.fit` recorded, lists by name.
            metrics: figures of the finished model, by name.
            more: writes further files into the folder, before it is put in place.
        """
        with written_whole(path) as folder:
            folder.mkdir()
            write_parts(folder, self.model, self.probes, history, metrics)
            self.source_tokenizer.save(folder / SOURCE_TOKENIZER)
            self.target_tokenizer.save(folder / TARGET_TOKENIZER)
            if more:
                more(folder)

    def in_float32(self) -> "Translator":
        """Return this translator, or one of the same weights that computes in float32, as every exported file does."""
        if self.model.compute_dtype == "float32":
            return self
        return Translator(plain_copy(self.model), self.source_tokenizer, self.target_tokenizer, self.probes)

    @classmethod
    def load(cls, path) -> "Translator":
        """Read a bundle; it holds data alone, and no code of it is run.

        Raises:
            ValueError: if files are missing, or do not fit together, or are a classifier's.
        """
        folder = Path(path)
        model = read_model(folder, TRANSLATOR)
        tokenizers = [SubwordTokenizer.load(folder / name) for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER)]
        return cls(model, *tokenizers, probes=read_probes(folder))


def limit_specs() -> dict:
    """Return the search settings as TensorFlow scalars by name, in the order of `SearchSettings`."""
    import tensorflow as tf

    return {name: tf.TensorSpec([], tf.as_dtype(dtype), name) for name, dtype in SETTING_DTYPES.items()}
