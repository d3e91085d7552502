"""The weights of a bundle: written as safetensors, read from it, and never trusted."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tfk_transformer.config.model_options import (
    ClassifierConfig,
    LanguageModelConfig,
    TransformerConfig,
)
from tfk_transformer.models import configured_model
from tfk_transformer.models.registry import make_model
from tfk_transformer.pipelines import weights
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.pipelines.weights import WEIGHTS_FILE, check_sizes, read_weights, write_weights

SAVED = Path(__file__).parents[1] / "saved_files" / "bundle"
SIZES = {"model_dim": 6, "num_heads": 2, "ff_dim": 5, "max_length": 11}
DECODER = {"decoder_layers": 2, **SIZES}
CONFIGS = {
    "encoder_decoder": TransformerConfig(
        source_vocab_size=13, target_vocab_size=17, encoder_layers=3, **DECODER
    ),
    "tied": TransformerConfig(
        source_vocab_size=13,
        target_vocab_size=13,
        encoder_layers=1,
        tie_embeddings="all",
        **DECODER,
    ),
    "options": TransformerConfig(
        source_vocab_size=13,
        target_vocab_size=17,
        encoder_layers=1,
        positions="learned",
        attention_bias=True,
        output_bias=True,
        shared_projections=True,
        **DECODER,
    ),
    "decoder": LanguageModelConfig(vocab_size=19, **DECODER),
    "encoder": ClassifierConfig(vocab_size=19, num_classes=3, encoder_layers=2, **SIZES),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_weights_round_trip(config, tmp_path):
    """And no honest configuration is taken for one that does not fit."""
    model = make_model(config)
    write_weights(model, tmp_path / WEIGHTS_FILE)
    read = read_weights(config, tmp_path / WEIGHTS_FILE)
    assert len(read.named_weights) == len(model.weights)
    for path, weight in model.named_weights.items():
        np.testing.assert_array_equal(read.named_weights[path], weight)


def test_safetensors_reads_the_file(tmp_path):
    model = make_model(CONFIGS["encoder_decoder"])
    write_weights(model, tmp_path / WEIGHTS_FILE)
    arrays = safetensors.numpy.load_file(tmp_path / WEIGHTS_FILE)
    assert sorted(arrays) == sorted(model.named_weights)
    np.testing.assert_array_equal(
        arrays["encoder/layer_2/attention/query"],
        model.named_weights["encoder/layer_2/attention/query"],
    )


@pytest.fixture
def bundle(tmp_path):
    """A copy of a bundle."""
    return shutil.copytree(SAVED, tmp_path / "bundle")


def changed(bundle, **values):
    """Write other values into the configuration of a bundle."""
    path = bundle / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    return bundle


def test_large_headers_are_not_read(bundle):
    with (bundle / WEIGHTS_FILE).open("r+b") as file:
        file.write((10**8).to_bytes(8, "little"))
        file.truncate(3 * 2**30)
    with pytest.raises(
        ValueError,
        match="do not load: expected a header of at most 16,777,216 bytes, got 100,000,000 bytes$",
    ):
        Translator.load(bundle)


def test_few_arrays_are_described(monkeypatch):
    """Each description searches the nearest name: for a million arrays, that took minutes."""
    searched = []
    monkeypatch.setattr(
        configured_model, "nearest", lambda name, names: searched.append(name) or ""
    )
    actual = {f"array_{i}": (3, 5) for i in range(100)}
    problems = configured_model.array_problems({"array": (3, 5)}, actual, most=2)
    assert problems == "no 'array' (3, 5); an unexpected 'array_0' (3, 5).; and 99 more"
    assert searched == ["array_0"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"source_vocab_size": 10**7, "target_vocab_size": 10**7},
            "a table of source_vocab_size by model_dim would have 160,000,000",
        ),
        (
            {"target_vocab_size": 10**9, "tie_embeddings": "none"},
            "a table of target_vocab_size by model_dim would have 16,000,000,000",
        ),
        ({"model_dim": 10**6}, "the feed-forward of all layers would have 48,000,000"),
        (
            {"num_heads": 10**6, "key_dim": 8, "value_dim": 8},
            "the query of all layers would have 256,000,000",
        ),
        (
            {"value_dim": 10**9, "key_dim": 8},
            "the attention output of all layers would have 64,000,000,000",
        ),
        ({"ff_dim": 10**7}, "the feed-forward of all layers would have 320,000,000"),
        ({"encoder_layers": 2000}, "there are 2,001 layers and 35 arrays"),
        ({"decoder_layers": 10**6}, "there are 1,000,001 layers and 35 arrays"),
        (
            {"max_length": 10**7},
            "the positions of max_length 10,000,000 would have 160,000,000 numbers",
        ),
        (
            {"max_length": 10**9, "positions": "learned"},
            "a table of max_length by model_dim would have 16,000,000,000",
        ),
    ],
)
def test_wrong_sizes_are_refused(bundle, values, message):
    with pytest.raises(
        ValueError, match=r"^bundle: the configuration does not fit .*, which has 5,872 weights: "
    ) as refused:
        Translator.load(changed(bundle, **values))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"encoder_layers": 2}, "no 'encoder/layer_1/attention/query' (2, 16, 8)"),
        (
            {"ff_dim": 23},
            "'encoder/layer_0/feed_forward/inner/kernel' of shape (16, 24) for (16, 23)",
        ),
        ({"norm": "post"}, "an unexpected 'encoder/final_norm/gamma' (16,)"),
    ],
)
def test_other_configuration_is_refused(bundle, values, message):
    with pytest.raises(
        ValueError, match="^bundle: expected the weights of its configuration in "
    ) as refused:
        Translator.load(changed(bundle, **values))
    assert message in str(refused.value)


@pytest.mark.parametrize("dtype", ["float64", "int32", "float16"])
def test_wrong_dtype_is_refused(bundle, dtype):
    arrays = safetensors.numpy.load_file(bundle / WEIGHTS_FILE)
    name = sorted(arrays)[0]
    safetensors.numpy.save_file({**arrays, name: arrays[name].astype(dtype)}, bundle / WEIGHTS_FILE)
    with pytest.raises(
        ValueError, match=f"do not load: expected arrays of F32, got .* for '{name}'"
    ):
        Translator.load(bundle)


@pytest.mark.parametrize(
    "header",
    [
        b"\xff" * 8,
        (10**12).to_bytes(8, "little"),
        (2).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (90).to_bytes(8, "little")
        + b'{"x":{"dtype":"F32","shape":[4000000000,4000000000],"data_offsets":[0,4]}}'.ljust(90)
        + b"0000",
    ],
    ids=["length", "longer than the file", "no arrays", "a list", "a shape without its bytes"],
)
def test_false_header_is_refused(bundle, header):
    (bundle / WEIGHTS_FILE).write_bytes(header)
    with pytest.raises(
        ValueError,
        match=r"^bundle: (the weights in .* do not load: |the configuration does not fit )",
    ):
        Translator.load(bundle)


def write_zeros(path, width):
    """Write a file of one array of zeros, which takes no room on the disk."""
    shape = {"dtype": "F32", "shape": [width, width], "data_offsets": [0, 4 * width * width]}
    header = json.dumps({"x": shape}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 4 * width * width)


TOO_LARGE = (
    "bundle: expected enough memory for 100,000,000 weights and positions up to max_length 256, "
    "1.3 GB, got 0.8 GB free"
)


def test_too_large_weights_are_refused(tmp_path, monkeypatch):
    """The file has 400 MB of zeros, and its model would take three times as much."""
    write_zeros(tmp_path / WEIGHTS_FILE, 10**4)
    sizes = {"vocab_size": 10**4, "model_dim": 10**4, "num_heads": 1, "ff_dim": 1}
    config = ClassifierConfig(num_classes=2, encoder_layers=1, **sizes)
    monkeypatch.setattr(weights, "available_memory", lambda: 800e6)
    with pytest.raises(ValueError, match=re.escape(TOO_LARGE)):
        read_weights(config, tmp_path / WEIGHTS_FILE)


@pytest.mark.long  # a process of its own, since its memory is limited
def test_limits_of_a_process_count(tmp_path):
    """The process may take 800 MB more."""
    write_zeros(tmp_path / WEIGHTS_FILE, 10**4)
    code = """
