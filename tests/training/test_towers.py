import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from forked_programs import run_program
from number_files import write_number_files

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.metrics import Perplexity, TokenAccuracy
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.training.towers import MATMUL, fit_in_towers, register_matmul_gradient

# The same ids serve as source, target and labels, of which `fit` warns.
pytestmark = pytest.mark.filterwarnings("ignore:(target|labels). expected")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CONFIG = TransformerConfig(
    source_vocab_size=20,
    target_vocab_size=20,
    model_dim=8,
    ff_dim=8,
    num_heads=2,
    encoder_layers=1,
    decoder_layers=1,
    dropout=0.0,
)


def batch(rows, seed):
    """Return ids of uneven lengths, so that halves have not the same number of tokens."""
    random = np.random.default_rng(seed)
    ids = random.integers(3, 20, (rows, 6))
    ids[np.arange(6) >= random.integers(1, 7, (rows, 1))] = 0
    return {"source": ids, "target": ids}, ids


def made(towers, dropout=0.0, consistency=0.0):
    """Return a compiled model that computes its batches in this many towers."""
    keras.utils.set_random_seed(3)
    model = Transformer(CONFIG.replace(dropout=dropout))
    model.build()
    optimizer = keras.optimizers.Adam(1e-2, global_clipnorm=0.5)
    loss = LabelSmoothedCrossentropy(0.1, consistency=consistency)
    # A single tower is only the reference, and may run eagerly; several are traced.
    step = {"jit_compile": False, "run_eagerly": towers == 1}
    model.compile(optimizer, loss, metrics=[TokenAccuracy(), Perplexity()], **step)
    # As `train` does: TensorFlow traces the first step twice if it makes variables.
    model.optimizer.build(model.trainable_variables)
    fit_in_towers(model, towers)
    return model


def fitted(towers, batches, consistency=0.0):
    """Return the weights after these batches, and the figures of each batch.

    The numbers of rows and of tokens are unknown to `fit`, which traces one step for all batches.
    An epoch is a batch, so that each has figures of its own.
    """
    model = made(towers, consistency=consistency)
    ids = tf.TensorSpec([None, None], tf.int64)
    shapes = {"source": ids, "target": ids}, ids
    data = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=shapes)
    steps = {"epochs": len(batches), "steps_per_epoch": 1}
    history = model.fit(data, **steps, shuffle=False, verbose=0).history
    return model.get_weights(), history


# Numbers of rows that two and three towers cannot divide, fewer rows than towers, and only padding.
ROWS = (7, 8, 5)
PADDING = batch(4, 0)
PADDING[1][:] = 0
BATCHES = [*(batch(rows, seed) for seed, rows in enumerate(ROWS)), batch(1, 1), PADDING]


