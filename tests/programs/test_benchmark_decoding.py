"""The parts of benchmarks/decoding.py; those that need CTranslate2 or PyTorch skip where these are
not installed.
"""

import argparse
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forked_programs import run_program
from traced_search import setting_tensors, traced_generate

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.export.exporting import export, with_shortlist
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.search.model_functions import TranslationFunctions

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SAVED = Path(__file__).parents[1] / "saved_files"
sys.path.insert(0, str(BENCHMARKS))

from engines.batches import Search, own_settings, padded_batches, unpadded  # noqa: E402
from engines.process import EngineSpec, RunningEngine  # noqa: E402
from engines.report import Footprint, Report  # noqa: E402
from engines.tasks import natural_task, student_task  # noqa: E402
from engines.trial import Measured, Trial, check_agreement, measure, translations  # noqa: E402
from engines.weights import write_weights  # noqa: E402

SIZES = {
    "model_dim": 12,
    "num_heads": 3,
    "ff_dim": 20,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "max_length": 32,
}
KINDS = {
    "pre-norm, tied, sinusoids": {"tie_embeddings": "all", "attention_scale": "key_dim"},
    "post-norm, biases, learned": {
        "norm": "post",
        "norm_epsilon": 1e-3,
        "positions": "learned",
        "attention_bias": ("key", "value", "output"),
        "scale_embeddings": False,
        "ff_activation": "gelu",
    },
    "halves, tied target": {
        "positions": "sinusoidal_halves",
        "tie_embeddings": "target",
        "ff_activation": "silu",
    },
}
ROWS = [[5, 2], [7, 11, 2], [20, 4, 9, 2], [13, 8, 8, 19, 6, 2]]
GREEDY, BEAM, FORCED = Search(1, 3, 14), Search(4, 3, 14), Search(1, 3, 14, forced=True)


def random_model(**options):
    """A model whose weights are so large that no two tokens come near each other, and that never
    emits padding or start.
    """
    config = TransformerConfig(
        source_vocab_size=23, target_vocab_size=23, output_bias=True, **SIZES, **options
    )
    model = Transformer(config)
    model.build()
    draw = np.random.default_rng(3)
    for name, weight in model.named_weights.items():
        # Small embeddings, or a token would be followed by itself.
        mean, deviation = (
            (1.0, 0.2)
            if name.endswith("gamma")
            else (0.0, 0.2 if weight.ndim == 1 or "embedding" in name else 1.0)
        )
        weight.assign(draw.normal(mean, deviation, weight.shape))
    bias = np.zeros(23)
    bias[:2] = -1e4
    model.named_weights["output/bias"].assign(bias)
    return model


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    return random_model(**KINDS[request.param])


@pytest.fixture(scope="module")
def searched(model):
    """What this project's own search finds, as lists of ids. Each search runs once."""
    generate = traced_generate(TranslationFunctions(model, None, None), prefixes=False)

    @functools.cache
    def find(search):
        limits = setting_tensors(**own_settings(search))
        batches = padded_batches(ROWS, search.batch_size)
        return unpadded([generate(ids, limits).ids.numpy()[:, 0] for ids in batches])

    return find


