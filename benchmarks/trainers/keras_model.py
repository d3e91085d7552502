"""This project's `Transformer` and its `fit`."""

from trainers.keras_fit import KerasFit


class Engine(KerasFit):
    """The model of a recipe, with the Adam of a recipe."""

    def make_model(self, task, dtype):
        """Return the model that a recipe of these sizes has."""
        from tfk_transformer.config.model_options import TransformerConfig
        from tfk_transformer.models.transformer import Transformer

        sizes = task.sizes._asdict()
        vocab_size = sizes.pop("vocab_size")
        config = TransformerConfig(
            source_vocab_size=vocab_size,
            target_vocab_size=vocab_size,
            tie_embeddings="all",
            dropout=task.dropout,
            max_length=max(task.max_length, 2),
            **sizes,
        )
        model = Transformer(config, dtype=dtype)
        model.build()
        return model

    def make_optimizer(self, **options):
        """Return the Adam of a recipe."""
        from tfk_transformer.optimizers import Adam

        return Adam(**options)
