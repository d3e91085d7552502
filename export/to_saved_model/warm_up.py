"""Warm-up requests, which TensorFlow Serving runs before it answers the first request."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfk_transformer.export.signatures import Signature

if TYPE_CHECKING:
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

# The path that TensorFlow Serving reads, in the folder of a SavedModel.
WARM_UP = Path("assets.extra") / "tf_serving_warmup_requests"
BATCH_SIZES = (1, 8)


def write_warm_up(
    folder: str | os.PathLike[str], signatures: Mapping[str, Signature], texts: Sequence[str]
) -> None:
    """Write warm-up requests into the folder of a SavedModel.

    Only signatures whose inputs are all texts get requests. A server with batching refuses scalars,
    and a server does not serve a model whose warm-up fails.

    Args:
        folder: folder of the SavedModel.
        signatures: the signatures of the SavedModel by name.
        texts: texts of the requests.
    """
    import tensorflow as tf

    path = Path(folder) / WARM_UP
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for log in _requests(signatures, texts):
            file.write(log.SerializeToString())


def _requests(
    signatures: Mapping[str, Signature], texts: Sequence[str]
) -> "Iterator[PredictionLog]":
    """Yield a request for each signature and batch size."""
    import tensorflow as tf
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    for name, signature in signatures.items():
        if any((tensor.dtype, len(tensor.shape)) != ("string", 1) for tensor in signature.inputs):
            continue
        for size in BATCH_SIZES:
            log = PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            for tensor in signature.inputs:
                request.inputs[tensor.name].CopyFrom(tf.make_tensor_proto(texts[:size], tf.string))
            yield log
