import functools
import gc
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import sacrebleu
import tensorflow as tf
from forked_programs import run_program
from onnx_ir import tape
from onnx_nodes import all_nodes
from random_translators import translator_of
from tensorflow.core.protobuf import saved_model_pb2

from tfk_transformer.constants import END_ID
from tfk_transformer.export import expected_results, model_files, parity
from tfk_transformer.export.exporting import export
from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.runtime import sessions
from tfk_transformer.export.runtime.onnx_runtime import OnnxClassifier, OnnxTranslator
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.runtime.sessions import OnnxFile, open_session
from tfk_transformer.export.runtime.text_session import TEXT_OPERATORS
from tfk_transformer.export.to_onnx import onnx_models
from tfk_transformer.export.to_onnx.conversion import IR_VERSION, OPSET
from tfk_transformer.export.to_onnx.layer_operators import weight_rounding
from tfk_transformer.export.to_onnx.text_operators import write_detokenizer
from tfk_transformer.inference.runtime import are_small
from tfk_transformer.models.language_model import LanguageModel
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.translator import Translator

pytestmark = pytest.mark.usefixtures("few_probes")
FEW = 12  # probe texts of `few_probes`
TEXTS = ["forty-two", "one hundred ninety-nine", "", "seven", "no number at all", "Ünïcödé ﬁ ½ 中"]


@pytest.fixture(scope="module")
def onnx_files(small, tmp_path_factory):
    """The folder of an export to ONNX."""
    folder = tmp_path_factory.mktemp("small") / "out"
    export(small, folder, ["onnx"])
    return folder


@pytest.mark.parametrize(
    "settings", [{}, {"beam_size": 1, "temperature": 1.5, "seed": 3}], ids=["beam", "drawn"]
)
def test_parallel_batches_match_serial(exported, settings):
    texts = [*TEXTS, *(f"{number} hundred" for number in ("two", "three", "five", "eight"))] * 3
    expected = OnnxTranslator(exported / "translate.onnx", threads=1).translate(
        texts, batch_size=4, **settings
    )
    translator = OnnxTranslator(exported / "translate.onnx", threads=3)
    for batch_size in (4, 64):
        assert [t.text for t in translator.translate(texts, batch_size=batch_size, **settings)] == [
            t.text for t in expected
        ]
    assert [translator.translate([text], **settings)[0].text for text in texts[:4]] == [
        t.text for t in expected[:4]
    ]


def test_one_session_per_batch_kind(exported):
    file = OnnxFile(exported / "translate.onnx", text_operators=True)
    small, large = (file.session(1, small=small) for small in (True, False))
    assert [session.get_session_options().enable_cpu_mem_arena for session in (small, large)] == [
        False,
        True,
    ]
    assert file.session(1, small=True) is small
    assert file.session(2, small=False) is not large
    assert large.get_session_options().intra_op_num_threads == 1


def test_light_file_runs_small_batches_on_one_thread(exported, monkeypatch):
    assert (exported / "translate.onnx").stat().st_size < sessions.LIGHT_FILE
    file = OnnxFile(exported / "translate.onnx", text_operators=True)
    assert file.session(2, small=True) is file.session(1, small=True)
    monkeypatch.setattr(sessions, "LIGHT_FILE", 1)
    assert file.session(2, small=True).get_session_options().intra_op_num_threads == 2


def test_heavy_file_has_one_session_for_all_batches(exported, monkeypatch):
    monkeypatch.setattr(sessions, "HEAVY_FILE", 1)
    file = OnnxFile(exported / "translate.onnx", text_operators=True)
    assert file.session(1, small=True) is file.session(1, small=False)


@pytest.mark.parametrize(
    ("texts", "batch_size", "beam_size", "small"),
    [(2, 64, 4, True), (64, 64, 4, False), (999, 16, 4, True), (999, 17, 4, False)],
)
def test_are_small_counts_hypotheses(texts, batch_size, beam_size, small):
    assert are_small(texts, batch_size, beam_size) is small


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_below_one_are_refused(exported, threads):
    with pytest.raises(
        ValueError,
        match=(
            f"^threads: expected at least 1, or None for the number of processors, got {threads}.$"
        ),
    ):
        OnnxTranslator(exported / "translate.onnx", threads=threads)


