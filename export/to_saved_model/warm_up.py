"""Warm-up requests, which TensorFlow Serving runs before it answers the first request."""

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tfk_transformer.inference.signatures import Signature

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
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    path = Path(folder) / WARM_UP
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for (name, signature), size in itertools.product(signatures.items(), BATCH_SIZES):
            specs = ((tensor.dtype, len(tensor.shape)) for tensor in signature.inputs)
            if any(spec != ("string", 1) for spec in specs):
                continue
            log = PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = name
            for tensor in signature.inputs:
                request.inputs[tensor.name].CopyFrom(tf.make_tensor_proto(texts[:size], tf.string))
            file.write(log.SerializeToString())
