"""The common parts of the Keras engines: the backend, `compile`, and `fit` on the given batches."""

import os

from tfk_transformer.runtime_environment import use_onednn
from trainers.task import Batch, Task, read_task
from trainers.trainer import Trainer


class KerasFit(Trainer):
    """A Keras model trained by its own `fit`.

    The optimizer is an Adam, and there are no metrics beside the loss.

    Args:
        threads: number of threads.
        path: folder of a task.
        backend: of Keras: "tensorflow" or "jax".
        compiler: "xla", "plain", or "towers" for this project's model; JAX has only "xla".
    """

    def __init__(self, threads: int, path: str, backend: str, compiler: str):
        os.environ["KERAS_BACKEND"] = backend
        use_onednn()  # as `train` does
        self._device = (
            _Tensorflow(None if compiler == "towers" else threads)
            if backend == "tensorflow"
            else _Jax()
        )
        import keras

        from tfk_transformer.training.towers import fit_in_towers

        task = read_task(path)
        self._batches, self._dtype = task.batches, task.dtype
        keras.utils.set_random_seed(0)
        self.model = self.make_model(
            task, "mixed_bfloat16" if task.dtype == "bfloat16" else "float32"
        )
        optimizer = self.make_optimizer(
            learning_rate=task.learning_rate,
            beta_2=0.98,
            epsilon=1e-9,
            global_clipnorm=task.clip_norm,
        )
        self.model.compile(optimizer, self.make_loss(task), jit_compile=compiler == "xla")
        fit_in_towers(self.model, self._device.towers)
        self.parameters = self.model.count_params()
        self.version = f"Keras {keras.__version__}, {self._device.version}"
        self.product_size = 8192 if self._device.has_gpu else 2048

    def make_model(self, task: Task, dtype: str):
        """Return the built model, which maps {"source", "target"} to logits."""
        raise NotImplementedError

    def make_loss(self, task: Task):
        """Return the project's loss."""
        from tfk_transformer.losses import LabelSmoothedCrossentropy

        return LabelSmoothedCrossentropy(task.label_smoothing)

    def make_optimizer(self, **options):
        """Return an Adam."""
        import keras

        return keras.optimizers.Adam(**options)

    def train(self, count) -> float:
        """Fit for one epoch of the first `count` batches."""
        history = self.model.fit(
            self._device.dataset(self._batches[:count]), shuffle=False, verbose=0
        )
        self._wait(self.model.trainable_variables[0])
        return history.history["loss"][-1]

    def multiply(self, size: int, count: int) -> None:
        """Multiply by `keras.ops`."""
        import keras

        a = keras.ops.ones((size, size), self._dtype)
        product = a
        for _ in range(count):
            product = keras.ops.matmul(a, a)
        self._wait(product)

    def device_megabytes(self):
        """Return the accelerator's peak memory."""
        return self._device.megabytes() if self._device.has_gpu else None

    def _wait(self, tensor) -> None:
        import keras

        keras.ops.convert_to_numpy(tensor[0, :1])


class _Tensorflow:
    """Set the number of TensorFlow's threads. None: as many towers as the processors allow."""

    def __init__(self, threads: int | None):
        import tensorflow as tf

        from tfk_transformer.training.towers import share_processors

        self.towers = 1 if threads else share_processors()
        if threads:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(threads)
        self.version = f"TensorFlow {tf.__version__}"
        self.has_gpu = bool(tf.config.list_physical_devices("GPU"))

    def dataset(self, batches: list[Batch]):
        """Return batches of unknown shapes, as `TokenBatches` declares them."""
        import tensorflow as tf

        ids = tf.TensorSpec([None, None], tf.int32)

        def rows():
            for batch in batches:
                yield {"source": batch.source, "target": batch.target}, batch.labels

        dataset = tf.data.Dataset.from_generator(
            rows, output_signature=({"source": ids, "target": ids}, ids)
        )
        options = tf.data.Options()
        options.autotune.enabled = False  # an epoch's end would wait for its period
        return (
            dataset.prefetch(2)
            .apply(tf.data.experimental.assert_cardinality(len(batches)))
            .with_options(options)
        )

    def megabytes(self) -> float:
        import tensorflow as tf

        return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**20


class _Jax:
    towers = 1

    def __init__(self):
        import jax

        self.has_gpu = jax.default_backend() != "cpu"
        self.version = f"JAX {jax.__version__}" + (
            f" on {jax.devices()[0].device_kind}" if self.has_gpu else ""
        )

    def dataset(self, batches: list[Batch]):
        """Return batches that need no TensorFlow."""
        import keras

        class Given(keras.utils.PyDataset):
            def __len__(self):
                return len(batches)

            def __getitem__(self, i):
                return {"source": batches[i].source, "target": batches[i].target}, batches[i].labels

        return Given()

    def megabytes(self) -> float:
        import jax

        return jax.devices()[0].memory_stats()["peak_bytes_in_use"] / 2**20
