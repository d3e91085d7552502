from tfk_transformer.training.history import History

ROWS = [
    {"val_loss": 3.0},
    {"val_loss": 1.5, "val_bleu": 20.0},
    {"val_loss": 1.5},
    {"val_loss": 2.0, "val_bleu": 31.0},
]


def test_ranked_orders_loss_and_bleu():
    assert History("val_loss", ROWS).ranked() == [1, 2, 3, 0]
    assert History("val_bleu", ROWS).ranked() == [3, 1]


def test_epochs_to_average_last_or_best():
    history = History("val_loss", ROWS)
    assert history.epochs_to_average(2, best=False) == [2, 3]
    assert history.epochs_to_average(3, best=True) == [1, 2, 3]
    assert history.epochs_to_average(9, best=False) == [0, 1, 2, 3]
    assert History().epochs_to_average(2, best=False) == []


def test_stale_after_patience_epochs():
    history = History("val_loss", ROWS)
    assert [history.stale(patience) for patience in (1, 2, 3, None)] == [True, True, False, False]
    assert not History("val_bleu", ROWS).stale(1)
    assert not History("val_loss", [{"loss": 1.0}] * 5).stale(1)


def test_columns_fill_missing_epochs():
    assert History("val_loss", ROWS).columns() == {
        "val_loss": [3.0, 1.5, 1.5, 2.0],
        "val_bleu": [None, 20.0, None, 31.0],
    }
