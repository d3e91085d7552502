"""Model and tokenizers together: text to text, saved and loaded as a bundle."""

import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tfk_transformer.atomic_write import written_whole
from tfk_transformer.config.search_settings import SETTING_DTYPES, SearchSettings
from tfk_transformer.inference.pair_scoring import PairScorer
from tfk_transformer.inference.streaming import stream_text
from tfk_transformer.inference.text_batches import Translation, check_prefixes, check_texts, in_batches, to_translations
from tfk_transformer.inference.token_scoring import Pieces, score_in_batches
from tfk_transformer.pipelines.bundle import (
    SOURCE_TOKENIZER,
    TARGET_TOKENIZER,
    TRANSLATOR,
    plain_copy,
    read_model,
    read_probes,
    write_parts,
)
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer


class Translator(PairScorer):
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
        joint = target_tokenizer is None or target_tokenizer.model == source_tokenizer.model
        self.target_tokenizer = source_tokenizer if joint else target_tokenizer  # one object, which exports hold once
        self.probes = list(probes)
        for side, tokenizer in (("source", self.source_tokenizer), ("target", self.target_tokenizer)):
            wanted = getattr(model.config, f"{side}_vocab_size")
            if wanted != tokenizer.vocab_size:
                raise ValueError(f"{side}_tokenizer: expected {wanted} pieces, the model's {side}_vocab_size, got {tokenizer.vocab_size}.")

    def translate(
        self,
        texts: Sequence[str],
        batch_size: int = 64,
        use_cache: bool = True,
        prefixes: Sequence[str | None] | None = None,
        token_scores: bool = False,
        attention: bool = False,
        **settings,
    ) -> list[Translation]:
        """Translate texts, in their order; those of like length go together.

        Args:
            texts: sentences; a blank one has the blank translation, with score 0.
            batch_size: texts translated at once; it does not change the result.
            use_cache: whether each step computes the last position alone, with the keys and values of those before, or the
                whole prefix anew; that does not change the result either, but for rounding, and takes longer.
            prefixes: for each text what its translations begin with, None or "" where nothing is forced. Neither scores nor
                limits of length count it.
            token_scores: whether hypotheses tell their tokens and the log-probability of each.
            attention: whether hypotheses tell what each token attended to, in every layer and head of the decoder: the source,
                or in a decoder alone all tokens before.
            **settings: of `SearchSettings`.

        Raises:
            ValueError: if a text or a prefix is too long for the model, or a setting is invalid.
        """
        limits = SearchSettings(**settings).model_dump().values()
        check_texts(texts)
        forced = check_prefixes(prefixes, texts)
        translate = self._translation(use_cache, token_scores or attention, attention)

        def run(batch, forced):
            return [part.numpy() for part in translate(np.array(batch, object), np.array(forced, object), *limits)]

        rows = in_batches(texts, batch_size, run, forced)
        translations = to_translations(texts, [row[:2] for row in rows], self.model.config.max_length, forced)
        return [
            self._explained(translation, *row[2:], token_scores=token_scores) if row[2:] else translation
            for translation, row in zip(translations, rows, strict=True)
        ]

    def _explained(self, translation: Translation, source_ids, ids, log_probs, attention=None, token_scores=True) -> Translation:
        """Add to each hypothesis what its row of the arrays tells."""
        hypotheses = []
        for place, hypothesis in enumerate(translation.hypotheses):
            scores, weights = log_probs[place] if token_scores else None, None if attention is None else attention[place]
            hypotheses.append(self._pieces.name(hypothesis, source_ids, ids[place], scores, weights))
        return translation._replace(hypotheses=hypotheses)

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

    def _scored(self, sources, targets, batch_size: int, attention: bool) -> list[tuple]:
        """Return for each pair its log-probability, its ids, what each token scores and, if wanted, attends to."""
        score = self._scoring(attention)

        def run(*sides):
            return [part.numpy() for part in score(*(np.array(side, object) for side in sides))]

        return score_in_batches(sources, targets, batch_size, self.model.config.max_length, run)

    @functools.cached_property
    def _pieces(self) -> Pieces:
        return Pieces(self.source_tokenizer, self.target_tokenizer, self.model.config.architecture)

    @functools.cached_property
    def graph(self):
        """The translator as TensorFlow graph functions."""
        from tfk_transformer.generation.translation_functions import ContinuationGraph, TranslationGraph

        kind = ContinuationGraph if self.model.config.architecture == "decoder" else TranslationGraph
        return kind(self.model, self.source_tokenizer, self.target_tokenizer)

    @functools.cached_property
    def _translation(self):
        """(use_cache, token_scores, attention) -> the function that does so, traced at its first use."""
        return functools.cache(self._make_translation)

    @functools.cached_property
    def _steps(self):
        from tfk_transformer.generation.decoder_step import keras_steps

        return keras_steps(self.model, self.source_tokenizer, self.target_tokenizer)

    def _make_translation(self, use_cache=True, token_scores=False, attention=False):
        import tensorflow as tf

        from tfk_transformer.generation.beam_search import Limits

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)] * 2 + [*limit_specs().values()])
        def translate(texts, prefix, *limits):
            if not token_scores:
                return self.graph.translate(texts, Limits(*limits), use_cache, prefix)
            found = self.graph.explain(texts, Limits(*limits), use_cache, prefix)
            details = (found.source_ids, found.ids, found.scores.token_log_probs)
            return (*found.translations, *details, *([found.scores.attention] if attention else []))

        return translate

    @functools.cached_property
    def _scoring(self):
        """(attention) -> the function that scores, traced at its first use."""
        return functools.cache(self._make_scoring)

    def _make_scoring(self, attention=False):
        import tensorflow as tf

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)] * 2)
        def score(sources, targets):
            source_ids, target_ids, scores = self.graph.score(sources, targets)
            weights = [scores.attention] if attention else []
            return scores.log_probability, source_ids, target_ids, scores.token_log_probs, *weights

        return score

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
