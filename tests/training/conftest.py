"""A fixture for short training runs."""

import pytest


@pytest.fixture
def eager_steps(monkeypatch):
    """Let `train` run its steps eagerly, since to trace a step takes longer than to run a few."""
    from tfk_transformer.training import trainer

    make = trainer.compiled_model

    def eager_model(*arguments):
        model = make(*arguments)
        model.run_eagerly = True
        return model

    monkeypatch.setattr(trainer, "compiled_model", eager_model)
    monkeypatch.setattr(trainer, "share_processors", lambda: 1)  # towers need a graph
