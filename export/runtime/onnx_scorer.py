"""Score given pairs with an exported ONNX file. Needs numpy and onnxruntime, for texts
sentencepiece, and never TensorFlow or Keras.
"""

import base64
import functools
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from tfk_transformer.export.runtime.sessions import open_session, read_metadata, required
from tfk_transformer.inference.pair_scoring import PairScorer

if TYPE_CHECKING:
    from tfk_transformer.inference.token_scoring import Tokenizers

# Keys of the file's metadata, with SentencePiece models in base 64.
SOURCE_TOKENIZER = "source_tokenizer"
TARGET_TOKENIZER = "target_tokenizer"
OUTPUTS = ("token_log_probs", "log_probability", "attention")


class OnnxScorer(PairScorer):
    """Score with `score.onnx`.

    Args:
        path: the file.
        threads: threads inside operators. Default: the number of processors.

    Raises:
        ValueError: if the file is not an ONNX file that this project exported for scoring.
    """

    _refusal = (
        "expected a file that translates, got one that only scores given pairs; open "
        "translate.onnx of the same export."
    )

    def __init__(self, path: str | PathLike[str], threads: int | None = None) -> None:
        self._path = Path(path)
        self._threads = threads
        self._session = open_session(path, threads)
        self.metadata = read_metadata(self._session, path)
        if "target_ids" not in [value.name for value in self._session.get_inputs()]:
            raise ValueError(
                f"ONNX: expected a file that scores, got {path}, which does not; use score.onnx "
                "of the same export."
            )
        self.max_length: int = self.metadata["config"]["max_length"]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the threads: the file is opened again where it is unpickled."""
        return type(self), (self._path.absolute(), self._threads)

    def score_ids(
        self, source_ids: ArrayLike, target_ids: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        """Score pairs of ids.

        Args:
            source_ids: integers (N, S), tokens and end token, padded with 0.
            target_ids: integers (N, T), in the same form.

        Returns:
            The log-probability of each token, float32 (N, T), 0 at padding, and their sums (N,).
            They are NaN where a source or a target is too long.
        """
        token_log_probs, log_probability = self._run(OUTPUTS[:2], source_ids, target_ids)
        return token_log_probs, log_probability

    def attention(self, source_ids: ArrayLike, target_ids: ArrayLike) -> np.ndarray:
        """Return the attention weights of each target token, float32 (N, L, H, T, S), for the ids
        of `score_ids`.
        """
        return self._run(OUTPUTS[2:], source_ids, target_ids)[0]

    def score_arrays(
        self, source_ids: ArrayLike, target_ids: ArrayLike, attention: bool
    ) -> list[np.ndarray]:
        """Return the results of `score_ids` and, if requested, of `attention`, from one pass."""
        return self._run(OUTPUTS if attention else OUTPUTS[:2], source_ids, target_ids)

    def _run(
        self, outputs: Sequence[str], source_ids: ArrayLike, target_ids: ArrayLike
    ) -> list[np.ndarray]:
        ids = {
            "source_ids": np.asarray(source_ids, "int32"),
            "target_ids": np.asarray(target_ids, "int32"),
        }
        shapes = [values.shape for values in ids.values()]
        if [len(shape) for shape in shapes] != [2, 2] or shapes[0][0] != shapes[1][0]:
            raise ValueError(
                f"source_ids, target_ids: expected shapes (N, S) and (N, T), got {shapes[0]} and "
                f"{shapes[1]}."
            )
        return self._session.run(outputs, ids)

    def _scored(
        self, sources: Sequence[str], targets: Sequence[str], batch_size: int, attention: bool
    ) -> list[tuple[Any, ...]]:
        from tfk_transformer.inference.token_scoring import score_in_batches, scoring_of_texts

        score = functools.partial(self.score_arrays, attention=attention)
        run = scoring_of_texts(self._tokenizers, score)
        return score_in_batches(sources, targets, batch_size, self.max_length, run)

    @functools.cached_property
    def _tokenizers(self) -> "Tokenizers":
        from tfk_transformer.inference.token_scoring import Tokenizers
        from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

        source = SubwordTokenizer(self._tokenizer_model(SOURCE_TOKENIZER))
        target = SubwordTokenizer(self._tokenizer_model(TARGET_TOKENIZER))
        architecture = required(self.metadata["config"], "architecture", self._path)
        return Tokenizers(source, target, architecture)

    def _tokenizer_model(self, name: str) -> bytes:
        text = self._session.get_modelmeta().custom_metadata_map.get(name, "")
        try:
            model = base64.b64decode(text, validate=True)
        except ValueError:
            model = b""
        if not model:
            raise ValueError(
                f"ONNX: expected a SentencePiece model in base 64 as '{name}' in the metadata of "
                f"{self._path}, got none."
            )
        return model