def test_saved_model_serves_and_scores(saved_model, translator):
    signatures = saved_model.signatures
    actual = signatures["serving_default"](text=tf.constant(["forty-two", ""]))
    assert actual["translation"].numpy().tolist() == [b"zweiundvierzig", b""]
    scored = signatures["score"](
        source=tf.constant(["forty-two"]), target=tf.constant(["zweiundvierzig"])
    )["log_probability"]
    np.testing.assert_allclose(
        scored, translator.score(["forty-two"], ["zweiundvierzig"]), atol=1e-5
    )


def test_score_graph_has_causal_mask(saved_model):
    graph = saved_model.signatures["score"].graph
    assert 'op: "MatrixBandPart"' in str(graph.as_graph_def())


def test_saved_model_shares_tokenizers(exported):
    """However many signatures there are."""
    model = saved_model_pb2.SavedModel.FromString(
        (exported / "saved_model" / "saved_model.pb").read_bytes()
    )
    functions = model.meta_graphs[0].graph_def.library.function
    made = [
        function.signature.name
        for function in functions
        for node in function.node_def
        if node.op == "SentencepieceOp"
    ]
    assert sorted(re.sub(r"_\d+$", "", name) for name in made) == [
        "__inference_decode",
        "__inference_encode",
    ]


def test_saved_model_runs_standalone(exported):
    """Only TensorFlow and TensorFlow Text are needed to load it."""
    code = """
import sys
sys.modules["tfk_transformer"] = None
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
print(model.signatures["serving_default"](text=tf.constant(["forty-two"]))["translation"].numpy()[0].decode())
"""
    done = run_program([sys.executable, "-c", code, exported / "saved_model"])
    assert done.stdout.split() == ["zweiundvierzig"], done.stderr


@pytest.mark.long  # a process each; the tests themselves load both
@pytest.mark.parametrize(
    "order",
    [
        "onnxruntime, tensorflow",
        "tensorflow, onnxruntime",
        "onnxruntime_extensions, tensorflow",
    ],
)
def test_text_operators_with_tensorflow(exported, order):
    """They crash each other unless loaded with care: two copies of protobuf."""
    code = f"""
import sys, {order}
from tfk_transformer.export.runtime.onnx_runtime import OnnxTranslator
print(OnnxTranslator(sys.argv[1]).translate(["forty-two"])[0].text)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, exported / "translate.onnx"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.split()) == (0, ["zweiundvierzig"]), done.stderr


def test_generate_on_stock_onnxruntime(exported, translator):
    session = open_session(exported / "generate.onnx")
    source = parity.probe_ids(["forty-two", "seven"], translator.source_tokenizer, 32)
    ids, scores = session.run(["ids", "scores"], {"source_ids": source})
    assert ids.dtype == np.int32
    assert ids.shape[:2] == scores.shape == (2, 1)
    assert translator.target_tokenizer.decode(ids[:, 0]) == ["zweiundvierzig", "sieben"]
    settings = {value.name for value in session.get_overridable_initializers()}
    assert {"beam_size", "n_best", "length_penalty", "max_length"} <= settings


def test_generate_is_portable_and_small(exported, translator):
    model = onnx.load(exported / "generate.onnx")
    onnx.checker.check_model(model)
    nodes = list(all_nodes(model.graph))
    assert {node.domain for node in nodes} <= {""}
    outer, greedy, inner = [node for node in nodes if node.op_type == "Loop"]
    weights = 4 * (
        translator.model.count_params()
        + translator.model.config.max_length * translator.model.config.model_dim
    )
    assert (exported / "generate.onnx").stat().st_size < 1.1 * weights + 300_000
    # Count, condition, and what a step changes: no weight and no source key or value is handed
    # through the inner loops.
    layers = translator.model.config.decoder_layers
    assert len(inner.input) == 2 + 7 + 2 * layers
    assert len(greedy.input) == 2 + 5 + 2 * layers
    # The outer loop hands on what belongs to the sentences still open, source keys and values too,
    # and the results.
    assert len(outer.input) <= 2 + (6 + 1 + 2 * layers) + (7 + 2 * layers) + 2


def test_metadata_has_config_and_parity(exported, translator):
    metadata = OnnxTranslator(exported / "translate.onnx").metadata
    assert metadata["config"] == translator.model.config.model_dump(mode="json")
    assert metadata["ids"] == {"pad": 0, "start": 1, "end": 2, "unknown": 3}
    assert metadata["parity"]["sentences"] >= 100
    assert metadata["parity"]["ids"] == "equal"
    assert metadata["parity"]["largest_score_difference"] < parity.SCORE_TOLERANCE


def test_parity_json_is_written(exported):
    figures = json.loads((exported / "parity.json").read_text())
    assert figures["sentences"] >= 100
    assert figures["ids"] == "equal"
    assert {"saved_model", "onnx"} <= set(figures)


def test_differing_file_is_not_written(small, tmp_path, monkeypatch):
    """The export of another model's weights is refused, and leaves nothing."""
    model = Transformer(small.model.config)
    model.build()
    other, generate_graph = Translator(model, small.source_tokenizer), onnx_models.generate_graph
    monkeypatch.setattr(
        onnx_models, "generate_graph", lambda _, *more: generate_graph(other, *more)
    )
    differs = "ONNX: expected the model's translations, got .* that differ, .*; nothing was written"
    with pytest.raises(parity.ParityError, match=differs):
        export(small, tmp_path / "out", ["onnx"])
    assert list(tmp_path.iterdir()) == []
    assert gc.isenabled()  # an export switches it off


