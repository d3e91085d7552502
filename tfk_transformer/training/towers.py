"""Compute both halves of a batch in parallel on the processors of one machine, under TensorFlow.

TensorFlow divides every operation among all processors, which then wait for the last of them. A
training step has a thousand operations, most of them short, so that much of its time is waiting.
Two towers, each on half of the processors, wait less. Their gradients of weights are products of
rows that suit the cache, see `product_of_columns`.
"""

import functools

import keras
from keras import ops

from tfk_transformer.array_types import Tensor
from tfk_transformer.losses import real_tokens
from tfk_transformer.runtime_environment import keep_tensor_memory, usable_processors

TOWERS = 2
# Bytes; addresses that differ by a multiple of it share a few lines of the cache nearest to a
# processor.
MEMORY_PAGE = 4096
CACHE_LINE = 64  # bytes of a cache line
MATMUL = "tfk_transformer.MatMul"  # the gradient of MatMul in a training step


def share_processors() -> int:
    """Divide the processors among towers, and return the number of towers; 1 if they were not
    divided.

    They stay undivided if TensorFlow is not the backend or has already started, if there is a GPU
    or only one processor, if the CPU was divided into several devices, or if numbers of threads
    were set before.

    TensorFlow also keeps the memory of tensors from then on; see
    `runtime_environment.keep_tensor_memory`.
    """
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    keep_tensor_memory()
    threads = tf.config.threading
    chosen = (
        threads.get_intra_op_parallelism_threads() or threads.get_inter_op_parallelism_threads()
    )
    processors = usable_processors()
    devices = tf.config.list_physical_devices()
    divided = any(
        len(tf.config.get_logical_device_configuration(device) or ()) > 1 for device in devices
    )
    if chosen or processors < TOWERS or divided or tf.config.list_physical_devices("GPU"):
        return 1
    try:
        threads.set_intra_op_parallelism_threads(processors // TOWERS)
        threads.set_inter_op_parallelism_threads(TOWERS)
    except RuntimeError:  # TensorFlow has started
        return 1
    return TOWERS


def fit_in_towers(model: keras.Model, towers: int) -> None:
    """Make `fit` compute equal parts of the rows of each batch in parallel; the result stays the
    same.

    Args:
        model: a model compiled without XLA, whose loss averages over real tokens, as
            `LabelSmoothedCrossentropy` does.
        towers: number of parts, from `share_processors`; 1 changes nothing.

    `fit` raises a ValueError for batches with sample weights, and for a model that runs eagerly.
    """
    if towers > 1:
        model.train_step = functools.partial(_train_step, model, towers)


def _train_step(model: keras.Model, towers: int, data: Tensor) -> dict[str, Tensor]:
    """Run a training step as Keras does, with one forward pass for each part of the rows."""
    import tensorflow as tf

    inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
    if weights is not None:
        raise ValueError(
            "fit_in_towers: expected batches of inputs and labels, got sample weights too; train "
            "such a model without towers."
        )
    if tf.executing_eagerly():
        raise ValueError(
            "fit_in_towers: expected a model whose steps are graphs, got one that runs eagerly; "
            "run it without towers."
        )
    rows = tf.shape(labels)[0]
    # Rows are kept in pairs, which a loss with `consistency` compares.
    cuts = [*(rows // 2 * tower // towers * 2 for tower in range(towers)), rows]
    parts = [
        tf.nest.map_structure(lambda part, at=at: part[at[0] : at[1]], (inputs, labels))
        for at in zip(cuts, cuts[1:], strict=False)
    ]
    tokens = ops.maximum(ops.sum(real_tokens(labels)), 1.0)
    register_matmul_gradient()
    with tf.compat.v1.get_default_graph().gradient_override_map({"MatMul": MATMUL}):
        predicted, losses = [], []
        for part in parts:
            predicted.append(model(part[0], training=True))
            losses.append(model.compute_loss(*part, predicted[-1], training=True))
        # The mean over the batch is the mean of the parts, weighted by their numbers of tokens.
        loss = tf.add_n(
            [
                loss * ops.sum(real_tokens(some)) / tokens
                for loss, (_, some) in zip(losses, parts, strict=True)
            ]
        )
        scaled = model.optimizer.scale_loss(loss)
    variables = model.trainable_variables
    # A tape knows no gradients but those that TensorFlow registered first.
    model.optimizer.apply(
        tf.gradients(scaled, [variable.value for variable in variables]), variables
    )
    for metric in model.metrics:
        if metric.name == "loss":
            metric.update_state(loss, sample_weight=rows)
            continue
        for (_, some), logits in zip(parts, predicted, strict=True):
            metric.update_state(some, logits)
    return model.get_metrics_result()


@functools.cache
def register_matmul_gradient() -> None:
    """Tell TensorFlow of the gradient `MATMUL`, once."""
    import tensorflow as tf

    tf.RegisterGradient(MATMUL)(_matmul_gradient)


def _matmul_gradient(operation: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of the factors of a product of matrices, the numbers that TensorFlow's
    own gradient returns.
    """
    import tensorflow as tf

    left, right = map(tf.math.conj, operation.inputs)
    left_across, right_across = operation.get_attr("transpose_a"), operation.get_attr("transpose_b")
    of_right = (upstream, left) if right_across else (left, upstream)
    if left_across:
        of_left = tf.matmul(right, upstream, transpose_a=right_across, transpose_b=True)
        return of_left, tf.matmul(*of_right, transpose_a=right_across, transpose_b=right_across)
    return tf.matmul(upstream, right, transpose_b=not right_across), product_of_columns(*of_right)


def product_of_columns(left: Tensor, right: Tensor) -> Tensor:
    """Multiply the columns of two matrices (N, D) and (N, F): (D, F), the gradient of weights.

    Rows whose length is a multiple of a page are made longer, by zeros. Otherwise the numbers of a
    column share a few lines of the cache and push each other out, and oneDNN's kernel for AVX2,
    which reads columns in place if D or F is at most 256, takes twice the time.
    """
    import tensorflow as tf

    width, height = left.shape[1], right.shape[1]
    left, right = (
        tf.pad(rows, [[0, 0], [0, CACHE_LINE // rows.dtype.size]])
        if rows.shape[1] and rows.shape[1] * rows.dtype.size % MEMORY_PAGE == 0
        else rows
        for rows in (left, right)
    )
    return tf.matmul(left, right, transpose_a=True)[:width, :height]
