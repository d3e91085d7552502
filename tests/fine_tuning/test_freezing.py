import numpy as np
import pytest

from tfk_transformer.training.fine_tuning import frozen_names

NAMES = """
source_embedding/embeddings
source_positions/table
encoder/layer_0/attention/query
encoder/layer_0/ff_residual/norm/gamma
encoder/layer_1/attention/query
decoder/layer_0/self_attention/query
decoder/final_norm/beta
output/kernel
output/bias
""".split()
WEIGHTS = {name: np.zeros(3, "float32") for name in NAMES}


@pytest.mark.parametrize(
    ("patterns", "places"),
    [
        ([], []),
        (["encoder"], [2, 3, 4]),
        (["embeddings"], [0, 1]),
        (["encoder/layer_0", "output"], [2, 3, 7, 8]),
        (["*/norm/*", "decoder/final_norm/beta"], [3, 6]),
        (["encoder/*"], [2, 3, 4]),
        (["*/query", "encoder"], [2, 3, 4, 5]),
    ],
)
def test_freeze_takes_name_patterns(patterns, places):
    assert frozen_names(patterns, WEIGHTS) == [NAMES[place] for place in places]


def test_masking_output_bias_is_frozen():
    weights = {**WEIGHTS, "output/bias": np.array([0.0, -1e9, 0.5], "float32")}
    assert frozen_names([], weights) == ["output/bias"]
    assert frozen_names(["output"], weights) == ["output/kernel", "output/bias"]


def test_unknown_weights_get_hints():
    with pytest.raises(ValueError) as error:
        frozen_names(["encodr", "encoder", "encoder/layer_3", "embedings", "§"], WEIGHTS)
    assert str(error.value) == (
        "freeze: expected names of weights, such as encoder or encoder/layer_0, got 'encodr'. Did "
        "you mean 'encoder'?; "
        "'encoder/layer_3'. Did you mean 'encoder/layer_1'?; 'embedings'. Did you mean "
        "'embeddings'?; '§'."
    )


def test_one_weight_must_train():
    with pytest.raises(
        ValueError,
        match=(
            r"^freeze: expected at least one weight to train, got none: all 9 are frozen; "
            r"freeze fewer.$"
        ),
    ):
        frozen_names(["*"], WEIGHTS)