def test_parity_compares_ids_and_scores():
    ids, scores = np.array([[[4, 2]], [[5, 2]]]), np.array([[-1.0], [-2.0]])
    assert parity.compare_ids("x", (ids, scores), (ids, scores + 1e-4)) == pytest.approx(1e-4)
    with pytest.raises(parity.ParityError, match="got 1 with different ids"):
        parity.compare_ids("x", (ids, scores), (np.array([[[4, 2]], [[6, 2]]]), scores))
    with pytest.raises(parity.ParityError, match="scores that differ by up to 0.01"):
        parity.compare_ids("x", (ids, scores), (ids, scores + 0.01))
    with pytest.raises(parity.ParityError):
        parity.compare_ids("x", (ids, scores), (ids, scores * np.nan))
    check = functools.partial(
        parity.check_difference, "x", "scores of 2 probe translations", scores
    )
    assert check(scores + 1e-4) == pytest.approx(1e-4)
    for other in (scores + 0.01, scores * np.nan):
        with pytest.raises(
            parity.ParityError,
            match="x: expected the model's scores of 2 probe translations, got differences",
        ):
            check(other)


def test_ties_count_as_equal():
    """Rounding chooses between two tokens with equal scores. Other differences are errors."""
    translator = Translator.load(Path(__file__).parents[1] / "saved_files" / "bundle")
    translator.probes = translator.probes[:FEW]
    embeddings = translator.model.weights[0]
    token, twin = 13, 12  # in most translations, in none
    table = embeddings.numpy()
    table[twin] = table[token]
    embeddings.assign(table)
    expected = expected_results.ExpectedResults(translator)

    def search(ids, settings, factor=1.0):
        """Search with the model whose scores of `twin` are `factor` times as large."""
        other_table = table.copy()
        other_table[twin] *= factor
        embeddings.assign(other_table)
        results = expected_results.run_search(expected.runtime, ids, settings)
        embeddings.assign(table)
        return results

    def with_wrong_token(ids, settings):
        ids, scores = search(ids, settings, 1 + 1e-5)
        return np.where(ids == twin, 7, ids), scores

    def without_best(ids, settings):
        results = search(ids, {**settings, "n_best": 4})
        return [np.roll(part, -1, axis=1)[:, : settings.get("n_best", 1)] for part in results]

    def with_second_best(ids, settings):
        return search(ids, {**settings, "n_best": 2})

    def count_ties(generate):
        prefixed = expected.more_searches[0][2]
        return expected.check_ids(
            "x",
            lambda ids, prefix_ids, settings: (
                prefixed if prefix_ids.size else generate(ids, settings)
            ),
        )["ties"]

    preferred, avoided, other = (
        functools.partial(search, factor=factor) for factor in (1 + 1e-5, 1 - 1e-5, 1.01)
    )
    with_token = np.isin(expected.best, (token, twin)).any(axis=1).sum()
    assert count_ties(preferred) + count_ties(avoided) >= with_token > 0
    for generate in (other, with_wrong_token, without_best, with_second_best):
        with pytest.raises(parity.ParityError, match="with different ids"):
            count_ties(generate)


