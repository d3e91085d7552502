"""Folders of CTranslate2, compared with CTranslate2's own translations and with this project's
export.
"""

import json
import re
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from ctranslate2_folder import (
    D,
    F,
    change_config,
    write_fairseq,
    write_marian,
    write_opennmt_py,
    write_opennmt_tf,
)
from forked_programs import run_program
from id_rows import padded
from imported_folder import refused, rows_of_texts, weights_of
from marian_folder import pieces_of, random_texts, sentences, trained
from random_translators import OPTIONS, of_transformer
from tiers import with_long
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import END_ID, START_ID
from tfk_transformer.importing.checking.comparison import compare_with_library
from tfk_transformer.importing.ctranslate2_folder import binary_file
from tfk_transformer.importing.ctranslate2_folder.binary_file import open_binary
from tfk_transformer.importing.ctranslate2_folder.tokens import read_vocabularies
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.search.search_state import Limits
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

ctranslate2 = pytest.importorskip("ctranslate2")
pytestmark = pytest.mark.filterwarnings("default::UserWarning:ctranslate2")

CASES = {
    "OpenNMT-py, int8": (write_opennmt_py, "int8"),
    "OpenNMT-tf, float16": (write_opennmt_tf, "float16"),
    "fairseq, float32": (write_fairseq, None),
    "Marian, int16": (write_marian, "int16"),
}
PREFIXES = ("source_prefix", "target_prefix")
# The options of models that the export holds, without prefixes.
OWN = {
    name: {option: value for option, value in OPTIONS[name].items() if option not in PREFIXES}
    for name in ("plain", "post", "post_dropout", "pre", "marian", "umt5")
} | {
    "t5": {**OPTIONS["t5"], "source_prefix": (), "value_dim": OPTIONS["t5"]["key_dim"]},
    "halves": {"positions": "sinusoidal_halves", "position_offset": 1, "source_end": False},
    "learned": {"positions": "learned", "embedding_norm": True, "tie_embeddings": "inputs"},
    "wide heads": {"key_dim": 5, "value_dim": 5, "ff_gated": True, "ff_activation": "silu"},
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A folder as OpenNMT-py's, which tests copy and change."""
    return write_opennmt_py(tmp_path_factory.mktemp("ctranslate2") / "folder")


@pytest.fixture
def folder(plain, tmp_path):
    return Path(shutil.copytree(plain, tmp_path / "copy"))


class Case:
    """A folder, the translator of it, and random source texts.

    CTranslate2 computes in float32, so that quantized weights have the same values.
    """

    def __init__(self, folder):
        self.folder, self.translator = folder, import_model(folder)
        self.engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
        draw = np.random.default_rng(3)
        pieces = np.array(self.translator.source_tokenizer.text_ids())
        sources = [draw.choice(pieces, draw.integers(1, 9)) for _ in range(60)]
        self.ids = padded([[*source, END_ID] for source in sources])
        self.texts = [self.translator.source_tokenizer.pieces_of(source) for source in sources]


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    write, quantization = CASES[request.param]
    return Case(write(tmp_path_factory.mktemp("case") / "folder", quantization=quantization))


def assert_equal_known(theirs, ours):
    """Compare log-probabilities, but for pieces that the folder lacks, which have none here."""
    known = ours > -1e8
    assert known.mean() > 0.5
    np.testing.assert_allclose(np.array(theirs)[known], ours[known], rtol=1e-5, atol=1e-4)


def test_scores_equal_ctranslate2(case):
    tokenizer = case.translator.target_tokenizer
    draw = np.random.default_rng(4)
    targets = [draw.choice(tokenizer.text_ids(), draw.integers(1, 9)) for _ in case.texts]
    theirs = case.engine.score_batch(case.texts, [tokenizer.pieces_of(row) for row in targets])
    read = padded([[START_ID, *target] for target in targets])
    logits = np.array(case.translator.model({"source": case.ids, "target": read}))
    log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    for target, ours, result in zip(targets, log_probs, theirs, strict=True):
        assert_equal_known(result.log_probs, ours[np.arange(len(target) + 1), [*target, END_ID]])


# A search is traced for each case, which takes 3 seconds.
@pytest.mark.parametrize(
    "case",
    with_long({name: name for name in CASES}, CASES.keys() - {"fairseq, float32"}),
    indirect=True,
)
def test_translations_equal_ctranslate2(case):
    for beam_size in (1, 4):
        settings = SearchSettings(
            beam_size=beam_size, length_penalty=0, max_length_factor=1000, max_length=20
        )
        ours = case.translator.functions.generate(case.ids, Limits(**settings.as_numbers()))
        # CTranslate2 divides by length ** length_penalty. With 0 it ends its search by another
        # rule, and with its default of at least 1 token no translation is empty.
        theirs = case.engine.translate_batch(
            case.texts,
            beam_size=beam_size,
            length_penalty=1e-6,
            min_decoding_length=0,
            max_decoding_length=20,
            return_scores=True,
        )
        rows = [[i for i in row if i != END_ID] for row in ours.ids.numpy()[:, 0]]
        hypotheses = [case.translator.target_tokenizer.pieces_of(row) for row in rows]
        assert [result.hypotheses[0] for result in theirs] == hypotheses
        assert len(set(map(tuple, hypotheses))) > 10
        scores = [result.scores[0] for result in theirs]
        np.testing.assert_allclose(ours.scores.numpy()[:, 0], scores, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("case", ["fairseq, float32"], indirect=True)
def test_check_compares_with_ctranslate2(case, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # its threads wait actively
    comparison = compare_with_library(case.folder, case.translator)
    assert re.fullmatch(r"ctranslate2 [\d.]+", comparison["library"])
    assert comparison["agrees"], comparison


@pytest.mark.parametrize("name", OWN)
def test_own_export_reads_back_exactly(name, tmp_path):
    from tfk_transformer.export.to_libraries.ctranslate2_files import write_ctranslate2

    tokenizer = SubwordTokenizer.train(sentences("source", 100), 40)
    sizes = {"source_vocab_size": 40, "target_vocab_size": 40}
    ours = of_transformer(tokenizer, **{**OWN[name], **sizes})
    tokens = tokenizer.pieces_of(range(1, 40))
    write_ctranslate2(ours.model, ["<pad>", *tokens], ["<pad>", *tokens], tmp_path / "folder")
    for side in ("source", "target"):
        tokenizer.save(tmp_path / "folder" / f"{side}.model")
    read = import_model(tmp_path / "folder")
    expected = weights_of(ours)
    bias = expected.pop("output/bias", np.zeros(40, "float32"))
    weights = weights_of(read)
    # The export gives padding and the start token no probability.
    np.testing.assert_array_equal(weights.pop("output/bias")[END_ID:], bias[END_ID:])
    assert set(weights) == set(expected)
    for part, array in expected.items():
        np.testing.assert_array_equal(weights[part], array, err_msg=part)
    config = ours.model.config
    # Relative positions limit no length. The other options were only alike in their effects.
    alike = {"output_bias", "encoder_final_norm", "decoder_final_norm", "norm", "ff_expansion"}
    alike |= {"max_length", *PREFIXES} if config.positions.startswith("relative") else set()
    for option in type(config).model_fields.keys() - alike:
        if "dropout" not in option:
            assert getattr(read.model.config, option) == getattr(config, option), option
    texts = random_texts(60)
    assert read.source_tokenizer.encode(texts) == tokenizer.encode(texts)
    assert read.target_tokenizer.encode(texts) == tokenizer.encode(texts)


@pytest.mark.long  # exports a bundle and searches with both
def test_exported_bundle_translates_alike(tmp_path):
    """Its translations are those of the bundle, which must not predict padding."""
    tokenizer = SubwordTokenizer.train(sentences("source", 100), 40)
    ours = of_transformer(
        tokenizer, **OPTIONS["marian"], source_vocab_size=40, target_vocab_size=40
    )
    bias = ours.model.named_weights["output/bias"]
    bias.assign(np.where(np.arange(40) < END_ID, -1e9, np.asarray(bias)))
    ours.save(tmp_path / "bundle")
    ours.export(tmp_path / "out", format="ctranslate2")
    arguments = ["import", str(tmp_path / "out"), "--out", str(tmp_path / "again")]
    done = CliRunner().invoke(main.app, arguments)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0] == "CTranslate2: out, license: not stated"
    again = Translator.load(tmp_path / "again")
    texts = sentences("source", 20, seed=4)
    results = [each.translate(texts, **again.search) for each in (ours, again)]
    assert results[0] == results[1]


def test_texts_have_the_folder_tokens(plain):
    translator = import_model(plain)
    texts = random_texts(2000)
    table = "encoder/embeddings_0/weight"
    files = (plain, "source.spm", "source_vocabulary.json", table)
    expected, rows = rows_of_texts(translator, *files, texts)
    np.testing.assert_array_equal(rows, expected)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(plain / "target.spm"))
    tokens = set(json.loads((plain / "target_vocabulary.json").read_text())[4:])
    tokenizer = translator.target_tokenizer
    for ids, pieces in zip(
        tokenizer.encode(texts), processor.encode(texts, out_type=str), strict=True
    ):
        # The target's model segments further if its vocabulary lacks a piece.
        if set(pieces) <= tokens:
            assert tokenizer.pieces_of(ids) == pieces


def test_hidden_end_changes_nothing(plain):
    """Without an end token, as with one that is hidden, whatever its embedding is."""
    model = import_model(plain).model
    source = np.array([[7, 9, 8, END_ID, 0]])
    inputs = {"source": source, "target": np.array([[1, 5, 6]])}
    logits = np.array(model(inputs))
    table = model.named_weights["source_embedding/embeddings"]
    table.assign(np.array(table) + 9.0 * (np.arange(table.shape[0]) == END_ID)[:, None])
    np.testing.assert_allclose(np.array(model(inputs)), logits, atol=1e-5)
    shorter = {**inputs, "source": source[:, :3]}
    np.testing.assert_allclose(np.array(model(shorter)), logits, atol=1e-5)
    masked = {**inputs, "source_mask": (source != 0).astype("float32")}
    np.testing.assert_allclose(np.array(model(masked)), logits, atol=1e-5)


def test_language_tokens_are_prefixes(tmp_path):
    folder = write_fairseq(tmp_path / "folder")
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "__de__", "__en__"]
    tokens += pieces_of(trained("target", 67))[5:]
    (folder / "shared_vocabulary.json").write_text(json.dumps(tokens))
    assert "source_language: expected one of the 2 languages" in refused(folder)
    translator = import_model(folder, source_language="de", target_language="en")
    config = translator.model.config
    pieces = translator.source_tokenizer.pieces_of([*config.source_prefix, *config.target_prefix])
    assert pieces == ["__de__", "</s>"]
    table = weights_of(translator)["source_embedding/embeddings"]
    rows = open_binary(folder / "model.bin").read("decoder/embeddings/weight")
    np.testing.assert_array_equal(table[1], rows[tokens.index("__en__")])
    assert translator.languages == ("de", "en")
    engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    sources, targets = (
        tokenizer.encode(sentences("target", 20, seed=seed))
        for tokenizer, seed in (
            (translator.source_tokenizer, 2),
            (translator.target_tokenizer, 3),
        )
    )
    pieces_of_ids = translator.source_tokenizer.pieces_of
    theirs = engine.score_batch(
        [["__de__", *pieces_of_ids(ids)] for ids in sources],
        [["__en__", *pieces_of_ids(ids)] for ids in targets],
    )
    source = padded([[*ids, END_ID] for ids in sources])
    target = padded([[START_ID, *ids] for ids in targets])
    logits = np.array(translator.model({"source": source, "target": target}))
    log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    for ids, ours, result in zip(targets, log_probs, theirs, strict=True):
        assert_equal_known(result.log_probs[1:], ours[np.arange(len(ids) + 1), [*ids, END_ID]])


