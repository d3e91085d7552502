"""Exports for CTranslate2 and in the layout of MarianMT: exact for every option that these have,
and refused for the others.

tests/importing/test_transformers.py compares folders in the layout of MarianMT with the classes of
transformers.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from marian_folder import TAGS, random_texts, sentences, write_folder
from random_translators import of_transformer
from tiers import with_long
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.config.model_options import LanguageModelConfig, TransformerConfig
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.export import library_files, parity
from tfk_transformer.export.exporting import export
from tfk_transformer.export.inspection import inspect
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.export.to_libraries.counterparts import (
    CTRANSLATE2,
    MARIAN,
    unsupported_options,
)
from tfk_transformer.export.to_libraries.ctranslate2_files import write_ctranslate2
from tfk_transformer.export.to_libraries.hugging_face_files import write_marian
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.runtime_environment import install_line
from tfk_transformer.search.search_state import Limits
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

pytestmark = [
    pytest.mark.filterwarnings("default::UserWarning:ctranslate2", "default::UserWarning:torch"),
    pytest.mark.usefixtures("few_probes"),
]
MANY = 100
SIZES = {
    "model_dim": 18,
    "num_heads": 3,
    "ff_dim": 13,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "max_length": 32,
}
V = 37
HELD_BY_CTRANSLATE2 = {
    "pre, shared projections, scale": {
        "shared_projections": True,
        "attention_bias": True,
        "attention_scale": "key_dim",
    },
    "post, some biases, learned, gelu": {
        "norm": "post",
        "norm_epsilon": 1e-3,
        "positions": "learned",
        "source_prefix": (START_ID,),
        "attention_bias": ("key", "value", "output"),
        "scale_embeddings": False,
        "ff_activation": "gelu",
    },
    "no final norms, halves, silu": {
        "encoder_final_norm": False,
        "decoder_final_norm": False,
        "positions": "sinusoidal_halves",
        "position_offset": 1,
        "source_end": False,
        "tie_embeddings": "target",
        "ff_activation": "silu",
    },
    "post_dropout, final norms, paper halves, keys are values": {
        "norm": "post_dropout",
        "encoder_final_norm": True,
        "decoder_final_norm": True,
        "positions": "sinusoidal_paper_halves",
        "keys_are_values": True,
        "attention_bias": True,
    },
    "wide heads": {"key_dim": 5, "value_dim": 5},
    "T5 1.1": {
        "norm_type": "rms",
        "positions": "relative",
        "position_buckets": 6,
        "position_max_distance": 9,
        "ff_gated": True,
        "ff_bias": False,
        "ff_activation": "gelu_tanh",
        "tie_embeddings": "inputs",
    },
    "tables by layer, norms of embeddings, unlike widths": {
        "positions": "relative_by_layer",
        "position_max_distance": 40,
        "embedding_norm": True,
        "ff_activation": "gelu_sigmoid",
        "decoder_ff_dim": 11,
    },
}
FAMILY = {"norm": "post", "norm_epsilon": 1e-5, "positions": "sinusoidal_paper_halves"}


def random_translator(**options):
    """A translator whose weights are so large that translations differ early, and that gives
    padding and start no probability.
    """
    config = TransformerConfig(
        source_vocab_size=V, target_vocab_size=V, output_bias=True, **SIZES, **options
    )
    model = Transformer(config)
    model.build()
    draw = np.random.default_rng(7)
    for name, weight in model.named_weights.items():
        mean, deviation = (
            (1.0, 0.2) if name.endswith("gamma") else (0.0, 0.2 if weight.ndim == 1 else 0.4)
        )
        weight.assign(draw.normal(mean, deviation, weight.shape))
    bias = draw.normal(0.0, 0.2, V)
    bias[: END_ID + 1] = [-1e9, -1e9, 0.5]
    model.named_weights["output/bias"].assign(bias)
    return Translator(model, SubwordTokenizer.train(sentences("source", 100), V))


def padded(sources):
    """Sources as ids (N, S), with end tokens and padding."""
    rows = np.zeros((len(sources), max(map(len, sources)) + 1), "int32")
    for row, source in zip(rows, sources, strict=True):
        row[: len(source) + 1] = [*source, END_ID]
    return rows


# Two searches each.
@pytest.mark.parametrize(
    "options",
    with_long(HELD_BY_CTRANSLATE2, {*HELD_BY_CTRANSLATE2} - {"post, some biases, learned, gelu"}),
)
def test_ctranslate2_matches_model(options, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    translator = random_translator(**options)
    tokens = [f"token {i}" for i in range(V)]
    write_ctranslate2(translator.model, tokens, tokens, tmp_path / "model")
    engine = ctranslate2.Translator(
        str(tmp_path / "model"), compute_type="float32", intra_threads=1
    )
    draw = np.random.default_rng(5)
    sources = [draw.integers(END_ID + 1, V, draw.integers(1, 9)) for _ in range(200)]
    ids = padded(sources)
    for beam_size in (1, 4):
        settings = SearchSettings(
            beam_size=beam_size, length_penalty=0, max_length_factor=1000, max_length=20
        )
        ours = translator.functions.generate(ids, Limits(**settings.as_numbers()))
        limits = {
            "beam_size": beam_size,
            "length_penalty": 0,
            "min_decoding_length": 0,
            "max_decoding_length": 20,
        }
        actual = engine.translate_batch(
            [[tokens[i] for i in row] for row in sources], return_scores=True, **limits
        )
        rows = [[tokens[i] for i in row if i > END_ID] for row in ours.ids.numpy()[:, 0]]
        same = [result.hypotheses[0] == row for result, row in zip(actual, rows, strict=True)]
        scores = np.array([result.scores[0] for result in actual])
        assert len({tuple(row) for row in rows}) > 5
        # With several beams, CTranslate2 may go on when as many hypotheses as beams are finished;
        # see benchmarks/decoding.md.
        assert all(same) if beam_size == 1 else sum(same) >= 0.99 * len(same)
        np.testing.assert_allclose(scores[same], ours.scores.numpy()[same, 0], rtol=1e-5, atol=1e-4)


def test_ctranslate2_uses_shortlist(tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    draw = np.random.default_rng(6)
    likely = draw.integers(0, V, (V, 3)).astype("int32")
    likely[[PAD_ID, START_ID, END_ID, V // 2]] = PAD_ID  # tokens without candidates of their own
    shortlist = Shortlist(
        np.array([PAD_ID, START_ID, END_ID, UNKNOWN_ID, 9], "int32"), likely, V, sentences=1
    )
    plain = random_translator()
    ours = Translator(plain.model, plain.source_tokenizer, shortlist=shortlist)
    tokens = [f"token{i}" for i in range(V)]
    write_ctranslate2(ours.model, tokens, tokens, tmp_path / "model", shortlist=shortlist)
    engine = ctranslate2.Translator(
        str(tmp_path / "model"), compute_type="float32", intra_threads=1
    )
    sources = [draw.integers(END_ID + 1, V, draw.integers(1, 9)) for _ in range(100)]
    texts = [[tokens[i] for i in row] for row in sources]
    for beam_size in (1, 4):
        settings = SearchSettings(
            beam_size=beam_size, length_penalty=0, max_length_factor=1000, max_length=20
        )
        options = {
            "beam_size": beam_size,
            "length_penalty": 0,
            "min_decoding_length": 0,
            "max_decoding_length": 20,
            "return_scores": True,
        }
        actual, whole = (
            engine.translate_batch(texts, use_vmap=use, max_batch_size=1, **options)
            for use in (True, False)
        )
        expected = ours.functions.generate(padded(sources), Limits(**settings.as_numbers()))
        rows = [[tokens[i] for i in row if i > END_ID] for row in expected.ids.numpy()[:, 0]]
        same = [result.hypotheses[0] == row for result, row in zip(actual, rows, strict=True)]
        assert all(same) if beam_size == 1 else sum(same) >= 0.99 * len(same)
        scores = np.array([result.scores[0] for result in actual])
        np.testing.assert_allclose(
            scores[same], expected.scores.numpy()[same, 0], rtol=1e-5, atol=1e-4
        )
        # The map has an effect.
        pairs = zip(actual, whole, strict=True)
        assert sum(one.hypotheses != other.hypotheses for one, other in pairs) > 50


def test_tokens_with_spaces_are_refused(tmp_path):
    translator, shortlist = (
        random_translator(),
        Shortlist(np.arange(4, dtype="int32"), np.zeros((V, 1), "int32"), V, sentences=1),
    )
    tokens = ["a b", *(f"token{i}" for i in range(V - 1))]
    with pytest.raises(
        ValueError,
        match=(
            r"shortlist: expected tokens without spaces, .* for vmap.txt, got \['a b'\]; export "
            r"for"
        ),
    ):
        write_ctranslate2(translator.model, tokens, tokens, tmp_path / "model", shortlist=shortlist)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("tied", ["all", pytest.param("target", marks=pytest.mark.long), "none"])
def test_marian_folder_round_trip(tied, tmp_path):
    """Options that the family lacks become weights: biases of zero, and a projection of keys."""
    sides = [
        SubwordTokenizer.train(sentences(side, 200), 60, "bpe") for side in ("source", "target")
    ]
    options = {
        "keys_are_values": True,
        "attention_scale": "key_dim",
        "attention_bias": ["query"],
        "tie_embeddings": tied,
        "source_language": "de",
        **FAMILY,
    }
    model = of_transformer(sides[0], source_vocab_size=60, target_vocab_size=60, **options).model
    translator = Translator(model, sides[0], sides[0] if tied == "all" else sides[1])
    write_marian(translator, tmp_path / "folder")
    assert (tmp_path / "folder" / "target_vocab.json").exists() == (tied != "all")
    read = import_model(tmp_path / "folder")
    assert_same(read, translator)
    assert read.languages == ("de", None)
    assert read.search["beam_size"] == 4
    assert read.search["max_length"] == model.config.max_length - 1
    assert not [note for note in read.origin["notes"] if "bad_words_ids" in note]


@pytest.mark.parametrize(
    "options",
    [
        {"tags": TAGS, "dropped": ["▁ka", "lo", "▁ba"]},
        {"separate": True, "tie_word_embeddings": False},
    ],
    ids=str,
)
def test_imported_marian_round_trip(options, tmp_path):
    original = write_folder(tmp_path / "original", **options)
    translator = import_model(original)
    write_marian(translator, tmp_path / "written")
    assert_same(import_model(tmp_path / "written"), translator)
    before, after = (
        safetensors.numpy.load_file(tmp_path / name / "model.safetensors")
        for name in ("original", "written")
    )
    assert set(before) == set(after)
    # A start token of its own, and pieces that were lacking.
    tables = {name for name in before if before[name].shape != after[name].shape}
    assert len(tables) == (4 if "separate" in options else 2)
    for name in set(before) - tables:
        np.testing.assert_array_equal(before[name], after[name])
    vocabularies = [
        json.loads((tmp_path / name / "vocab.json").read_text()) for name in ("original", "written")
    ]
    assert set(vocabularies[0]) <= set(vocabularies[1])


def assert_same(read, translator):
    """The same ids of texts, the same texts of ids, and the same logits."""
    texts = random_texts(100)
    sides = [
        (read.source_tokenizer, translator.source_tokenizer),
        (read.target_tokenizer, translator.target_tokenizer),
    ]
    for one, other in sides:
        ids = other.encode(texts)
        assert one.encode(texts) == ids
        assert one.decode(ids) == other.decode(ids)
    draw = np.random.default_rng(3)
    sources, targets = (
        draw.integers(END_ID, tokenizer.vocab_size, (7, 11)) for _, tokenizer in sides
    )
    sources[3:, 5:] = PAD_ID
    targets[:, 0] = START_ID
    logits = [
        np.array(each.model({"source": sources, "target": targets})) for each in (read, translator)
    ]
    np.testing.assert_allclose(*logits, rtol=1e-5, atol=2e-5)


def test_unsupported_options_are_named(tmp_path):
    translator = of_transformer(
        SubwordTokenizer.train(sentences("source", 100), 15, "char"),
        key_dim=4,
        value_dim=7,
        decoder_final_norm=True,
    )
    with pytest.raises(ValueError) as error:
        export(translator, tmp_path / "out", ["ctranslate2", "huggingface"])
    assert str(error.value) == (
        "formats: expected a model with options that exist in ctranslate2 and huggingface, got "
        "options that CTranslate2 does not support: "
        "key_dim 4 and value_dim 7 (expected equal widths), and options that MarianMT of Hugging "
        "Face does not support: "
        "norm 'pre' (expected 'post' or 'post_dropout'); norm_epsilon 1e-06 (expected 1e-05); "
        "positions 'sinusoidal' (expected 'sinusoidal_paper_halves'); decoder_final_norm True "
        "(expected None or False); "
        "key_dim 4 (expected model_dim / num_heads, 6); value_dim 7 (expected model_dim / "
        "num_heads, 6). Nothing was written."
    )
    assert list(tmp_path.iterdir()) == []


def test_new_options_must_be_default():
    class LaterConfig(TransformerConfig):
        gated: bool = False

    sizes = {"source_vocab_size": 9, "target_vocab_size": 9, **SIZES, **FAMILY}
    for library in (CTRANSLATE2, MARIAN):
        assert unsupported_options(LaterConfig(**sizes), library) == []
        assert unsupported_options(LaterConfig(**sizes, gated=True), library) == [
            "gated True (expected False)"
        ]
        (refusal,) = unsupported_options(LanguageModelConfig(vocab_size=9), library)
        assert refusal == "architecture 'decoder' (expected 'encoder_decoder')"


def test_tying_needs_equal_tokenizers(tmp_path):
    sides = [SubwordTokenizer.train(sentences(side, 200), 60) for side in ("source", "target")]
    model = of_transformer(
        sides[0], source_vocab_size=60, target_vocab_size=60, tie_embeddings="all", **FAMILY
    ).model
    with pytest.raises(
        ValueError,
        match="MarianMT supports, got tie_embeddings 'all' with tokenizers whose pieces differ",
    ):
        write_marian(Translator(model, *sides), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def written(few_probes, tmp_path_factory):
    """The bundle of an imported model, what the command printed, and its export, which compares
    `MANY` texts: a few would not tell how many translations padding changes.
    """
    pytest.importorskip("ctranslate2")
    folder = tmp_path_factory.mktemp("libraries")
    original = write_folder(folder / "opus", tags=TAGS, encoder_layers=1, decoder_layers=1)
    translator = import_model(original, probes=["", *sentences("source", MANY, seed=3)])
    translator.save(folder / "bundle")
    arguments = [
        "export",
        str(folder / "bundle"),
        "--out",
        str(folder / "out"),
        "--format",
        "ctranslate2",
        "--format",
        "huggingface",
    ]
    done = CliRunner().invoke(main.app, arguments)
    assert done.exit_code == 0, done.output
    return translator, done.output.splitlines(), folder / "out"


def test_command_writes_both_folders(written):
    _, lines, out = written
    assert lines[0] == f"{out}:"
    assert [line.split()[0] for line in lines[1:4]] == [
        "ctranslate2",
        "huggingface",
        "parity.json",
    ]
    figures = json.loads((out / "parity.json").read_text())
    own = figures["ctranslate2"]["same_in_beam_search"]
    assert lines[4] == (
        f"Checked: CTranslate2: the same translations without length penalty, {MANY} of {MANY} in "
        f"greedy search, {own} of {MANY} in beam search."
    )
    assert lines[5].startswith("Checked: MarianMT: the same log-probabilities within ")
    assert lines[5].endswith(f" on {MANY + 1} sentences.")
    assert len(lines) == 6  # no command runs folders of other libraries
    # Padding has a tenth of this model's probabilities, and none there, which changes some
    # translations of a beam search.
    assert 0.8 * MANY <= own <= MANY
    assert figures["ctranslate2"]["same_without_padding_in_beam_search"] == MANY
    assert set(figures) == {"sentences", "ctranslate2", "huggingface"}
    assert figures["ctranslate2"]["largest_score_difference"] < 1e-4
    assert figures["huggingface"]["largest_token_score_difference"] < 1e-5


def test_ctranslate2_guide_code_runs(written):
    """In a process without this package and TensorFlow, with the lines that docs/exports.md has."""
    translator, _, out = written
    texts = sentences("source", 20, seed=8)
    code = f"""