@pytest.mark.long  # an export
def test_long_probes_compare_by_ids(small, tmp_path):
    """Of a model with an encoder, and of one without, whose prompts count among the tokens of its
    translations.
    """
    sizes = {"model_dim": 18, "ff_dim": 13, "num_heads": 3, "decoder_layers": 1, "max_length": 24}
    continuer = translator_of(
        small.source_tokenizer, LanguageModel, vocab_size=small.source_tokenizer.vocab_size, **sizes
    )
    too_long = "nine " * 40
    for name, translator in (("translator", small), ("continuer", continuer)):
        probes = ["one two", too_long, "seven"]
        model, tokenizer = translator.model, translator.source_tokenizer
        assert len(tokenizer.encode([too_long])[0]) > model.config.max_length
        figures = export(
            Translator(model, tokenizer, translator.target_tokenizer, probes),
            tmp_path / name,
            ["onnx"],
        )
        assert figures["ids"] == "equal"
        assert figures["sentences"] == FEW


@pytest.mark.long  # traces another search
def test_large_model_fewer_beam_probes(small, tmp_path, monkeypatch):
    monkeypatch.setattr(expected_results, "LARGE", small.model.count_params() - 1)
    monkeypatch.setattr(expected_results, "BEAM_PROBES", 5)
    # Another translator: functions of `small` are already traced, for a small model.
    large = Translator(small.model, small.source_tokenizer, probes=small.probes)
    figures = export(large, tmp_path / "out", ["onnx"])
    assert figures["settings"] == [{"beam_size": 1, "probes": FEW}, {"probes": 5}]
    assert figures["ids"] == "equal"
    assert figures["onnx"]["largest_score_difference"] < 1e-4


def test_export_of_one_format(onnx_files):
    names = ["generate.onnx", "parity.json", "score.onnx", "translate.onnx"]
    assert sorted(path.name for path in onnx_files.iterdir()) == names
    assert gc.isenabled()


def test_int8_files_agree_with_model(small, tmp_path):
    figures = export(small, tmp_path / "out", ["onnx_int8"])
    int8 = figures["onnx_int8"]
    assert abs(int8["regret_per_token"]) <= 0.01
    assert int8["kept_float32"] == []
    assert int8["sentences"] == FEW
    opened = OnnxTranslator(tmp_path / "out" / "translate.int8.onnx")
    assert opened.metadata["profile"] == "int8"
    assert opened.metadata["parity"]
    assert inspect(opened.runtime.path)["model_card"]["weights"] == "8-bit integers"
    expected, actual = (
        [translation.text for translation in each.translate(small.probes, split_sentences=False)]
        for each in (small, opened)
    )
    bleu = sacrebleu.corpus_bleu(actual, [expected], tokenize="char")
    assert bleu.score == pytest.approx(int8["bleu_with_the_model"])
    same = sum(a == b for a, b in zip(expected, actual, strict=True))
    assert same == int8["same_translations"]


@pytest.fixture
def coarse(monkeypatch):
    """Round the weights of 8-bit files to -1, 0 and 1, so that translations differ."""
    monkeypatch.setattr(model_files, "FLOAT_LAYERS", ((),))
    monkeypatch.setattr(weight_rounding, "INT8_MAX", 1)


def test_int8_keeps_weights_in_float32_until_it_agrees(small, tmp_path, coarse, monkeypatch):
    monkeypatch.setattr(model_files, "FLOAT_LAYERS", ((), ("",)))  # none of the weights, then all
    int8 = export(small, tmp_path / "out", ["onnx_int8"])["onnx_int8"]
    assert abs(int8["regret_per_token"]) <= 0.01 < int8["smaller_file"]["regret_per_token"]
    assert (int8["kept_float32"], int8["smaller_file"]["kept_float32"]) == ([""], [])