def rewritten(path, version, dtypes=None, attributes=None):
    """Write a file again in another version, with arrays in place of aliases."""
    file = open_binary(path)
    dtypes = dtypes or {}
    parts = []
    arrays = {name: file.variables[name].read(path) for name in file.variables}
    for name, array in {**arrays, **(attributes or {})}.items():
        dtype = file.variables[name].dtype if name in file.variables else str(array.dtype)
        dtype = dtypes.get(dtype, dtype)
        if dtype == "bfloat16":
            content = (array.view("uint32") >> 16).astype("uint16").tobytes()
        else:
            content = array.astype(dtype).tobytes()
        width = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
        number = binary_file.DTYPES.index(dtype) if version >= 4 else width
        size = len(content) if version >= 4 else array.size
        parts.append(
            text(name)
            + struct.pack(f"<B{array.ndim}IBI", array.ndim, *array.shape, number, size)
            + content
        )
    header = struct.pack("<I", version) + text("TransformerSpec") + struct.pack("<I", file.revision)
    aliases = struct.pack("<I", 0) if version >= 3 else b""
    path.write_bytes(header + struct.pack("<I", len(parts)) + b"".join(parts) + aliases)


def text(name):
    return struct.pack("<H", len(name) + 1) + name.encode() + b"\0"


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        (b"a\nb\r\nc\n", ["a", "b\r", "c", "<unk>"]),
        (b"a\r\n<unk>\r\n\r\n", ["a", "<unk>", ""]),
        ("\u2028\n<unk>".encode(), ["\u2028", "<unk>"]),
    ],
)
def test_vocabulary_lines_are_tokens(tmp_path, content, tokens):
    (tmp_path / "shared_vocabulary.txt").write_bytes(content)
    assert read_vocabularies(tmp_path, "<unk>") == (tokens, tokens)


