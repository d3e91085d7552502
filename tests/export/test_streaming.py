import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import sentencepiece

from tfk_transformer import Translator
from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.export import parity
from tfk_transformer.export.exporting import export
from tfk_transformer.export.runtime.onnx_runtime import OnnxStreamer, OnnxTranslator
from tfk_transformer.export.runtime.saved_model_runtime import SavedModelTranslator
from tfk_transformer.export.to_saved_model.writer import write_saved_model
from tfk_transformer.inference.signatures import TRANSLATE
from tfk_transformer.inference.streaming import join_pieces, next_tokens
from tfk_transformer.models.transformer import Transformer
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

TEXTS = [
    "forty-two",
    "one hundred ninety-nine",
    "",
    "  ",
    "seven",
    "no number at all",
    "Ünïcödé ﬁ ½ 中",
]
SETTINGS = [
    {},
    {"max_length": 2},
    {"max_length_factor": 0.1, "min_length": 20},
    {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2, "min_length": 7},
    {"temperature": 1.5, "seed": 7},
    {
        "temperature": 2.0,
        "top_k": 20,
        "top_p": 0.9,
        "seed": 3,
        "min_length": 9,
        "repetition_penalty": 1.2,
        "beam_size": 1,
    },
]
KINDS = ["bundle", "saved_model", "translate.onnx"]


@pytest.mark.parametrize("settings", SETTINGS)
def test_stream_matches_translate(models, settings):
    translations = models["bundle"].translate(TEXTS, **{"beam_size": 1, **settings})
    expected = [translation.text for translation in translations]
    for kind in KINDS:
        streamed = ["".join(models[kind].stream(text, **settings)) for text in TEXTS]
        assert streamed == expected, kind


@pytest.mark.parametrize("kind", KINDS)
def test_stream_yields_parts(models, kind):
    drawn = {"temperature": 1.5, "min_length": 12, "seed": 1}
    (actual,) = models["bundle"].translate(["one hundred ninety-nine"], beam_size=1, **drawn)
    parts = list(models[kind].stream("one hundred ninety-nine", **drawn))
    assert "".join(parts) == actual.text
    assert len(parts) > 8
    assert all(parts)


def test_streams_are_independent(models):
    streams = [models["bundle"].stream(text) for text in ("one hundred ninety-nine", "forty-two")]
    begun = [next(stream) for stream in streams]
    texts = [first + "".join(stream) for first, stream in zip(begun, streams, strict=True)]
    assert texts == ["einhundertneunundneunzig", "zweiundvierzig"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (
            "one " * 10000,
            {"split_sentences": False},
            "text: expected at most 32 tokens, got .* in 'one one .*…'; split it into sentences",
        ),
        (["one"], {}, "text: expected a string, got list; a stream translates one text"),
        (
            "one",
            {"beam_size": 4},
            "beam_size: expected 1, got 4; streamed text cannot be revised",
        ),
        ("one", {"top_p": 2.0}, "top_p"),
        ("one", {"beamsize": 1}, "beamsize"),
    ],
)
def test_stream_refuses_bad_requests(models, kind, text, settings, message):
    with pytest.raises(ValueError, match=message):
        models[kind].stream(text, **settings)


def test_stream_needs_step_files(exported, small, tmp_path):
    (tmp_path / "translate.onnx").write_bytes((exported / "translate.onnx").read_bytes())
    with pytest.raises(
        ValueError,
        match="expected decoder_step.onnx in .*; export the bundle with the format onnx_steps",
    ):
        OnnxTranslator(tmp_path / "translate.onnx").stream("one")
    write_saved_model(small, small.functions, tmp_path / "saved_model", {"translate": TRANSLATE})
    with pytest.raises(
        ValueError, match=r"expected the signature 'decoder_step', got \['translate'\]"
    ):
        SavedModelTranslator(tmp_path / "saved_model").stream("one")


# Text out of tokens.


def test_join_pieces_holds_blanks():
    pieces = ["", " a", " ", "b", "\n", " ", "c "]
    actual = list(join_pieces([0, 2, 1, 2, 5, 3, 4, 0, 6, 5], pieces))
    assert actual == ["", "", "a", "", "", "  b", "", "", "\nc", "", ""]
    assert list(join_pieces([2, 5], pieces)) == ["", "", ""]
    assert list(join_pieces([], pieces)) == [""]


def test_join_pieces_holds_bytes():
    pieces = ["x", *("\udce2", "\udc82", "\udcac")]  # the three bytes of the euro sign
    assert list(join_pieces([0, 1, 2, 3, 0], pieces)) == ["x", "", "", "€", "x", ""]
    assert "".join(join_pieces([0, 1, 2, 0, 3, 1], pieces)) == "x\ufffd\ufffdx\ufffd\ufffd"


def test_join_pieces_matches_decode():
    model = io.BytesIO()
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
    texts = iter(["one two three four five six"] * 9)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=texts,
        model_writer=model,
        vocab_size=290,
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
        **ids,
    )
    tokenizer = SubwordTokenizer(model.getvalue())
    rows = (
        tokenizer.encode(["one € two", "中文 ½", "six"])
        + np.random.default_rng(0).integers(4, tokenizer.vocab_size, (50, 9)).tolist()
    )
    assert len(rows[1]) > 6
    assert ["".join(join_pieces(row, tokenizer.pieces())) for row in rows] == tokenizer.decode(rows)


