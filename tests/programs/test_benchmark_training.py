"""The parts of benchmarks/training.py; those that need JAX, PyTorch or keras-hub skip where these
are not installed.
"""

import importlib.util
import json
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
from forked_programs import run_program
from number_files import write_number_files

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import training  # noqa: E402
from engines.process import EngineSpec  # noqa: E402
from trainers.counts import model_flops, padding_share, target_tokens, training_bytes, weights  # noqa: E402
from trainers.data import random_batches, real_epoch, spread  # noqa: E402
from trainers.report import Report  # noqa: E402
from trainers.task import Batch, Sizes, Task, read_task, write_task  # noqa: E402
from trainers.trial import Case, Measured, Options, Timed, measure  # noqa: E402

SIZES = Sizes(
    model_dim=8, ff_dim=12, num_heads=2, encoder_layers=1, decoder_layers=2, vocab_size=23
)
# 23 embeddings of 8; four, and eight in a decoder layer, projections of 8 by 8; feed-forward with
# biases; norms of 16 weights.
PARAMETERS = 23 * 8 + (4 + 2 * 8) * 64 + 3 * (2 * 8 * 12 + 12 + 8) + (2 + 2 * 3 + 2) * 16
OPTIONS = Options(threads=1, rounds=2, product_size=64)


def rows(*lengths, width):
    """Ids of the given lengths, each with an end."""
    return np.array([[*range(4, 3 + n), 2, *[0] * (width - n)] for n in lengths], "int32")


def batch(source, labels, width):
    labels = rows(*labels, width=width)
    return Batch(
        rows(*source, width=width),
        np.concatenate([np.ones_like(labels[:, :1]), labels[:, :-1]], axis=1),
        labels,
    )


BATCHES = [batch((3, 5), (2, 4), 5), batch((7, 2, 1), (6, 6, 1), 8)]


def case(dtype="float32"):
    return Case("tiny", 23, 16, Task(SIZES, BATCHES, dtype, learning_rate=1e-2))


def measure_one(module, options, tmp_path, dtype="float32"):
    found = measure(
        case(dtype),
        [EngineSpec("it", module, Path(), options)],
        OPTIONS,
        tmp_path / "task",
        pytest.fail,
    )
    return found.engines["it"]


def check(timed, parameters=PARAMETERS):
    """It has the model's size, starts near the loss of guessing and learns, and all its figures are
    there.
    """
    assert timed.parameters == parameters
    assert timed.loss < 3.6
    assert timed.device_megabytes is None
    assert len(timed.seconds) == len(timed.rates) == 2
    assert min(timed.seconds + timed.rates) > 0
    assert timed.first_seconds > 0
    assert timed.peak_megabytes > 50


def test_model_flops_by_hand():
    sizes = Sizes(
        model_dim=2, ff_dim=3, num_heads=1, encoder_layers=1, decoder_layers=2, vocab_size=5
    )
    pair = batch((3,), (2,), 6)
    source = 3 * ((4 * 4 + 2 * 6) + 2 * 8)  # its own layer; keys and values for two decoder layers
    # Self-attention, query and output of the other, feed-forward; the vocabulary.
    target = 2 * (2 * (4 * 4 + 2 * 4 + 2 * 6) + 2 * 5)
    attention = 2 * 2 * 9 + 2 * (2 * 2 * 4 + 2 * 2 * 6)
    assert model_flops(sizes, [pair]) == 6 * (source + target + attention)
    assert model_flops(sizes, [pair, pair]) == 2 * model_flops(sizes, [pair])


def test_padding_counts_no_flops():
    wide = Batch(*(np.pad(ids, [(0, 2), (0, 3)]) for ids in BATCHES[1]))
    assert model_flops(SIZES, [wide]) == model_flops(SIZES, BATCHES[1:])
    assert target_tokens(BATCHES) == 2 + 4 + 6 + 6 + 1
    assert padding_share(BATCHES) == 1 - (8 + 10 + 6 + 13) / (4 * 5 + 6 * 8)
    assert padding_share(BATCHES, "source") == 1 - (8 + 10) / (2 * 5 + 3 * 8)


def test_training_bytes_by_hand():
    sizes = Sizes(
        model_dim=2, ff_dim=3, num_heads=1, encoder_layers=1, decoder_layers=2, vocab_size=5
    )
    assert weights(SIZES) == PARAMETERS
    kept = Batch(np.zeros((7, 11)), np.zeros((7, 13)), np.zeros((7, 13)))
    source, target = 77, 91
    numbers = source * (6 * 2 + 2 * 3 + 11 + 2 * 2 * 2) + target * 2 * (9 * 2 + 2 * 3 + 13 + 11)
    wide = source * (2 * 2 + 11) + target * 2 * (3 * 2 + 13 + 11) + target * 3 * 5
    choices = source * 2 * 2 + target * 2 * 3 * 2
    assert training_bytes(sizes, kept) == 16 * weights(sizes) + 4 * (numbers + wide) + choices
    assert (
        training_bytes(sizes, kept, "bfloat16")
        == 18 * weights(sizes) + 2 * numbers + 4 * wide + choices
    )