def test_int8_with_regret_is_not_written(small, tmp_path, coarse):
    message = (
        r"^onnx_int8: expected a regret \(loss of score under the model\) of at most 0.01 per "
        "token, got [0-9.]+, with the model's translation of [0-9]+ of 12 probe sentences; .*; "
        "nothing was written.$"
    )
    with pytest.raises(parity.ParityError, match=message) as caught:
        export(small, tmp_path / "out", ["onnx_int8"])
    assert caught.value.figures == {}
    assert list(tmp_path.iterdir()) == []


def test_other_formats_are_written_if_int8_has_regret(small, tmp_path, coarse):
    out = tmp_path / "out"
    with pytest.raises(
        parity.ParityError, match=r"; .*out has the other formats: onnx\.$"
    ) as caught:
        export(small, out, ["onnx_int8", "onnx"])
    names = ["generate.onnx", "parity.json", "score.onnx", "translate.onnx"]
    assert sorted(path.name for path in out.iterdir()) == names
    figures = json.loads((out / "parity.json").read_text())
    assert figures == caught.value.figures
    assert figures["ids"] == "equal"
    assert "onnx_int8" not in figures
    assert figures["failed"]["onnx_int8"]["regret_per_token"] > 0.01
    assert "expected a regret" in figures["failed"]["onnx_int8"]["reason"]


def test_int8_limits_can_be_relaxed(small, tmp_path, coarse):
    figures = export(small, tmp_path / "out", ["onnx_int8"], int8_regret=1000)
    assert figures["onnx_int8"]["regret_per_token"] > 0.01


def test_int8_of_one_answer_must_be_the_same(small, tmp_path, coarse):
    message = "at least 100.0% of the translations the model's, got "
    with pytest.raises(parity.ParityError, match=message):
        export(small, tmp_path / "out", ["onnx_int8"], int8_regret=1000, int8_same=1)


@pytest.mark.parametrize("limits", [{"int8_regret": -0.1}, {"int8_same": float("nan")}])
def test_bad_int8_limits_are_refused(small, tmp_path, limits):
    message = "^int8_regret and int8_same: expected a number from 0, and one from 0 to 1, got "
    with pytest.raises(ValueError, match=message):
        export(small, tmp_path / "out", ["onnx"], **limits)


def test_int8_without_probes_is_refused(small, tmp_path):
    without = Translator(small.model, small.source_tokenizer)
    message = "^probes: expected texts like those to translate, .* got a model without probes; set "
    with pytest.raises(ValueError, match=message):
        export(without, tmp_path / "out", ["onnx", "onnx_int8"])


def test_regret_is_loss_of_score_per_token(small):
    """Computed by hand: the default search divides by ((5 + length) / 6) ** 0.6."""
    expected = expected_results.ExpectedResults(small)
    rows = expected.int8_rows[:3]
    own = expected.best[rows]
    other = own.copy()
    other[0] = 0
    other[0, :2] = own[0, 0], END_ID
    log_probs = [
        expected.runtime.run(
            "score_and_attend", {"source_ids": expected.ids[rows[:1]], "target_ids": ids[:1]}
        )["log_probability"].numpy()[0]
        for ids in (own, other)
    ]
    length = np.count_nonzero(own[0])
    loss = log_probs[0] - log_probs[1] * ((5 + length) / (5 + 2)) ** 0.6
    figures = expected.int8_figures(rows, other)
    assert figures["regret_per_token"] == pytest.approx(loss / length / 3, rel=1e-4)
    assert figures["same_translations"] == 2
    same = expected.int8_figures(rows, own)
    assert same["regret_per_token"] == 0
    assert same["same_translations"] == 3


