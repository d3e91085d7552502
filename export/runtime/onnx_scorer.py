"""Score given pairs with an exported ONNX file; needs numpy and onnxruntime, for texts sentencepiece, and never TensorFlow or Keras."""

import base64
import functools

import numpy as np

from tfk_transformer.export.runtime.onnx_translator import open_session, read_metadata
from tfk_transformer.inference.pair_scoring import PairScorer

SOURCE_TOKENIZER, TARGET_TOKENIZER = "source_tokenizer", "target_tokenizer"  # in the file's metadata: SentencePiece models in base 64
END_ID = 2
OUTPUTS = ("token_log_probs", "log_probability", "attention")


class OnnxScorer(PairScorer):
    """Score with `score.onnx`.

    Args:
        path: the file.
        threads: used inside operators; None: as many as there are cores.

    Raises:
        ValueError: if it is no ONNX file of this project that scores.
    """

    def __init__(self, path, threads: int | None = None):
        self._session = open_session(path, threads)
        self.metadata = read_metadata(self._session, path)
        if "target_ids" not in [value.name for value in self._session.get_inputs()]:
            raise ValueError(f"ONNX: expected a file that scores, got {path}, which does not; use score.onnx of the same export.")
        self.max_length = self.metadata["config"]["max_length"]

    def score_ids(self, source_ids, target_ids) -> tuple[np.ndarray, np.ndarray]:
        """Score pairs of ids.

        Args:
            source_ids: integers (N, S), tokens and end token, padded with 0.
            target_ids: integers (N, T), likewise.

        Returns:
            The log-probability of each token, float32 (N, T), 0 at padding, and their sums (N,); NaN where a side is too long.
        """
        return tuple(self._run(OUTPUTS[:2], source_ids, target_ids))

    def attention(self, source_ids, target_ids) -> np.ndarray:
        """Return what each target token attended to, float32 (N, L, H, T, S), for the ids of `score_ids`."""
        return self._run(OUTPUTS[2:], source_ids, target_ids)[0]

    def _run(self, outputs, source_ids, target_ids) -> list[np.ndarray]:
        ids = {"source_ids": np.asarray(source_ids, "int32"), "target_ids": np.asarray(target_ids, "int32")}
        shapes = [values.shape for values in ids.values()]
        if [len(shape) for shape in shapes] != [2, 2] or shapes[0][0] != shapes[1][0]:
            raise ValueError(f"source_ids, target_ids: expected shapes (N, S) and (N, T), got {shapes[0]} and {shapes[1]}.")
        return self._session.run(outputs, ids)

    def _scored(self, sources, targets, batch_size: int, attention: bool) -> list[tuple]:
        """Return for each pair its log-probability, its ids, what each token scores and, if wanted, attends to."""
        from tfk_transformer.inference.token_scoring import score_in_batches

        outputs = OUTPUTS if attention else OUTPUTS[:2]

        def run(*sides):
            ids = [_padded(tokenizer.encode(side)) for tokenizer, side in zip(self._pieces, sides, strict=False)]
            token_log_probs, log_probability, *weights = self._run(outputs, *ids)
            return log_probability, *ids, token_log_probs, *weights

        return score_in_batches(sources, targets, batch_size, self.max_length, run)

    @functools.cached_property
    def _pieces(self):
        from tfk_transformer.inference.token_scoring import Pieces
        from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

        models = [self._session.get_modelmeta().custom_metadata_map[name] for name in (SOURCE_TOKENIZER, TARGET_TOKENIZER)]
        return Pieces(*(SubwordTokenizer(base64.b64decode(model)) for model in models), self.metadata["config"]["architecture"])


def _padded(rows: list[list[int]]) -> np.ndarray:
    """Return int32 ids (N, S) of rows of tokens, each with its end token, padded."""
    ids = np.zeros((len(rows), 1 + max(map(len, rows))), "int32")
    for row, tokens in zip(ids, rows, strict=True):
        row[: len(tokens) + 1] = [*tokens, END_ID]
    return ids