PLAN = """
import sys
sys.path.insert(0, sys.argv[1])
from trainers.keras_model import Engine
engine = Engine(sys.argv[2], 1, "jax", "xla")
import jax
model, batch = engine.model, engine._batches[0]
model.optimizer.build(model.trainable_variables)
trained, others = model.trainable_variables, model.non_trainable_variables
variables = trained, others, model.optimizer.variables, model.metrics_variables
state = tuple([variable.value for variable in some] for some in variables)
data = {"source": batch.source, "target": batch.target}, batch.labels
compiled = jax.jit(model.train_step, donate_argnums=0).lower(state, data).compile()
plan = compiled.memory_analysis()
print(plan.argument_size_in_bytes + plan.temp_size_in_bytes, compiled.cost_analysis()["flops"])
"""


# XLA compiles a step of four layers.
@pytest.mark.long
def test_flops_and_memory_near_xla(tmp_path):
    pytest.importorskip("jax")
    sizes = Sizes(
        model_dim=64, ff_dim=256, num_heads=2, encoder_layers=2, decoder_layers=2, vocab_size=500
    )
    full = batch((16,) * 64, (16,) * 64, 16)
    write_task(Task(sizes, [full]), tmp_path / "task")
    run = subprocess.run(
        [sys.executable, "-c", PLAN, BENCHMARKS, tmp_path / "task"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    planned, flops = map(float, run.stdout.split())
    assert 1.0 < planned / training_bytes(sizes, full) < 1.4  # XLA also counts what a moment needs
    assert 1.0 < flops / model_flops(sizes, [full]) < 1.2  # and every operation


def test_task_round_trip(tmp_path):
    task = case("bfloat16").task
    write_task(task, tmp_path / "task")
    found = read_task(tmp_path / "task")
    assert found._replace(batches=None) == task._replace(batches=None)
    assert found.max_length == 8
    for a, b in zip(found.batches, BATCHES, strict=True):
        for ids, expected in zip(a, b, strict=True):
            np.testing.assert_array_equal(ids, expected)


def test_random_batches_are_full():
    batches = random_batches(vocab_size=50, batch_tokens=512, max_length=40, wanted=60)
    lengths = np.concatenate([(b.source != 0).sum(axis=1) for b in batches])
    assert len(batches) == 60
    assert 13 < np.median(lengths) < 17
    assert lengths.max() <= 40
    for b in batches:
        length = b.source.shape[1]
        assert length % 4 == 0
        assert (
            b.source.shape
            == b.target.shape
            == b.labels.shape
            == (
                512 // length,
                length,
            )
        )
        check_rows(b, 50)


def check_rows(b, vocab_size):
    """Every row ends, and a target is its labels after a start."""
    for ids in (b.source, b.labels):
        assert ids.dtype == np.int32
        assert ids.max() < vocab_size
        np.testing.assert_array_equal((ids == 2).sum(axis=1), (ids != 0).any(axis=1))
    real = (b.labels != 0).any(axis=1)
    np.testing.assert_array_equal(b.target[real, 0], 1)
    np.testing.assert_array_equal(b.target[:, 1:], np.where(b.labels == 2, 0, b.labels)[:, :-1])


@pytest.mark.parametrize("vocab_size", [80, 9000])
def test_real_epoch_has_every_pair(tmp_path, vocab_size):
    epoch = real_epoch(write_number_files(tmp_path, range(120)), vocab_size, 256, 64)
    assert sum((b.labels == 2).sum() for b in epoch.batches) == 120
    for b in epoch.batches:
        check_rows(b, vocab_size)
    assert (max(b.source.max() for b in epoch.batches) > 1000) == (vocab_size > 1000)
    assert epoch.first_seconds > epoch.seconds > 0
    assert epoch.line().startswith(
        f"An epoch has {len(epoch.batches)} batches; padding is "
        f"{padding_share(epoch.batches):.1%} of their"
    )


def test_spread_covers_all_lengths():
    batches = [batch((width - 1,), (width - 1,), width) for width in range(3, 23)]
    assert sorted(b.labels.shape[1] for b in spread(batches, 4)) == [5, 10, 15, 20]
    assert sorted(b.labels.shape[1] for b in spread(batches, 99)) == list(range(3, 23))


# XLA compiles a program for each shape of a batch. The whole program below measures `fit` with
# TensorFlow.
@pytest.mark.long
def test_our_fit_runs_in_a_process(tmp_path):
    pytest.importorskip("jax")
    check(measure_one("keras_model", ("jax", "xla"), tmp_path, "bfloat16"))


# A process.
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.long)])
def test_torch_trains_same_size_model(tmp_path, dtype):
    pytest.importorskip("torch")
    check(measure_one("torch_steps", ("eager",), tmp_path, dtype))