# An export each. pipelines/test_text_classifier.py exports a classifier in the short tests.
@pytest.mark.long
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_model_exports_in_float32(small, onnx_files, tmp_path, dtype):
    model = Transformer(small.model.config, dtype=dtype)
    model.build()
    model.set_weights(small.model.get_weights())
    half = Translator(model, small.source_tokenizer, probes=small.probes)
    export(half, tmp_path / "out", ["onnx"])
    actual, expected = (
        OnnxTranslator(path / "translate.onnx").translate(TEXTS)
        for path in (tmp_path / "out", onnx_files)
    )
    assert actual == expected


def test_bad_exports_are_refused(translator, tmp_path):
    known = "saved_model, onnx, onnx_steps, onnx_int8, ctranslate2, huggingface, web, web_int8"
    with pytest.raises(ValueError, match=f"formats: expected some of {known}, got tflite"):
        export(translator, tmp_path / "out", ["tflite"])
    with pytest.raises(ValueError, match="which exists; choose another name"):
        export(translator, tmp_path)


def test_foreign_files_are_refused(exported, tmp_path):
    cut = tmp_path / "cut.onnx"
    cut.write_bytes((exported / "translate.onnx").read_bytes()[:5000])
    foreign = tmp_path / "foreign.onnx"
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    onnx.save(
        onnx.helper.make_model(
            graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 18)]
        ),
        foreign,
    )
    broken = shutil.copytree(exported / "saved_model", tmp_path / "broken")
    (broken / "saved_model.pb").write_bytes(b"nothing")
    for path, message in (
        (tmp_path / "none.onnx", "which does not exist"),
        (tmp_path / "none", "which does not exist"),
        (tmp_path, "without any of these files"),
        (cut, "cut.onnx does not load"),
        (foreign, "no metadata"),
        (exported / "generate.onnx", "which takes ids; use translate.onnx"),
        (broken, "does not load"),
    ):
        with pytest.raises(ValueError, match=message):
            load(path)
    with pytest.raises(ValueError, match="which is for OnnxScorer; open it with OnnxScorer"):
        OnnxTranslator(exported / "score.onnx")
    with pytest.raises(
        ValueError,
        match=(
            "that OnnxClassifier reads, got .*, which is for OnnxTranslator; open it with "
            "OnnxTranslator"
        ),
    ):
        OnnxClassifier(exported / "translate.onnx")


def test_bare_export_import_is_refused():
    done = subprocess.run(
        [sys.executable, "-c", "import export"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert "import this package as 'tfk_transformer.export'" in done.stderr


def test_onnx_decode_matches_tokenizer(translator, tmp_path):
    tokenizer = translator.target_tokenizer
    blank = tokenizer.pieces().index(" ")
    words = tokenizer.encode(["eins", "zwei"])
    rows = [[blank], [blank, blank, blank], [blank, *words[0]], [*words[1], blank], [], words[0]]
    width = max(map(len, rows)) + 1
    # (N, 1, T)
    ids = np.array([[[*row, 2, *[0] * (width - len(row) - 1)]] for row in rows], "int32")
    ids_input = ir.Value(
        name="ids", type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape(["N", "M", "T"])
    )
    graph = ir.Graph(
        [ids_input], [], nodes=[], opset_imports={"": OPSET, TEXT_OPERATORS: 1}, name="decode"
    )
    text = write_detokenizer(tape.Tape(graph), ids_input, tokenizer.pieces())
    text.name, text.type = "text", ir.TensorType(ir.DataType.STRING)
    graph.outputs.append(text)
    ir.save(ir.Model(graph, ir_version=IR_VERSION), tmp_path / "decode.onnx")
    (actual,) = open_session(tmp_path / "decode.onnx", text_operators=True).run(None, {"ids": ids})
    assert actual[:, 0].tolist() == tokenizer.decode(ids[:, 0])
    assert actual[:2, 0].tolist() == ["", ""]


@pytest.mark.parametrize(
    "formats",
    [pytest.param(["saved_model"], marks=pytest.mark.long), ["onnx"]],  # an export each
)
def test_full_disk_leaves_no_files(small, small_disk, formats):
    (small_disk / "ballast").write_bytes(bytes(6_200_000))
    with pytest.raises(
        ValueError,
        match=r"^out: no space left on the disk for .*files; nothing was written. Free some space",
    ):
        export(small, small_disk / "files", formats)
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]
