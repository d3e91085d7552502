"""The web folder in Node: the program, the module, and SentencePiece compiled to WebAssembly
against SentencePiece in Python.
"""

import io
import json
import random
import shutil
import subprocess

import numpy as np
import pytest
import sentencepiece
from web_needs import needs, needs_node

from tfk_transformer.config.search_settings import SETTING_DTYPES
from tfk_transformer.constants import END_ID
from tfk_transformer.datasets.numbers import spell
from tfk_transformer.inference.token_scoring import padded_ids

pytestmark = [needs_node(), needs("onnxruntime-web", "sentencepiece-js")]

LINES = [
    "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster.",
    "Two dogs play in the snow, 3 of 12 times.",
    "你好,世界。今天天气很好。",
    "Привет, мир! ΑΒΓ αβγ",
    "नमस्ते दुनिया é ü Å",
]
HOSTILE = [
    *(
        "",
        " ",
        "   ",
        "\t\n",
        "a  b   c",
        " lead",
        "trail ",
        "a\u00a0b\u2003c\u3000d",
        "\r\n x \r y",
        "\x85 \u2028 \u2029",
    ),
    *(
        "\u200b zero\u200bwidth\u200d \ufeff",
        "\x01\x02\x1f\x7f",
        "\u202eabc\u202c",
        "\uf8ff",
        "\U0010ffff \uffff \ufffd",
        "\U000e0041tags",
    ),
    *(
        "🙂",
        "👩‍👩‍👧‍👦 family 🏳️‍🌈 👍🏽",
        "e\u0301 é Å \u212b A\u030a\u0323 \u0300\u0301",
        "ﬁ ﬂ ﬀ ①② ½ ™ ㍿ ﷺ",
        "ＡＢＣ ｱｲｳ ｶﾞ",
        "\u1112\u1161\u11ab 한국어",
    ),
    *(
        "مرحبا بالعالم",
        "שלום",
        "ก็",
        "𝕳𝖊𝖑𝖑𝖔 𝟙𝟚",
        "ẛ̣ ſ ß ẞ İ ı Ǆ ǅ ŉ",
        "...…‥ ''‘’“”«»",
        "ｈｔｔｐ：／／ｅｘａｍｐｌｅ．ｃｏｍ",
    ),
    *(
        "<x> [[A]] a<x>b [[A]][[A]] €€€",
        "▁foo ▁▁ _",
        "<s> </s> <pad> <unk> <0x41> <0xE4>",
        "a" * 3000,
        "wort " * 600,
    ),
]
TOKENIZERS = {
    "unigram, nmt_nfkc": {"model_type": "unigram"},
    "bytes": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 360},
    "characters": {"model_type": "char"},
    "symbols, identity": {
        "normalization_rule_name": "identity",
        "user_defined_symbols": ["<x>", "[[A]]", "€€", "▁foo"],
        "remove_extra_whitespaces": False,
    },
    "suffixes, nfkc_cf": {
        "normalization_rule_name": "nfkc_cf",
        "treat_whitespace_as_suffix": True,
        "split_digits": True,
    },
}
IDS = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}