@pytest.mark.parametrize("version", [2, 3, 5])
def test_earlier_versions_are_read(plain, folder, version):
    expected = weights_of(import_model(plain))
    strings = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    attributes = {
        name: np.frombuffer(value.encode(), "int8").astype("int8")
        for name, value in strings.items()
    }
    attributes |= {"with_source_eos": np.int8(1), "with_target_bos": np.int8(0)}
    int16 = {"int16": "int8"}  # of the numbers of heads, which these versions had in int8
    rewritten(folder / "model.bin", version, int16, attributes)
    (folder / "config.json").unlink()
    for side in ("source", "target"):
        tokens = json.loads((folder / f"{side}_vocabulary.json").read_text())
        (folder / f"{side}_vocabulary.json").unlink()
        (folder / f"{side}_vocabulary.txt").write_text("\n".join(tokens) + "\n", "utf-8")
    translator = import_model(folder)
    assert translator.model.config.source_end
    weights = weights_of(translator)
    end = weights["target_embedding/embeddings"][END_ID]
    np.testing.assert_array_equal(weights["target_embedding/embeddings"][1], end)
    for name in ("encoder/layer_0/attention/query", "source_embedding/embeddings"):
        np.testing.assert_array_equal(weights[name], expected[name])


def test_bfloat16_is_read(plain, folder):
    rewritten(folder / "model.bin", 6, {"float32": "bfloat16"})
    weights = weights_of(import_model(folder))
    for name, array in weights_of(import_model(plain)).items():
        np.testing.assert_allclose(weights[name], array, rtol=2**-7)