def test_torch_gives_our_logits(tmp_path):
    torch = pytest.importorskip("torch")
    from trainers.keras_model import Engine
    from trainers.torch_steps import Seq2Seq

    ours = Engine.make_model(None, case().task, "float32")
    theirs = Seq2Seq(SIZES, 0.1, 8).eval()
    theirs.load_state_dict(
        {name: torch.from_numpy(array) for name, array in torch_weights(ours).items()}
    )
    for b in BATCHES:
        expected = np.array(ours({"source": b.source, "target": b.target}))
        found = (
            theirs(*(torch.from_numpy(ids).long() for ids in (b.source, b.target))).detach().numpy()
        )
        real = b.labels != 0
        np.testing.assert_allclose(found[real], expected[real], atol=1e-4)


def torch_weights(model):
    """Our weights under the names and in the layouts of `nn.Transformer`."""
    names = {name: np.asarray(weight) for name, weight in model.named_weights.items()}
    found = {"table.weight": names["source_embedding/embeddings"]}

    def matrix(name):  # (H, D, K) -> (H*K, D)
        return names[name].transpose(0, 2, 1).reshape(-1, SIZES.model_dim)

    def norm(theirs, ours):
        found[f"{theirs}.weight"], found[f"{theirs}.bias"] = (
            names[f"{ours}/gamma"],
            names[f"{ours}/beta"],
        )

    def attention(theirs, ours):
        found[f"{theirs}.in_proj_weight"] = np.concatenate(
            [matrix(f"{ours}/{role}") for role in ("query", "key", "value")]
        )
        found[f"{theirs}.out_proj.weight"] = names[f"{ours}/output"].T

    kinds = {
        "encoder": [("attention", "attention_residual", "self_attn")],
        "decoder": [
            ("self_attention", "self_residual", "self_attn"),
            ("cross_attention", "cross_residual", "multihead_attn"),
        ],
    }
    for stack, attentions in kinds.items():
        norm(f"transformer.{stack}.norm", f"{stack}/final_norm")
        for i in range(getattr(SIZES, f"{stack}_layers")):
            theirs, ours = f"transformer.{stack}.layers.{i}", f"{stack}/layer_{i}"
            for place, (name, residual, other) in enumerate(attentions, start=1):
                attention(f"{theirs}.{other}", f"{ours}/{name}")
                norm(f"{theirs}.norm{place}", f"{ours}/{residual}/norm")
            norm(f"{theirs}.norm{len(attentions) + 1}", f"{ours}/ff_residual/norm")
            for name, other in (("inner", "linear1"), ("outer", "linear2")):
                found[f"{theirs}.{other}.weight"] = names[f"{ours}/feed_forward/{name}/kernel"].T
                found[f"{theirs}.{other}.bias"] = names[f"{ours}/feed_forward/{name}/bias"]
    return found


def test_keras_hub_masks_attention(tmp_path):
    pytest.importorskip("keras_hub")
    from trainers.keras_hub_model import Engine

    model = Engine.make_model(None, case().task, "float32")
    source, target, _ = BATCHES[0]
    expected = np.array(model({"source": source, "target": target}))
    wide = {
        "source": np.pad(source, [(0, 0), (0, 4)]),
        "target": np.where(np.arange(5) == 4, 9, target),
    }
    found = np.array(model(wide))
    np.testing.assert_allclose(found[:, :4], expected[:, :4], atol=1e-5)
    assert np.abs(found[:, 4] - expected[:, 4]).max() > 1e-3


def test_keras_hub_trains_with_biases(tmp_path):
    if importlib.util.find_spec("keras_hub") is None:
        pytest.skip("keras-hub is not installed: pip install -e .[bench]")
    check(
        measure_one("keras_hub_model", ("tensorflow", "plain"), tmp_path),
        PARAMETERS + (4 + 2 * 8) * 8,
    )


def test_keras_loss_equals_ours():
    pytest.importorskip("keras_hub")
    from trainers.keras_hub_model import Engine

    task, logits = (
        case().task,
        np.random.default_rng(0)
        .normal(size=(*BATCHES[0].labels.shape, SIZES.vocab_size))
        .astype("float32"),
    )
    engine = Engine.__new__(Engine)
    engine._loss = "keras"
    theirs = engine.make_loss(task)(BATCHES[0].labels, logits)
    engine._loss = "ours"
    assert float(theirs) == pytest.approx(
        float(engine.make_loss(task)(BATCHES[0].labels, logits)), rel=1e-5
    )