import sys, json
sys.modules["tensorflow"] = sys.modules["tfk_transformer"] = None
import ctranslate2
from sentencepiece import SentencePieceProcessor
folder = {str(out / "ctranslate2")!r}
source = SentencePieceProcessor(model_file=f"{{folder}}/source.model")
target = SentencePieceProcessor(model_file=f"{{folder}}/target.model")
pieces = [source.id_to_piece(ids) for ids in source.encode({texts!r})]
options = {{"length_penalty": 0, "min_decoding_length": 0, "max_decoding_length": 20}}
results = ctranslate2.Translator(folder).translate_batch(pieces, beam_size=1, **options)
print(json.dumps([target.decode(result.hypotheses[0]).strip() for result in results]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ids = translator.source_tokenizer.encode(texts)
    settings = SearchSettings(beam_size=1, max_length=20, max_length_factor=1000)
    ours = translator.functions.generate(padded(ids), Limits(**settings.as_numbers())).ids.numpy()[
        :, 0
    ]
    assert json.loads(done.stdout) == translator.target_tokenizer.decode(ours.tolist())


def test_inspect_describes_both_folders(written, tmp_path):
    translator, _, out = written
    for name, kind in (("ctranslate2", "CTranslate2"), ("huggingface", "Hugging Face")):
        actual = inspect(out / name)
        assert (actual["kind"], actual["parameters"]) == (kind, translator.model.count_params())
        assert actual["config"] == translator.model.config.model_dump(mode="json")
        assert actual["parity"]["sentences"] >= MANY
        assert "config.json" in actual["files"]
    with pytest.raises(
        ValueError,
        match="got .*/ctranslate2, a folder of CTranslate2, which ctranslate2.Translator opens.$",
    ):
        load(out / "ctranslate2")
    with pytest.raises(
        ValueError,
        match=(
            r"/huggingface, a folder of transformers \(marian\), which `tfk-transformer import` "
            r"converts to a bundle.$"
        ),
    ):
        load(out / "huggingface")
    original = write_folder(tmp_path / "other")
    with pytest.raises(
        ValueError, match=r"FILE: expected .*, got .*/other, a folder of transformers \(marian\)"
    ):
        inspect(original)
    (original / "tfk_transformer.json").write_text('{"version": "1", "parameters": "many"}')
    with pytest.raises(
        ValueError,
        match="the description of an exported folder in .*, got one without parameters, config",
    ):
        inspect(original)


@pytest.mark.parametrize(
    ("format", "writer", "message"),
    [
        (
            "ctranslate2",
            "write_ctranslate2",
            (
                "CTranslate2: expected the model's translations of at least 99% of 100 probe "
                "sentences in greedy"
            ),
        ),
        pytest.param(
            "huggingface",
            "write_marian",
            (
                "MarianMT: expected the model's log-probabilities of the tokens of 101 probe "
                "translations, got differences of up to"
            ),
            marks=pytest.mark.long,  # an export each
        ),
    ],
)
def test_differing_folder_is_refused(written, tmp_path, monkeypatch, format, writer, message):
    translator, _, _ = written
    write = getattr(library_files, writer)
    model = type(translator.model)(translator.model.config)
    model.build()
    other = Translator(model, translator.source_tokenizer, translator.target_tokenizer)
    changed = {
        "write_ctranslate2": lambda _, *more, **named: write(model, *more, **named),
        "write_marian": lambda _, *more: write(other, *more),
    }
    monkeypatch.setattr(library_files, writer, changed[writer])
    with pytest.raises(parity.ParityError, match=message):
        export(translator, tmp_path / "out", [format])
    assert list(tmp_path.iterdir()) == []


def test_check_share_allows_one_percent():
    parity.check_share("X", "beam search", [True] * 99 + [False], 1e-4)
    with pytest.raises(
        parity.ParityError,
        match=(
            "X: expected .* at least 99% of 100 probe sentences in beam search, got 98 "
            "that are equal, with"
        ),
    ):
        parity.check_share("X", "beam search", [True] * 98 + [False] * 2, 1e-4)
    for difference in (0.01, np.nan):
        with pytest.raises(
            parity.ParityError, match="got 100 that are equal, with log-probabilities that differ"
        ):
            parity.check_share("X", "beam search", [True] * 100, difference)


def test_missing_package_is_named_first(tmp_path):
    for name in ("config.json", "source.model"):
        (tmp_path / name).write_text("{}")
    code = (
        "import sys; sys.modules['ctranslate2'] = sys.modules['tensorflow'] = None\nfrom "
        "tfk_transformer.apps.cli.main import main\nmain()"
    )
    arguments = ["export", str(tmp_path), "--out", str(tmp_path / "out"), "--format", "ctranslate2"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    line = f"error: ctranslate2 is not installed. Install it with: {install_line('ctranslate2')}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", line)