UNSUPPORTED = [
    ({"with_relative_position": True}, "vectors of relative positions"),
    ({"multi_query_attention": True}, "one key head for all query heads"),
    ({"num_source_embeddings": 2}, "several features of a source token"),
]


@pytest.mark.parametrize(("options", "layers"), UNSUPPORTED, ids=str)
def test_unsupported_layers_are_named(folder, options, layers):
    from ctranslate2.specs import TransformerSpec

    spec = TransformerSpec.from_config((1, 1), 2, **options)
    spec._visit(lambda layer, name, value: value is None and set_zeros(layer, name))
    spec._visit(lambda layer, name, value: to_variable(layer, name, value))
    spec._serialize(str(folder / "model.bin"))
    assert f"{folder / 'model.bin'} does not load: expected layers that" in refused(folder)
    assert layers in refused(folder)


def set_zeros(layer, name):
    setattr(layer, name.rpartition("/")[2], np.zeros((1, 1), "float32"))


def to_variable(layer, name, value):
    from ctranslate2.specs.model_spec import NumpyVariable

    if isinstance(value, bool):
        value = np.int8(value)
    if isinstance(value, np.ndarray | np.generic):
        setattr(layer, name.rpartition("/")[2], NumpyVariable(np.asarray(value)))


def patched(folder, old, new):
    path = folder / "model.bin"
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("TransformerDecoderSpec", "got a decoder-only language model"),
        ("WhisperSpec", "got Whisper, which reads audio"),
        ("Wav2Vec2Spec", "got wav2vec 2.0, which reads audio"),
        ("OtherSpec", "got the specification 'OtherSpec'"),
    ],
)
def test_other_architectures_are_named(folder, spec, part):
    patched(folder, text("TransformerSpec"), text(spec))
    assert part in refused(folder)


