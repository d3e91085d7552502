"""Modules of PyTorch: logits against the modules themselves, and what is refused."""

import numpy as np
import pytest
import safetensors.numpy  # noqa: F401 (before torch)

torch = pytest.importorskip("torch")
import pytorch_modules as modules  # noqa: E402 (which needs torch)

import tfk_transformer as tfk  # noqa: E402
from tfk_transformer.constants import END_ID, START_ID  # noqa: E402

TORCHTEXT = {"unknown": 0, "pad": 1, "start": 2, "end": 3}
HARVARD = {"start": 0, "end": 1, "pad": 2, "unknown": 3}
CASES = {
    "torch": ("torch", modules.TorchModel, {}, TORCHTEXT, {}),
    "torch, pre-norm, gelu": (
        "torch",
        lambda: modules.TorchModel(norm_first=True, activation="gelu"),
        {"norm": "pre", "ff_activation": "gelu"},
        TORCHTEXT,
        {},
    ),
    "torch, other names": (
        "torch",
        lambda: modules.TorchModel(("encoder_embedding", "decoder_embedding", "fc_out")),
        {},
        TORCHTEXT,
        {},
    ),
    "annotated": ("annotated", modules.AnnotatedModel, {}, HARVARD, {}),
    "seq2seq": ("seq2seq", modules.TutorialModel, {}, TORCHTEXT, {}),
    "seq2seq, other ids": (
        "seq2seq",
        modules.TutorialModel,
        {},
        HARVARD | {"unknown": 7},
        {"special_ids": HARVARD | {"unknown": 7}},
    ),
}


def rows_by_id(ids, size):
    """The module's rows in the order of this library's ids."""
    first = [ids[name] for name in ("pad", "start", "end", "unknown")]
    return np.array(first + [row for row in range(size) if row not in first])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_logits_equal_the_module(case):
    layout, make, options, ids, passed = case
    module = modules.with_random_weights(make())
    model = tfk.from_pytorch(
        module.state_dict(), layout, num_heads=modules.H, **passed, **options
    )
    random = np.random.default_rng(1)
    source, target = random.integers(4, 19, (3, 7)), random.integers(4, 19, (3, 5))
    rows = [rows_by_id(ids, size) for size in (modules.S_VOCAB, modules.T_VOCAB)]
    start, end = (np.full((3, 1), row) for row in (START_ID, END_ID))
    # The module's sources have a start token, which the model adds itself.
    theirs = module(
        torch.tensor(rows[0][np.hstack([start, source, end])]),
        torch.tensor(rows[1][np.hstack([start, target])]),
    )
    actual = model({"source": np.hstack([source, end]), "target": np.hstack([start, target])})
    expected = theirs.detach().numpy()[:, :, rows[1]]
    np.testing.assert_allclose(np.array(actual), expected, atol=1e-4)