import resource, sys
from pathlib import Path
from tfk_transformer.config.model_options import ClassifierConfig
from tfk_transformer.pipelines.weights import read_weights
sizes = {"vocab_size": 10**4, "model_dim": 10**4, "num_heads": 1, "ff_dim": 1}
config = ClassifierConfig(num_classes=2, encoder_layers=1, **sizes)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 800 * 10**6, resource.RLIM_INFINITY))
try:
    read_weights(config, Path(sys.argv[1]))
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / WEIGHTS_FILE], capture_output=True, text=True
    )
    assert TOO_LARGE in done.stdout, done


@pytest.mark.long  # two processes
def test_flipped_bits_never_crash(bundle):
    """In a process of its own: the bits of 40 places."""
    code = """
import sys
import numpy as np
from pathlib import Path
from tfk_transformer.pipelines import weights
from tfk_transformer.pipelines.translator import Translator
random = np.random.default_rng(7)
path = Path(sys.argv[1])
whole = path.read_bytes()
for index in random.integers(0, min(len(whole), 9000), 40):
    flipped = bytes([whole[index] ^ (1 << random.integers(8))])
    path.write_bytes(whole[:index] + flipped + whole[index + 1:])
    try:
        Translator.load(path.parent)
    except ValueError as error:
        assert str(error).startswith("bundle: "), error
        print("refused")
"""
    command = [sys.executable, "-c", code, bundle / WEIGHTS_FILE]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 5 < len(done.stdout.splitlines()) < 40


def test_check_sizes_accepts_no_attention():
    """A decoder-only model of SSRUs has no attention, whatever the width of heads."""
    sizes = {"model_dim": 6, "num_heads": 3, "key_dim": 1000, "ff_dim": 7, "decoder_layers": 2}
    config = LanguageModelConfig(vocab_size=11, max_length=5, decoder_mixer="ssru", **sizes)
    model = make_model(config)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_weights.items()}
    check_sizes(config, shapes, Path("weights"))


def test_check_sizes_accepts_large_model():
    """Of a model as large as its weights nothing is refused: each part is at most the whole."""
    config = TransformerConfig.preset("base", source_vocab_size=8000, target_vocab_size=8000)
    model = make_model(config)
    check_sizes(
        config,
        {name: tuple(weight.shape) for name, weight in model.named_weights.items()},
        Path("weights"),
    )