@pytest.mark.parametrize(
    ("number", "part"),
    [(5, "the activation tanh"), (6, "the activation sigmoid"), (9, "the activation 9")],
)
def test_other_activations_are_named(folder, number, part):
    for stack in ("encoder", "decoder"):
        old = text(f"{stack}/activation") + struct.pack("<BBIb", 0, 1, 1, 0)
        patched(folder, old, old[:-1] + bytes([number]))
    assert part in refused(folder)


def test_truncated_files_are_one_line(folder):
    path = folder / "model.bin"
    content = path.read_bytes()
    draw = np.random.default_rng(1)
    for size in [*range(40), *draw.integers(40, len(content), 40)]:
        path.write_bytes(content[:size])
        assert "does not load" in refused(folder)


@pytest.mark.long  # imports 50 damaged files
def test_damaged_files_are_one_line(folder):
    """A changed byte is refused in one line, or has changed a number of a weight."""
    path = folder / "model.bin"
    content = path.read_bytes()
    draw = np.random.default_rng(2)
    for position in [*range(0, 60, 2), *draw.integers(0, len(content), 20)]:
        damaged = bytearray(content)
        damaged[position] ^= 1 << draw.integers(8)
        path.write_bytes(damaged)
        try:
            import_model(folder)
        except ValueError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda content: struct.pack("<I", 7) + content[4:], "binary version 1 to 6, got 7"),
        (lambda content: b"PK\3\4" + content[4:], "binary version 1 to 6, got 67,324,752"),
        (
            lambda content: content[:26] + struct.pack("<I", 2**32 - 1) + content[30:],
            "at most 10,000 arrays, got 4,294,967,295",
        ),
        (
            lambda content: content[:30] + text("x") + struct.pack("<B4IBI", 4, *[2**31] * 4, 0, 0),
            "bytes for 'x' of shape (2147483648",
        ),
        (
            lambda content: content[:30] + text("x") + struct.pack("<BIBI", 1, 2**30, 1, 2**30),
            "got 1,073,741,824, with 0 bytes left",
        ),
        (
            lambda content: content[:30] + text("x") + struct.pack("<BBI", 0, 77, 4),
            "'x' has the unknown type 77",
        ),
        (
            lambda content: (
                content[:26] + struct.pack("<II", 0, 1) + text("a/b/weight") + text("c")
            ),
            "expected an array 'c'",
        ),
    ],
)
def test_hostile_headers_are_named(folder, change, part):
    path = folder / "model.bin"
    path.write_bytes(change(path.read_bytes()))
    assert part in refused(folder)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("decoder/projection/weight", (5, D)),
        ("decoder/projection/bias", (5,)),
        ("decoder/embeddings/weight", (90, D + 1)),
        ("encoder/layer_1/ffn/linear_1/weight", (D, F + 1)),
        ("decoder/layer_9/ffn/linear_1/weight", (D, F)),
    ],
)
def test_wrong_shapes_are_named(folder, name, shape):
    rewritten(folder / "model.bin", 6, attributes={name: np.ones(shape, "float32")})
    assert f"'{name}' " in refused(folder)


