"""Compute both halves of a batch in parallel on the processors of one machine, under TensorFlow.

TensorFlow divides every operation among all processors, which then wait for the slowest one. A
training step has a thousand operations, most of them short, so that waiting takes much of the time.
Two towers, each on half of the processors, wait less.
"""

import functools
import itertools

import keras

from tfk_transformer.array_types import Tensor
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.models.token_model import TokenModel, forward_pass
from tfk_transformer.runtime_environment import keep_tensor_memory, usable_processors

TOWERS = 2
# Bytes. Addresses that differ by a multiple of this share a few lines of the first-level cache.
MEMORY_PAGE = 4096
CACHE_LINE = 64  # bytes of a cache line
MATMUL = "tfk_transformer.MatMul"  # the gradient of MatMul in a training step


def share_processors() -> int:
    """Divide the processors among towers, and return the number of towers.

    The processors stay undivided and the result is 1 if TensorFlow is not the backend or has
    already started, if there is a GPU or only one processor, if the CPU was divided into several
    devices, or if thread counts were set before.
    """
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    keep_tensor_memory()
    threads = tf.config.threading
    threads_set = (
        threads.get_intra_op_parallelism_threads() or threads.get_inter_op_parallelism_threads()
    )
    processors = usable_processors()
    divided = any(
        len(tf.config.get_logical_device_configuration(device) or ()) > 1
        for device in tf.config.list_physical_devices()
    )
    if threads_set or processors < TOWERS or divided or tf.config.list_physical_devices("GPU"):
        return 1
    try:
        threads.set_intra_op_parallelism_threads(processors // TOWERS)
        threads.set_inter_op_parallelism_threads(TOWERS)
    except RuntimeError:  # TensorFlow has started
        return 1
    return TOWERS


def fit_in_towers(model: keras.Model, towers: int) -> None:
    """Make `fit` compute equal parts of the rows of each batch in parallel, with the same result.

    The model is compiled without XLA, and its loss is a `LabelSmoothedCrossentropy` with a mean as
    its reduction.
    """
    if towers > 1:
        model.train_step = functools.partial(_train_step, model, towers)


def _train_step(model: TokenModel, towers: int, batch: Tensor) -> dict[str, Tensor]:
    """Run a training step like Keras, with one forward pass for each part of the rows."""
    import tensorflow as tf

    if tf.executing_eagerly():
        raise ValueError(
            "fit_in_towers: expected a model whose steps are graphs, got one that runs eagerly; "
            "run it without towers."
        )
    loss_function = model.loss
    if not isinstance(loss_function, LabelSmoothedCrossentropy) or not loss_function.averages:
        raise ValueError(
            "fit_in_towers: expected a LabelSmoothedCrossentropy that averages, got the loss "
            f"{getattr(loss_function, 'name', loss_function)!r}; train such a model without towers."
        )
    data = model.unpack_batch(batch)
    rows = tf.shape(data[1])[0]
    # Pairs of rows stay together: a loss with `consistency` compares them.
    bounds = [*(rows // 2 * tower // towers * 2 for tower in range(towers)), rows]
    parts = [
        keras.tree.map_structure(lambda x, part=slice(*pair): None if x is None else x[part], data)
        for pair in itertools.pairwise(bounds)
    ]
    divisor = loss_function.divisor(*data[1:])
    register_matmul_gradient()
    with tf.compat.v1.get_default_graph().gradient_override_map({"MatMul": MATMUL}):
        outputs = []
        shares = []
        for inputs, labels, weights in parts:
            predictions, part_loss = forward_pass(model, inputs, labels, weights)
            outputs.append(predictions)
            # The loss of the batch is the mean over the parts, weighted by their divisors.
            shares.append(part_loss * loss_function.divisor(labels, weights) / divisor)
        loss = tf.add_n(shares)
        scaled = model.optimizer.scale_loss(loss)
    variables = model.trainable_variables
    # A tape supports only the gradients that TensorFlow registered first.
    gradients = tf.gradients(scaled, [variable.value for variable in variables])
    model.optimizer.apply(gradients, variables)
    loss_mean = next(metric for metric in model.metrics if metric.name == "loss")
    loss_mean.update_state(loss, sample_weight=rows)
    for (inputs, labels, weights), predictions in zip(parts, outputs, strict=True):
        results = model.compute_metrics(inputs, labels, predictions, weights)
    return results


@functools.cache
def register_matmul_gradient() -> None:
    """Register the gradient `MATMUL` with TensorFlow, once."""
    import tensorflow as tf

    @tf.RegisterGradient(MATMUL)
    def matmul_gradient(operation: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of both factors, as TensorFlow's gradient does."""
        left, right = map(tf.math.conj, operation.inputs)
        transpose_left = operation.get_attr("transpose_a")
        transpose_right = operation.get_attr("transpose_b")
        factors = (upstream, left) if transpose_right else (left, upstream)  # of right's gradient
        if transpose_left:
            return (
                tf.matmul(right, upstream, transpose_a=transpose_right, transpose_b=True),
                tf.matmul(*factors, transpose_a=transpose_right, transpose_b=transpose_right),
            )
        left_gradient = tf.matmul(upstream, right, transpose_b=not transpose_right)
        return left_gradient, product_of_columns(*factors)


def product_of_columns(left: Tensor, right: Tensor) -> Tensor:
    """Multiply the columns of two matrices (N, D) and (N, F): (D, F), the gradient of weights.

    Rows whose length is a multiple of a page are padded with zeros. Otherwise the numbers of a
    column share a few cache lines, and oneDNN's kernel for AVX2 takes twice the time.
    """
    import tensorflow as tf

    def pad(rows: Tensor) -> Tensor:
        if rows.shape[1] and rows.shape[1] * rows.dtype.size % MEMORY_PAGE == 0:
            return tf.pad(rows, [[0, 0], [0, CACHE_LINE // rows.dtype.size]])
        return rows

    return tf.matmul(pad(left), pad(right), transpose_a=True)[: left.shape[1], : right.shape[1]]