# The files by themselves.


def test_stream_runs_without_tensorflow(exported, tmp_path):
    for name in ("tokenizer.onnx", "encoder.onnx", "decoder_step.onnx"):
        (tmp_path / name).write_bytes((exported / name).read_bytes())
    code = """
import sys
missing = "tensorflow keras tensorflow_text tf2onnx onnx pydantic sentencepiece".split()
sys.modules.update(dict.fromkeys(missing))
import tfk_transformer as tfk
model = tfk.load(sys.argv[1] + "/decoder_step.onnx", threads=1)
print(*model.stream("forty-two"), sep="|")
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)
    assert done.stdout.replace("|", "") == "zweiundvierzig\n" and "|" in done.stdout, done.stderr


def test_steps_are_portable_and_small(exported, translator):
    config, sizes = translator.model.config, 0
    for name in ("encoder.onnx", "decoder_step.onnx"):
        model = onnx.load(exported / name)
        onnx.checker.check_model(model)
        assert {entry.domain for entry in model.opset_import} == {""}
        sizes += sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer)
    outputs = [value.name for value in model.graph.output]
    cache = [
        f"next_cache_{layer}_{part}"
        for layer in range(config.decoder_layers)
        for part in ("key", "value")
    ]
    assert outputs == ["logits", "next_token", "log_prob", *cache]
    # Each weight once, but for the table that reads tokens on both sides; positions are no weights.
    shared = config.target_vocab_size * config.model_dim
    assert (
        sizes
        < translator.model.count_params() + shared + 2 * config.max_length * config.model_dim + 1000
    )


def test_batched_steps_match_single(models, translator):
    ids = parity.probe_ids(
        ["forty-two", "one hundred ninety-nine", "", "seven"], translator.source_tokenizer, 32
    )
    settings = SearchSettings(beam_size=1).as_arrays()
    together = np.stack(list(next_tokens(models["saved_model"].runtime, ids, settings)), axis=1)
    assert translator.target_tokenizer.decode(together) == [
        "zweiundvierzig",
        "einhundertneunundneunzig",
        "",
        "sieben",
    ]


def test_streamer_metadata_is_complete(exported, translator):
    metadata = OnnxStreamer(exported).metadata
    assert metadata["pieces"] == translator.target_tokenizer.pieces()
    assert metadata["parity"]["ids"] == "equal"
    assert metadata["parity"]["settings"] == [{"beam_size": 1}]
    assert json.loads((exported / "parity.json").read_text())["onnx_steps"] == {"ids": "equal"}


def test_the_documented_loop_streams(exported, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "streaming.md").read_text(encoding="utf-8")
    (code,) = [
        code
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "import onnxruntime" in code
    ]
    assert len(code.strip().splitlines()) <= 30
    assert "tfk_transformer import" not in code
    code = code.replace("numbers-files", str(exported))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.strip() == "zweiundvierzig", done.stderr


def test_differing_tokens_are_refused():
    rows = np.array([[4, 5, 2], [6, 2, 0]])
    parity.check_tokens("x", rows, np.array([[0, 4, 5, 2], [6, 2, 0, 0]]))
    with pytest.raises(
        parity.ParityError,
        match="x: expected the model's translations of 2 probe sentences, got 1 with different ids",
    ):
        parity.check_tokens("x", rows, np.array([[4, 5, 5], [6, 2, 0]]))


# Other models.


# An export each. test_prompts.py streams from another model in the short tests.
@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {
            "keys_are_values": True,
            "shared_projections": True,
            "positions": "learned",
            "norm": "post",
            "source_prefix": (7, 9),
            "source_suffix": (5,),
        },
        {
            "key_dim": 3,
            "value_dim": 5,
            "tie_embeddings": "all",
            "output_bias": True,
            "attention_bias": True,
            "target_prefix": (2, 9),
        },
    ],
)
def test_other_options_stream_from_onnx(translator, tmp_path, monkeypatch, options):
    size = translator.source_tokenizer.vocab_size
    sizes = {
        "model_dim": 14,
        "num_heads": 2,
        "ff_dim": 13,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "max_length": 16,
    }
    model = Transformer(
        TransformerConfig(source_vocab_size=size, target_vocab_size=size, **sizes, **options)
    )
    model.build()
    random = np.random.default_rng(3)
    model.set_weights([random.normal(size=weight.shape) * 0.7 for weight in model.get_weights()])
    other = Translator(model, translator.source_tokenizer)
    monkeypatch.setattr(parity, "PROBES", 12)
    export(other, tmp_path / "out", ["onnx_steps"])
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        ["decoder_step.onnx", "encoder.onnx", "tokenizer.onnx", "parity.json"]
    )
    for text, actual in zip(TEXTS, other.translate(TEXTS, beam_size=1), strict=True):
        assert "".join(OnnxStreamer(tmp_path / "out").stream(text)) == actual.text


def test_half_precision_model_streams(translator):
    model = Transformer(translator.model.config, dtype="mixed_bfloat16")
    model.build()
    model.set_weights(translator.model.get_weights())
    half = Translator(model, translator.source_tokenizer)
    assert "".join(half.stream("forty-two")) == "zweiundvierzig"