def test_missing_engines_are_left_out(tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)  # Python, and nothing else
    spec = EngineSpec(
        "PyTorch eager",
        "torch_steps",
        Path(),
        ("eager",),
        str(tmp_path / "bare" / "bin" / "python"),
    )
    said = []
    with pytest.raises(ValueError, match="engines: expected at least one that runs here, got none"):
        measure(
            case(),
            [spec, spec._replace(name="other")],
            OPTIONS._replace(at_once=1),
            tmp_path / "task",
            said.append,
        )
    assert said == [
        f"Left out: {name}: ModuleNotFoundError: No module named 'numpy'"
        for name in ("PyTorch eager", "other")
    ]


def timed(seconds, rates, device=None):
    return Timed("v1", 9.0, seconds, rates, 1234, 3.25, 99.6, device)


def test_report_speeds_and_shares(tmp_path):
    engines = {
        "fit": timed([2.0, 4.0, 3.0], [1e9, 2e9, 2e9]),
        "PyTorch eager": timed([8.0, 6.0, 6.0], [3e9, 5e9, 4e9]),
        "PyTorch compiled": timed([4.0, 4.0, 9.0], [2e9, 2e9, 2e9], device=7.0),
    }
    measured = Measured("small", 8000, 4096, 2, 600, 6_000_000_000, 0.125, engines)
    report = Report(["one condition"], [measured])
    assert measured.machine_rate() == 4e9  # of the fastest library, by its median
    assert report.speeds()[1:] == [
        # Medians 3, 6 and 4 s; the rounds' ratios to the compiled one 2, 1, 3 and 0.5, 2/3, 1.5; 6
        # GFLOP of 4 GFLOP/s are 1.5 s.
        ["small", "8,000", "4,096", "fit", "200", "2.00", "", "1.5", "100", "50.0%", "12.5%"],
        [
            "small",
            "8,000",
            "4,096",
            "PyTorch eager",
            "100",
            "0.67",
            "",
            "3",
            "100",
            "25.0%",
            "12.5%",
        ],
        [
            "small",
            "8,000",
            "4,096",
            "PyTorch compiled",
            "150",
            "1.00",
            "",
            "2",
            "100 + 7",
            "37.5%",
            "12.5%",
        ],
    ]
    assert report.needs()[2] == [
        "small",
        "8,000",
        "4,096",
        "PyTorch eager",
        "v1",
        "1,234",
        "9.0",
        "4",
        "3.250",
    ]
    report.write_json(tmp_path / "tables.json")
    content = json.loads((tmp_path / "tables.json").read_text())
    assert [row["ratio_to_PyTorch"] for row in content["rows"]] == [2.0, 6 / 9, 1.0]
    assert [row["share_of_products"] for row in content["rows"]] == [0.5, 0.25, 0.375]
    assert content["rows"][0]["ratio_to_keras-hub"] is None
    report.write_markdown(tmp_path / "tables.md")
    assert (
        "| small | 8,000 | 4,096 | fit | 200 | 2.00 |  | 1.5 | 100 | 50.0% | 12.5% |"
        in (tmp_path / "tables.md").read_text()
    )


# The whole program: an epoch of real pairs, and an engine in a process of its own.
@pytest.mark.long
def test_script_measures_real_pairs(tmp_path, capsys):
    spec = write_number_files(tmp_path, range(60))
    small = (
        "--batch-tokens",
        "64",
        "--max-length",
        "32",
        "--vocabulary",
        "80",
        "--steps",
        "2",
        "--repeats",
        "1",
        "--product-size",
        "64",
    )
    left = [
        word
        for name in ("fit, TensorFlow ", "fit, JAX", "keras-hub", "our loss", "PyTorch")
        for word in ("--without", name)
    ]
    training.main(["--data", spec, *small, *left, "--json", str(tmp_path / "out.json")])
    content = json.loads((tmp_path / "out.json").read_text())
    (row,) = content["rows"]
    assert (row["engine"], row["model"], row["steps"], row["ratio_to_PyTorch"]) == (
        "fit, TensorFlow",
        "small",
        2,
        None,
    )
    assert any(
        "padding is" in line and "of a step of 'fit, TensorFlow'" in line
        for line in content["conditions"]
    )
    assert "fit, TensorFlow" in (out := capsys.readouterr().out)
    assert "share of products" in out


def test_script_error_is_one_line():
    command = [sys.executable, BENCHMARKS / "training.py", "--random", "--batch-tokens", "64"]
    done = run_program(command)
    assert done.returncode == 1
    assert done.stdout == ""
    assert (
        done.stderr == "training.py: --batch-tokens: expected at least --max-length 128, got 64.\n"
    )