# Encodes texts, and decodes rows of ids, with each model.
TOKENIZE = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const { openTokenizer } = await import(pathToFileURL(process.argv[1]).href);
const { models, texts, rows } = JSON.parse(readFileSync(0, "utf8"));
const found = [];
for (const model of models) {
  const { encode, decode, pieces } = await openTokenizer(new Uint8Array(readFileSync(model)));
  const ids = texts.map(encode);
  found.push({ ids, texts: rows.map(decode), pieces: pieces([0, 1, 2, 3, 9, 20]) });
}
console.log(JSON.stringify(found));
"""


def node(*arguments, given=None):
    done = subprocess.run(
        ["node", *map(str, arguments)], input=given, capture_output=True, encoding="utf-8"
    )
    return done.returncode, done.stdout, done.stderr


def trained(path, vocab_size=90, **options):
    """Train a tokenizer, and return it and the file of its model."""
    model = io.BytesIO()
    options = {
        "hard_vocab_limit": options.get("model_type") == "bpe",
        "character_coverage": 1.0,
        "minloglevel": 2,
        **IDS,
        **options,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 3), model_writer=model, vocab_size=vocab_size, **options
    )
    path.write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def test_tokenizer_matches_python(web, tmp_path):
    files = [tmp_path / f"{number}.model" for number in range(len(TOKENIZERS))]
    processors = [
        trained(file, **options) for file, options in zip(files, TOKENIZERS.values(), strict=True)
    ]
    draw = random.Random(1)
    mixed = [
        "".join(draw.choices("".join(HOSTILE[:-2]), k=draw.randint(1, 30))) for _ in range(100)
    ]
    texts = LINES + HOSTILE + mixed
    rows = [[draw.randrange(3, 60) for _ in range(draw.randint(0, 15))] for _ in range(100)]
    given = json.dumps(
        {"models": list(map(str, files)), "texts": texts, "rows": [[*row, 2, 7] for row in rows]}
    )
    status, out, error = node(
        "--input-type=module", "-e", TOKENIZE, web / "tokenizer.mjs", given=given
    )
    assert (status, error) == (0, "")
    for name, processor, found in zip(TOKENIZERS, processors, json.loads(out), strict=True):
        assert found["ids"] == [[*processor.encode(text), 2] for text in texts], name
        assert found["texts"] == [processor.decode(row).strip(" \t\n\r\v\f") for row in rows], name
        assert found["pieces"] == [processor.id_to_piece(i) for i in (0, 1, 2, 3, 9, 20)], name


def test_program_matches_python(web, translator):
    texts = [spell(number, "en") for number in range(198)] + ["no number at all", ""]
    status, out, error = node(
        web / "translate-cli.mjs",
        "--json",
        "--n-best",
        2,
        given="".join(f"{text}\n" for text in texts),
    )
    assert (status, error) == (0, "")
    found = [json.loads(line) for line in out.splitlines()]
    expected = translator.translate(texts, n_best=2)
    assert [[each["text"] for each in row["hypotheses"]] for row in found] == [
        [each.text for each in row.hypotheses] for row in expected
    ]
    scores = [each["score"] for row in found for each in row["hypotheses"]]
    np.testing.assert_allclose(
        scores, [each.score for row in expected for each in row.hypotheses], atol=1e-4
    )
    source_ids = padded_ids(translator.source_tokenizer.encode(texts[:50]))
    ids, _ = translator.generate(source_ids)
    assert [[number for number in row["ids"] if number > END_ID] for row in found[:50]] == [
        row[row > END_ID].tolist() for row in ids[:, 0]
    ]


@pytest.mark.long  # Node opens a model
def test_program_writes_one_line_each(web):
    assert node(web / "translate-cli.mjs", "forty-two", "seven") == (
        0,
        "zweiundvierzig\nsieben\n",
        "",
    )
    status, out, _ = node(web / "translate-cli.mjs", "--beam-size", 3, "--n-best", 2, "seven")
    lines = [line.split("\t") for line in out.splitlines()]
    assert status == 0 and lines[0][0] == "sieben" and float(lines[0][1]) >= float(lines[1][1])


@pytest.mark.long  # Node opens a model
@pytest.mark.skipif(not shutil.which("npx"), reason="npx is not installed")
def test_npx_runs_the_folder(web, tmp_path):
    command = ["npx", "--offline", "--yes", "--cache", tmp_path / "cache", web, "forty-two"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "zweiundvierzig\n"), done.stderr


def test_program_refuses_wrong_options(web):
    status, out, error = node(web / "translate-cli.mjs", "--beams", 2, "seven")
    assert (status, out, error.count("\n")) == (1, "", 1)
    assert error.startswith("Unknown option '--beams'.")


REFUSED = [
    ("a\0b", {}, "text: expected text, got the character U+0000 at position 2; remove it."),
    ("🙂\ud800", {}, "text: expected text, got the character U+D800 at position 2; remove it."),
    ("seven " * 40, {}, "text: expected at most 32 tokens, got more; split it into sentences."),
    (7, {}, "text: expected a string, got number."),
    (
        "seven",
        {"beams": 2},
        f"settings: expected some of {', '.join(sorted(SETTING_DTYPES))}, got beams.",
    ),
    ("seven", {"beam_size": 0}, "beam_size: expected an integer from 1 to 80, got 0."),
    ("seven", {"beam_size": 1.5}, "beam_size: expected an integer from 1 to 80, got 1.5."),
    ("seven", {"top_p": 0}, "top_p: expected a number above 0 to 1, got 0."),
    ("seven", {"n_best": 5}, "n_best: expected at most beam_size, got n_best 5 and beam_size 4."),
]


def test_module_refuses_like_python(web):
    code = """
    const { openTranslator } = await import(process.argv[1]);
    const translator = await openTranslator();
    const tried = JSON.parse((await import("node:fs")).readFileSync(0, "utf8"));
    const refused = ({ message }) => console.log(message);
    for (const [text, settings] of tried) await translator.translate(text, settings).catch(refused);
    console.log((await translator.translate("seven")).text);
    """
    given = json.dumps([tried[:2] for tried in REFUSED])
    status, out, error = node(
        "--input-type=module", "-e", code, (web / "translate.mjs").as_uri(), given=given
    )
    assert (status, error) == (0, "")
    assert out.splitlines() == [*(message for *_, message in REFUSED), "sieben"]
