"""Warm-up requests: what TensorFlow Serving runs before it answers, so that the first user does not wait."""

from collections.abc import Iterator
from pathlib import Path

WARM_UP = Path("assets.extra") / "tf_serving_warmup_requests"  # where TensorFlow Serving looks, in a SavedModel's folder
BATCH_SIZES = (1, 8)


def write_warm_up(folder, signatures: dict, texts: list[str]) -> None:
    """Write warm-up requests into the folder of a SavedModel.

    Only signatures that take texts alone have some: a server that joins requests into batches refuses scalars, and a model
    whose warm-up fails is not served.

    Args:
        folder: of the SavedModel.
        signatures: what it has, of `signatures`.
        texts: to ask for.
    """
    import tensorflow as tf

    path = Path(folder) / WARM_UP
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as file:
        for log in _requests(signatures, texts):
            file.write(log.SerializeToString())


def _requests(signatures: dict, texts: list[str]) -> Iterator:
    """Yield a PredictionLog for each signature and batch size."""
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
