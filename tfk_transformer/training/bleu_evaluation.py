"""A Keras callback that measures BLEU on the validation pairs."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import keras

from tfk_transformer.datasets import Pair
from tfk_transformer.evaluation import bleu_metric, evaluate
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.training.callbacks import Logs, moving_averages

SAMPLE_COUNT = 3


class BleuEvaluation(keras.callbacks.Callback):
    """Measure BLEU on the validation pairs, and add it to the metrics of the epoch as "val_bleu".

    It is 0 while no four words in a row are right in any translation.

    Args:
        translator: a translator whose model gets the weights of the trained one.
        pairs: returns the validation pairs.
        beam_size: the beam size of the search.
        every: number of epochs from one measurement to the next.
        logs: TensorBoard folder for sample translations. None: none are written.
        target_language: see `evaluate`.
    """

    def __init__(
        self,
        translator: Translator,
        pairs: Callable[[], Iterator[Pair]],
        beam_size: int,
        every: int,
        logs: Path | None = None,
        target_language: str = "",
    ):
        super().__init__()
        self.translator = translator
        self.pairs = pairs
        self.beam_size = beam_size
        self.every = every
        self.logs = logs
        self.target_language = target_language

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Measure BLEU if the number of the epoch is a multiple of `every`."""
        if (epoch + 1) % self.every:
            return
        with moving_averages(self.model):
            self.translator.model.set_weights(self.model.get_weights())
        pairs = list(self.pairs())
        scores, translations = evaluate(
            self.translator,
            pairs,
            target_language=self.target_language,
            beam_size=self.beam_size,
        )
        if logs is not None:
            logs["val_bleu"] = scores.bleu if self._has_matches(pairs, translations) else 0.0
        if self.logs is not None:
            _log_samples(self.logs / "validation", epoch, pairs[:SAMPLE_COUNT], translations)

    def _has_matches(self, pairs: Sequence[Pair], translations: Sequence[str]) -> bool:
        """Return whether four words in a row of any translation are right.

        Otherwise BLEU consists of sacreBLEU's smoothing, which says nothing about the model.
        """
        targets = [pair.target for pair in pairs]
        score = bleu_metric(targets, self.target_language).corpus_score(translations, [targets])
        return score.counts[-1] > 0


def _log_samples(
    folder: Path, epoch: int, pairs: Sequence[Pair], translations: Sequence[str]
) -> None:
    """Write sample translations for TensorBoard."""
    import tensorflow as tf

    samples = zip(pairs, translations, strict=False)
    text = [f"{pair.source}  \n→ {translation}  \n({pair.target})" for pair, translation in samples]
    with tf.summary.create_file_writer(str(folder)).as_default():
        tf.summary.text("translations", text, step=epoch)