def pairs_of_rows():
    """Return batches of pairs of equal rows, whose sources differ, as dropout makes them differ."""
    batches = []
    for seed, rows in enumerate((6, 10, 2)):
        targets = np.repeat(batch(rows // 2, seed)[1], 2, axis=0)
        batches.append(({"source": batch(rows, seed + 3)[1], "target": targets}, targets))
    return batches


@pytest.fixture(scope="module")
def plain():
    """What one tower learns."""
    return fitted(1, BATCHES)


# Each traces a step. test_backends.py has a step of two towers in the short tests.
@pytest.fixture(scope="module", params=[pytest.param(n, marks=pytest.mark.long) for n in (2, 3)])
def parted(request):
    """What several towers learn."""
    return fitted(request.param, BATCHES)


@pytest.fixture(scope="module")
def plain_pairs():
    """What one tower learns from pairs of rows."""
    return fitted(1, pairs_of_rows(), consistency=20.0)


def assert_same_weights(weights, others):
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_towers_learn_same_weights(plain, parted):
    (weights, figures), (other_weights, others) = plain, parted
    assert set(figures) == set(others) == {"loss", "accuracy", "perplexity"}
    whole = len(ROWS)
    for name in figures:
        np.testing.assert_allclose(others[name][:whole], figures[name][:whole], rtol=1e-4)
    assert_same_weights(weights, other_weights)


def test_towers_take_small_batches(plain, parted):
    (weights, figures), (other_weights, others) = plain, parted
    np.testing.assert_allclose(others["loss"], figures["loss"], rtol=1e-4)
    assert len(figures["loss"]) == len(ROWS) + 2
    assert figures["loss"][-1] == 0
    assert_same_weights(weights, other_weights)


# Traces three steps; test_towers_learn_same_weights has the other rows.
@pytest.mark.long
@pytest.mark.parametrize("towers", [2, 3])
def test_towers_keep_row_pairs(plain_pairs, towers):
    weights, figures = plain_pairs
    other_weights, others = fitted(towers, pairs_of_rows(), consistency=20.0)
    np.testing.assert_allclose(others["loss"], figures["loss"], rtol=1e-4)
    assert_same_weights(weights, other_weights)


@pytest.mark.parametrize(
    "loss",
    [
        LabelSmoothedCrossentropy(0.1, reduction="sum"),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, name="crossentropy"),
    ],
    ids=["sum", "of Keras"],
)
def test_other_losses_are_refused(loss):
    model = made(2)
    model.compile(model.optimizer, loss, jit_compile=False)
    message = "expected a LabelSmoothedCrossentropy that averages, got the loss 'crossentropy'"
    with pytest.raises(ValueError, match=message):
        model.fit(*batch(4, 0), verbose=0)


@pytest.mark.long  # traces a step of two towers
def test_dropout_differs_between_towers():
    ids = np.tile(batch(1, 5)[1], (4, 1))
    model = made(2, dropout=0.5)
    halves = []
    loss = model.compute_loss
    model.compute_loss = lambda *args, **options: halves.append(args[2]) or loss(*args, **options)

    @tf.function
    def logits(ids):
        model.train_step(({"source": ids, "target": ids}, ids))
        return halves

    one, other = logits(tf.constant(ids))
    assert np.abs(one.numpy() - other.numpy()).max() > 1e-3


def test_eager_model_is_refused():
    model = made(2)
    model.compile(model.optimizer, model.loss, run_eagerly=True)
    with pytest.raises(ValueError, match="got one that runs eagerly"):
        model.fit(*batch(4, 0), verbose=0)


@pytest.mark.parametrize(
    "across", [(False, False), (True, False), (False, True), (True, True)], ids=str
)
@pytest.mark.parametrize("width", [8, 1024])
def test_matmul_gradients_are_unchanged(width, across):
    random = np.random.default_rng(0)
    shapes = [
        shape[::-1] if turned else shape
        for shape, turned in zip([(5, 1024), (1024, width)], across, strict=True)
    ]
    *factors, upstream = (
        tf.constant(random.normal(size=shape), "float32") for shape in [*shapes, (5, width)]
    )
    register_matmul_gradient()

    @tf.function
    def gradients(name):
        with tf.compat.v1.get_default_graph().gradient_override_map({"MatMul": name}):
            product = tf.matmul(*factors, transpose_a=across[0], transpose_b=across[1])
        return tf.gradients(product, factors, upstream)

    for one, other in zip(gradients(MATMUL), gradients("MatMul"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.long  # traces a step of two towers
def test_gradients_avoid_page_strides():
    model = Transformer(CONFIG.replace(ff_dim=1024))
    model.build()
    model.compile(keras.optimizers.Adam(1e-2), LabelSmoothedCrossentropy(0.1), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    fit_in_towers(model, 2)
    graph = tf.function(model.train_step).get_concrete_function(batch(4, 0)).graph
    read = [
        operation.inputs
        for operation in graph.get_operations()
        if operation.type == "MatMul" and operation.get_attr("transpose_a")
    ]
    widths = {rows.shape[1] for factors in read for rows in factors}
    assert 1040 in widths
    assert 1024 not in widths


def threads_after(code, **environment):
    """Return towers and threads that another process has after `code`; TensorFlow has not started
    in it.
    """
    script = (
        f"{code}\nimport json\nfrom tfk_transformer.training.towers import "
        "share_processors\ntowers = share_processors()\n"
    )
    script += (
        "import tensorflow as tf\nt = tf.config.threading\nwithin, between = "
        "t.get_intra_op_parallelism_threads(), "
    )
    script += "t.get_inter_op_parallelism_threads()\nprint(json.dumps([towers, within, between]))"
    run = run_program([sys.executable, "-c", script], env={**os.environ, **environment})
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_two_towers_share_processors():
    code = "import os\nos.sched_getaffinity = lambda process: set(range(6))"
    assert threads_after(code) == [2, 3, 2]


TWO = "import os\nos.sched_getaffinity = lambda process: {0, 1}\nimport tensorflow as tf\n"


@pytest.mark.parametrize(
    ("code", "threads"),
    [
        ("import os\nos.sched_getaffinity = lambda process: {0}", [0, 0]),
        (TWO + "tf.config.threading.set_intra_op_parallelism_threads(5)", [5, 0]),
        (TWO + "tf.zeros(1)", [0, 0]),
        (
            TWO + "cpu = tf.config.list_physical_devices('CPU')[0]\n"
            "tf.config.set_logical_device_configuration(cpu, "
            "[tf.config.LogicalDeviceConfiguration()] * 2)",
            [0, 0],
        ),
    ],
    ids=["one processor", "chosen before", "started", "devices"],
)
def test_threads_stay_unchanged(code, threads):
    assert threads_after(code) == [1, *threads]


def without_allocator():
    """Return the environment without the variables that a training of another test in this process
    has set.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("TF_CPU_")}


# Sums of rows of many lengths: each takes 8 to 16 MB for a moment. TensorFlow starts in the forks.
PAGES = """
import json, os, resource
import tensorflow as tf
import tfk_transformer as tfk
from tfk_transformer.training.towers import share_processors

def pages_mapped():
    float(tf.reduce_sum(tf.ones([2_000_000]) + 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    sums = [float(tf.reduce_sum(tf.ones([2_000_000 + 20_000 * size]) + 1)) for size in range(100)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def kept():
    share_processors()
    return pages_mapped()

def kept_by_batches():
    pairs = [("one", "eins"), ("two", "zwei"), ("three", "drei")]
    tokenizer = tfk.SubwordTokenizer.train(sum(pairs, ()), vocab_size=20)
    tfk.TokenBatches(pairs, "train", tokenizer, tokenizer)
    return pages_mapped()

def chosen_before():
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "false"
    return kept()

for measure in (kept, kept_by_batches, pages_mapped, chosen_before):
    process = os.fork()
    if process == 0:
        print(measure(), flush=True)
        os._exit(0)
    os.waitpid(process, 0)
"""


@pytest.mark.skipif(
    shutil.which("cc") is None or platform.machine() != "x86_64",
    reason="needs a C compiler and x86-64",
)
@pytest.mark.parametrize(("given", "expected"), [(None, True), ("0", False)])
def test_onednn_is_on_without_vnni(given, expected):
    code = """
from tfk_transformer.runtime_environment import load_backend
load_backend()
from tensorflow.python.util import _pywrap_util_port
print(_pywrap_util_port.IsMklEnabled())
"""
    environment = {
        name: value for name, value in os.environ.items() if name != "TF_ENABLE_ONEDNN_OPTS"
    }
    environment |= {"TF_ENABLE_ONEDNN_OPTS": given} if given else {}
    without = [sys.executable, str(BENCHMARKS / "without.py"), "avx512"]
    loads, plain = (
        subprocess.run(
            [*without, sys.executable, "-c", lines], capture_output=True, text=True, env=environment
        )
        for lines in (code, code.replace("load_backend()", "import tensorflow"))
    )
    if loads.returncode == 99:
        pytest.skip("needs a processor that can trap CPUID")
    assert (loads.stdout, plain.stdout) == (f"{expected}\n", "False\n"), loads.stderr + plain.stderr


# TensorFlow is imported once, and starts in four forks.
@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="counts pages as Unix does")
def test_tensor_memory_is_kept():
    # oneDNN's operations have an allocator of their own.
    environment = {**without_allocator(), "TF_ENABLE_ONEDNN_OPTS": "0"}
    run = subprocess.run(
        [sys.executable, "-c", PAGES], capture_output=True, text=True, check=True, env=environment
    )
    kept, kept_by_batches, given_back, chosen_before = map(int, run.stdout.splitlines())
    assert kept < given_back / 5
    assert kept_by_batches < given_back / 5
    assert chosen_before > kept * 5


def test_memory_limit_is_total_memory():
    code = (
        "from tfk_transformer import share_processors\nshare_processors()\nimport "
        "os\nprint(os.environ['TF_CPU_BFC_MEM_LIMIT_IN_MB'])"
    )
    run = run_program([sys.executable, "-c", code], env=without_allocator())
    total = re.search(r"MemTotal: *(\d+) kB", Path("/proc/meminfo").read_text())
    assert int(run.stdout) == int(total[1]) // 1024


@pytest.mark.long  # imports JAX and TensorFlow
def test_other_backends_are_unchanged():
    pytest.importorskip("jax")
    assert threads_after("", KERAS_BACKEND="jax") == [1, 0, 0]


@pytest.mark.parametrize(
    ("processors", "towers"),
    # A training each.
    [
        pytest.param(1, True, marks=pytest.mark.long),
        (2, True),
        pytest.param(2, False, marks=pytest.mark.long),
    ],
)
def test_train_uses_towers(tmp_path, processors, towers):
    data = write_number_files(tmp_path, range(60))
    script = f"""
import os
os.sched_getaffinity = lambda process: set(range({processors}))
import functools, keras
from tfk_transformer import Recipe, train
class Tells(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        print("towers", isinstance(self.model.train_step, functools.partial))
sizes = {{"model_dim": 8, "ff_dim": 8, "num_heads": 2, "encoder_layers": 1, "decoder_layers": 1}}
lengths = {{"vocab_size": 60, "batch_tokens": 256, "max_length": 64}}
recipe = Recipe(data={data!r}, options=sizes, epochs=1, warmup_steps=2, **lengths)
train(recipe, {str(tmp_path / "bundle")!r}, callbacks=[Tells()], towers={towers})
"""
    run = run_program([sys.executable, "-c", script])
    assert run.returncode == 0, run.stderr[-2000:]
    assert f"towers {processors > 1 and towers}" in run.stdout
    assert (tmp_path / "bundle" / "history.json").exists()