@pytest.fixture(scope="module")
def weights(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights") / "model"
    write_weights(model, folder)
    return folder


@pytest.mark.parametrize("search", [GREEDY, BEAM, FORCED], ids=["greedy", "beam", "forced"])
def test_ctranslate2_gives_our_ids(model, searched, tmp_path, search):
    pytest.importorskip("ctranslate2")
    from engines.ctranslate2_conversion import convert
    from engines.ctranslate2_model import Engine

    expected = searched(search)
    everything = Shortlist(
        np.arange(23, dtype="int32"), np.zeros((23, 1), "int32"), 23, sentences=1
    )
    for name, shortlist in (("whole", None), ("map", everything)):
        convert(model, tmp_path / name, shortlist=shortlist)
        engine = Engine(str(tmp_path / name), 1, "float32")
        assert engine.has_map == (name == "map")
        assert engine.read(engine.translate(engine.prepare(ROWS), search)) == expected
    assert len({tuple(row) for row in expected}) > 1
    assert {len(row) for row in expected} == {search.max_length} or not search.forced


def test_ctranslate2_int8_translates(translator, tmp_path):
    pytest.importorskip("ctranslate2")
    from engines.ctranslate2_conversion import convert
    from engines.ctranslate2_model import Engine

    convert(translator.model, tmp_path / "converted", "int8")
    engine = Engine(str(tmp_path / "converted"), 1, "int8")
    rows = [
        [*ids, 2]
        for ids in translator.source_tokenizer.encode(
            ["seven", "forty-two", "one hundred ninety-nine"]
        )
    ]
    found = engine.read(engine.translate(engine.prepare(rows), Search(4, 2, 32)))
    assert translator.target_tokenizer.decode(found) == [
        "sieben",
        "zweiundvierzig",
        "einhundertneunundneunzig",
    ]


# Exports twice, and measures three engines at two lengths.
@pytest.mark.long
def test_processor_time_of_each_engine(translator, recipe, tmp_path):
    pytest.importorskip("ctranslate2")
    import processor_time
    from engines.ctranslate2_conversion import convert

    convert(
        translator.model,
        tmp_path / "CTranslate2",
        shortlist=with_shortlist(translator, recipe.data).shortlist,
    )
    export(translator, tmp_path / "files", ["onnx", "onnx_int8"])
    folders = [tmp_path / "CTranslate2"], [tmp_path / "files"]
    lengths = (2, processor_time.TARGET)
    engines = {
        (name, target): engine
        for target in lengths
        for name, engine in processor_time.opened(*folders, target)
    }
    ids = np.array([[*translator.source_tokenizer.encode(["forty-two"])[0], 2]] * 24, "int32")
    (peer,) = engines["CTranslate2 float32", processor_time.TARGET](ids[:1], 4)
    own, _ = engines["files/generate.onnx", processor_time.TARGET](ids[:1], 4)
    assert [int(token) for token in peer.hypotheses[0]] == [
        token for token in own[0, 0].tolist() if token > 2
    ]
    with pytest.raises(
        SystemExit,
        match=r"expected translations of 24 tokens, got \d+ from CTranslate2 float32; use a model",
    ):
        processor_time.check_lengths(engines, ids)
    spent = processor_time.measured(engines, ids)
    assert set(spent) == {
        (engine, column) for engine in engines for column in processor_time.COLUMNS
    }
    assert all(len(times) == processor_time.ROUNDS and min(times) > 0 for times in spent.values())


def test_step_time_is_separated():
    pytest.importorskip("ctranslate2")
    import processor_time

    column = (1, 12, 24)  # beam size, batch size, sentences
    spent = {
        (("files", tokens), column): [(5 + 0.25 * tokens) / 1000 / 12] * 3
        for tokens in processor_time.LENGTHS
    }
    assert processor_time.step_and_rest(spent, "files", column) == "0.25 + 5"
    assert (
        processor_time.sentence(
            {(("files", processor_time.TARGET), column): [0.001, 0.002, 0.004]}, "files", column
        )
        == "2"
    )


@pytest.mark.parametrize("cache", ["cache", "no-cache"])
@pytest.mark.parametrize("search", [GREEDY, FORCED], ids=["greedy", "forced"])
def test_torch_gives_our_ids(searched, weights, search, cache):
    pytest.importorskip("torch")
    from engines.torch_model import Engine

    engine = Engine(str(weights), 1, cache)
    assert engine.read(engine.translate(engine.prepare(ROWS), search)) == searched(search)


def test_unsupported_model_is_refused(tmp_path):
    odd = random_model(key_dim=5, keys_are_values=False, encoder_final_norm=False)
    with pytest.raises(
        ValueError,
        match=(
            "heads of another width than model_dim / num_heads, encoder_final_norm False beside "
            "norm 'pre'"
        ),
    ):
        write_weights(odd, tmp_path / "weights")


@pytest.mark.parametrize("at_once", [1, 2])
def test_engine_process_is_timed(translator, exported, at_once):
    rows = [
        [*ids, 2]
        for ids in translator.source_tokenizer.encode(
            ["seven", "forty-two", "one hundred ninety-nine"]
        )
    ]
    trial = Trial(rows, max_length=32, batches=(1, 2), single=3)
    spec = EngineSpec("ONNX", "onnx_file", exported / "generate.onnx")
    engine = RunningEngine(
        spec.side_by_side(2)._replace(name="ONNX") if at_once == 2 else spec, threads=at_once
    )
    try:
        found = translations(engine, trial)
        measured = measure([engine], {"": trial}, rounds=2)
    finally:
        engine.close()
    assert translator.target_tokenizer.decode(found[1]) == [
        "sieben",
        "zweiundvierzig",
        "einhundertneunundneunzig",
    ]
    assert found[4] == found[1]
    assert engine.peak_megabytes > 10
    assert engine.loaded["load_seconds"] > 0
    assert [
        (row.beam_size, row.batch_size, row.sentences, len(row.seconds["ONNX"])) for row in measured
    ] == [(beam, batch, 3, 2) for beam in (1, 4) for batch in (1, 2)]


def test_student_uses_same_sentences(translator, bundle, exported, tmp_path):
    (tmp_path / "source.txt").write_text("one hundred ninety-nine\nseven\nforty-two\n")
    (tmp_path / "target.txt").write_text("einhundertneunundneunzig\nsieben\nzweiundvierzig\n")
    files = {"source": tmp_path / "source.txt", "reference": tmp_path / "target.txt"}
    given = {
        "bundle": bundle,
        "export": exported,
        "max_length": 24,
        "beam": [1],
        "batch": [1, 2],
        "sentences": 3,
        **files,
    }
    task = natural_task(argparse.Namespace(**given, data=None))
    student = student_task(task, SAVED / "bundle", exported)
    assert task.sources == student.sources == ["seven", "forty-two", "one hundred ninety-nine"]
    assert [
        student.translator.source_tokenizer.decode([row[:-1]]) for row in student.trial.rows
    ] == [[text] for text in task.sources]
    specs = [
        EngineSpec(f"{model}ONNX", "onnx_file", exported / "generate.onnx", model=model)
        for model in ("", "student")
    ]
    engines = [RunningEngine(spec, threads=1) for spec in specs]
    try:
        assert (
            translator.target_tokenizer.decode(translations(engines[0], task.trial)[1])
            == task.references
        )
        measured = measure(
            engines,
            {"": task.trial, "student": student.trial._replace(rows=task.trial.rows)},
            rounds=1,
        )
    finally:
        for engine in engines:
            engine.close()
    assert [(row.batch_size, row.sentences, sorted(row.seconds)) for row in measured] == [
        (batch, 3, ["ONNX", "studentONNX"]) for batch in (1, 2)
    ]
    with pytest.raises(
        ValueError, match="^--student: expected sentences to translate, got --forced"
    ):
        student_task(task._replace(sources=None), bundle, exported)


def test_engine_load_error_is_reported(tmp_path):
    with pytest.raises(
        ValueError,
        match="ONNX: ValueError: ONNX: expected a file, got .*none.onnx, which does not exist",
    ):
        RunningEngine(EngineSpec("ONNX", "onnx_file", tmp_path / "none.onnx"), threads=1)


def test_script_error_is_one_line(bundle):
    done = run_program([sys.executable, BENCHMARKS / "decoding.py", bundle])
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(
        "decoding.py: EXPORT: expected the folder of the bundle's exported files, got none"
    )


def test_disagreeing_peer_is_refused():
    ours = {1: [[5]] * 200, 4: [[6]] * 200}
    check_agreement({1: [[5]] * 198 + [[4]] * 2, 4: ours[4]}, ours, "peer", "ours")
    with pytest.raises(
        ValueError,
        match=r"peer: expected the ids of ours on at least 99% of sentences with beam 4, got 98.5%",
    ):
        check_agreement({1: ours[1], 4: [[6]] * 197 + [[4]] * 3}, ours, "peer", "ours")


def test_report_has_medians_and_ratios(tmp_path):
    rows = [
        Measured(
            1,
            8,
            12,
            {"A float32": [4.0, 2.0, 3.0], "A int8": [1.0, 2.0, 1.5], "B": [2.0, 1.0, 1.0]},
        ),
        Measured(4, 8, 12, {"A float32": [2.0], "A int8": [4.0]}),
    ]
    footprints = [
        Footprint(name, "v1", 0.5, 99.4, 1.25, {1: 1.0}, {1: 30.0})
        for name in ("A float32", "A int8", "B")
    ]
    report = Report(["one condition"], rows, footprints, ["A float32", "A int8"])
    assert report.speeds() == [
        ["engine", "greedy, batch 8", "beam 4, batch 8"],
        ["A float32", "4.0 (0.50 ×)", "6.0 (1.00 ×)"],
        ["A int8", "8.0 (1.00 ×)", "3.0 (0.50 ×)"],
        ["B", "12.0 (1.50 ×)", ""],
    ]
    report.write_markdown(tmp_path / "tables.md")
    lines = (tmp_path / "tables.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "- one condition"
    assert "| B | 12.0 (1.50 ×) |  |" in lines
    assert lines[-1] == "| B | v1 | 0.50 | 99 | 1.2 | 100.0% |  | 30.00 |  |"
    report.write_json(tmp_path / "tables.json")
    content = json.loads((tmp_path / "tables.json").read_text())
    assert [row["ratio"] for row in content["rows"]] == [0.5, 1.0, 1.5, 1.0, 0.5]


@pytest.mark.skipif(
    shutil.which("cc") is None or platform.machine() != "x86_64",
    reason="needs a C compiler and x86-64",
)
@pytest.mark.parametrize(("hidden", "left"), [("avx512", "avx2"), ("vnni", "avx2 and avx512f")])
def test_without_hides_instructions(hidden, left):
    code = """import sys
from engines.report import processor
from numpy._core._multiarray_umath import __cpu_features__
print(__cpu_features__["AVX512F"])
print(processor())
sys.exit(3)"""
    command = [sys.executable, BENCHMARKS / "without.py", hidden, sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    )
    if done.returncode == 99:
        assert done.stderr.startswith("without.py: expected a processor that can trap CPUID")
        assert done.stderr.count("\n") == 1
        pytest.skip("needs a processor that can trap CPUID")
    assert done.returncode == 3, done.stderr
    has_avx512, named = done.stdout.splitlines()
    assert has_avx512 == str(hidden == "vnni" and " avx512f " in Path("/proc/cpuinfo").read_text())
    assert named.endswith(f", of which these programs found {left} only")
