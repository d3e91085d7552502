"""The same model made of keras-hub's layers, trained by the same `fit`."""

from trainers.keras_fit import KerasFit


class Engine(KerasFit):
    """The model; keras-hub's attention has biases, whose weights are added.

    Args:
        threads: see `KerasFit`.
        path: see `KerasFit`.
        backend: see `KerasFit`.
        compiler: see `KerasFit`.
        loss: "keras" for one of Keras's own functions, "ours" for this project's.
    """

    def __init__(self, threads: int, path: str, backend: str, compiler: str, loss: str = "keras"):
        self._loss = loss
        super().__init__(threads, path, backend, compiler)
        import keras_hub

        self.version = f"keras-hub {keras_hub.__version__}, {self.version}"

    def make_loss(self, task):
        """Return the same loss by means of Keras, which smooths no labels that are numbers."""
        if self._loss == "ours":
            return super().make_loss(task)
        from keras import ops

        def crossentropy(labels, logits):
            labels, logits = ops.cast(labels, "int32"), ops.cast(logits, "float32")
            true = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
            even = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
            real = ops.cast(labels != 0, "float32")
            return ops.sum(
                ((1 - task.label_smoothing) * true + task.label_smoothing * even) * real
            ) / ops.sum(real)

        return crossentropy

    def make_model(self, task, dtype):
        """Put encoder and decoder layers together as the project's tutorials do, with one table for
        source, target and output.
        """
        import keras
        import keras_hub
        from keras import ops

        keras.config.set_dtype_policy(dtype)
        s, layers = task.sizes, keras_hub.layers
        options = {"dropout": task.dropout, "layer_norm_epsilon": 1e-6, "normalize_first": True}
        normal = keras.initializers.RandomNormal(stddev=s.model_dim**-0.5)
        table = layers.ReversibleEmbedding(s.vocab_size, s.model_dim, embeddings_initializer=normal)
        source, target = (
            keras.Input((None,), dtype="int32", name=name) for name in ("source", "target")
        )
        source_mask = ops.not_equal(source, 0)

        def embed(ids):
            embedded = table(ids) * s.model_dim**0.5
            return keras.layers.Dropout(task.dropout)(
                embedded + layers.SinePositionEncoding()(embedded)
            )

        x = embed(source)
        for _ in range(s.encoder_layers):
            x = layers.TransformerEncoder(s.ff_dim, s.num_heads, **options)(
                x, padding_mask=source_mask
            )
        memory = keras.layers.LayerNormalization(epsilon=1e-6)(x)
        x = embed(target)
        for _ in range(s.decoder_layers):
            # Padding stands at the target's end, where the causal mask hides it.
            x = layers.TransformerDecoder(s.ff_dim, s.num_heads, **options)(
                x, memory, encoder_padding_mask=source_mask
            )
        logits = table(keras.layers.LayerNormalization(epsilon=1e-6)(x), reverse=True)
        model = keras.Model({"source": source, "target": target}, logits)
        _keep_attention_whole(model)
        return model


def _keep_attention_whole(model) -> None:
    """Turn dropout on attention weights off, as in the other engines: only then does Keras take its
    fused attention.
    """
    import keras

    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.MultiHeadAttention):
            layer._dropout = layer._dropout_layer.rate = 0.0