def test_unlike_layers_are_named(folder, tmp_path):
    """One layer with a table of relative positions, and one with a norm of another type."""
    bias = "encoder/layer_0/self_attention/relative_attention_bias"
    shutil.copytree(folder, tmp_path / "relative")
    rewritten(tmp_path / "relative" / "model.bin", 6, attributes={bias: np.ones((6, 2), "float32")})
    assert "expected a table for each layer as" in refused(tmp_path / "relative")
    patched(folder, b"encoder/layer_0/ffn/layer_norm/beta", b"encoder/layer_0/ffn/layer_norm/beda")
    assert "got 'encoder/layer_0/ffn/layer_norm/gamma' without a beta" in refused(folder)


def test_scaled_outputs_need_a_norm(tmp_path):
    folder = write_fairseq(tmp_path / "folder")
    rewritten(folder / "model.bin", 6, attributes={"decoder/scale_outputs": np.float32(0.5)})
    assert "scaled decoder outputs without a norm" in refused(folder)


def test_nonfinite_weights_are_refused(folder):
    name = "encoder/layer_0/ffn/linear_0/weight"
    array = np.full((F, D), np.nan, "float32")
    rewritten(folder / "model.bin", 6, attributes={name: array})
    assert f"{F * D} NaN or infinite numbers in '{name}'" in refused(folder)


def test_wrong_scales_are_named(tmp_path):
    folder = write_opennmt_py(tmp_path / "folder", quantization="int8")
    file = open_binary(folder / "model.bin")
    scale = file.variables["encoder/layer_0/ffn/linear_0/weight_scale"]
    content = bytearray((folder / "model.bin").read_bytes())
    content[scale.offset : scale.offset + 4] = struct.pack("<f", 0)
    (folder / "model.bin").write_bytes(content)
    message = f"expected a positive scale for each of the {F} rows as 'encoder/layer_0/ffn/"
    assert message in refused(folder)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"decoder_start_token": None}, "expected a decoder_start_token in"),
        ({"eos_token": "</end>"}, "with </end>, got 65 tokens without it"),
        ({"eos_token": ["x"]}, "eos_token"),
        ({"layer_norm_epsilon": -1}, "layer_norm_epsilon"),
        ({"add_source_eos": "maybe"}, "add_source_eos"),
    ],
)
def test_wrong_config_values_are_named(folder, changes, part):
    change_config(folder, **changes)
    assert part in refused(folder)


def test_missing_files_are_named(folder, tmp_path):
    (folder / "target.spm").unlink()
    assert "expected source.spm and target.spm, or sentencepiece.model in" in refused(folder)
    other = tmp_path / "other.model"
    shutil.copy(folder / "source.spm", other)
    assert f"got {other}, of whose" in refused(folder, vocab=[other])
    (folder / "source_vocabulary.json").unlink()
    assert "got no source_vocabulary.json" in refused(folder, vocab=[other])
    (folder / "source_vocabulary.json").write_text('[1, {"a": 2}]')
    assert "expected a list of tokens in" in refused(folder, vocab=[other])
    with (folder / "source_vocabulary.json").open("wb") as file:
        file.truncate(3 * 2**30)
    assert "source_vocabulary.json: expected a file of at most" in refused(folder, vocab=[other])


def test_folder_reads_without_ctranslate2(plain):
    code = (
        "import sys; sys.modules['ctranslate2'] = None\n"
        "from tfk_transformer.importing.model_import import import_model\n"
        f"print(import_model({str(plain)!r}).origin['family'])"
    )
    done = run_program([sys.executable, "-c", code])
    assert done.stdout.strip() == "CTranslate2", done.stderr
    assert not re.search("Traceback", done.stderr)
