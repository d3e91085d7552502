from tfk_transformer.training.callbacks import History

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


SHORT = [{"val_loss": loss, "val_bleu": 0.0} for loss in (4.35, 3.9, 3.7, 3.54)]
NOTE = (
    "BLEU is 0.00 in every epoch (it is always 0 for targets of fewer than four words), so the "
    "validation loss decides"
)


def test_equal_bleu_is_decided_by_loss():
    history = History("val_bleu", SHORT)
    assert history.ranked() == [3, 2, 1, 0]
    assert history.epochs_to_average(2, best=True) == [2, 3]
    assert not history.stale(1)
    assert history.undecided() == NOTE
    assert history.summary(5).endswith(", best loss 3.540 after epoch 4")
    assert History("val_bleu", [*SHORT, {"val_loss": 3.6, "val_bleu": 0.0}]).stale(1)


def test_bleu_decides_where_it_differs():
    history = History("val_bleu", [*SHORT, {"val_loss": 5.0, "val_bleu": 2.0}])
    assert history.ranked()[:2] == [4, 3]
    assert history.undecided() is None
    assert history.summary(5).endswith(", best bleu 2.000 after epoch 5")


def test_undecided_needs_several_epochs():
    assert History("val_bleu", SHORT[:1]).undecided() is None
    assert History("val_loss", SHORT).undecided() is None
    full = [{"val_loss": loss, "val_bleu": 100.0} for loss in (0.2, 0.1)]
    expected = "BLEU is 100.00 in every epoch, so the validation loss decides"
    assert History("val_bleu", full).undecided() == expected


def test_nan_loss_is_never_best():
    rows = [{"val_loss": float("nan")}, {"val_loss": 3.0}, {"val_loss": 2.0}]
    assert History("val_loss", rows).ranked() == [2, 1, 0]
