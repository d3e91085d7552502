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
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

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
const result = [];
for (const model of models) {
  const { encode, decode, pieces } = await openTokenizer(new Uint8Array(readFileSync(model)));
  const ids = texts.map(encode);
  result.push({ ids, texts: rows.map(decode), pieces: pieces([0, 1, 2, 3, 9, 20]) });
}
console.log(JSON.stringify(result));
"""


def node(*arguments, text=None):
    done = subprocess.run(
        ["node", *map(str, arguments)], input=text, capture_output=True, encoding="utf-8"
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
    text = json.dumps(
        {"models": list(map(str, files)), "texts": texts, "rows": [[*row, 2, 7] for row in rows]}
    )
    status, out, error = node(
        "--input-type=module", "-e", TOKENIZE, web / "tokenizer.mjs", text=text
    )
    assert (status, error) == (0, "")
    for name, processor, actual in zip(TOKENIZERS, processors, json.loads(out), strict=True):
        assert actual["ids"] == [[*processor.encode(text), 2] for text in texts], name
        assert actual["texts"] == [processor.decode(row).strip(" \t\n\r\v\f") for row in rows], name
        assert actual["pieces"] == [processor.id_to_piece(i) for i in (0, 1, 2, 3, 9, 20)], name


LACKS = """
const { readFileSync } = await import("node:fs");
const { openTokenizer } = await import(process.argv[1]);
for (const model of JSON.parse(readFileSync(0, "utf8"))) {
  const { lacks } = await openTokenizer(new Uint8Array(readFileSync(model)));
  console.log([..."a[今"].map(lacks).join());
}
"""


def test_whole_tokens_match_python(web, tmp_path):
    rules = {"characters": HOSTILE, "words": LINES, r"\[[^\]]+]|Cl?|[NO=()]": ["C(=O)Cl[C@H]N"]}
    tokenizers = [SubwordTokenizer.train(rules[rule], 999, tokens=rule) for rule in rules]
    files = [str(tmp_path / f"{number}.model") for number in range(len(tokenizers))]
    for tokenizer, file in zip(tokenizers, files, strict=True):
        tokenizer.save(file)
    texts = [*LINES, *HOSTILE, "C(=O)Cl[C@H]N", "CC[Na+]C今Cl"]
    rows = [[4, 3, 5], [5, 5, 4, 6], []]
    text = json.dumps({"models": files, "texts": texts, "rows": rows})
    script = (web / "tokenizer.mjs").as_uri()
    command = ("--input-type=module", "-e")
    status, out, error = node(*command, TOKENIZE, web / "tokenizer.mjs", text=text)
    assert (status, error) == (0, "")
    for tokenizer, actual in zip(tokenizers, json.loads(out), strict=True):
        assert actual["ids"] == [[*row, END_ID] for row in tokenizer.encode(texts)]
        assert actual["texts"] == tokenizer.decode(rows)
    assert node(*command, LACKS, script, text=json.dumps(files)) == (
        0,
        "false,false,true\nfalse,false,false\nfalse,false,false\n",
        "",
    )


def test_program_matches_python(web, translator):
    texts = [spell(number, "en") for number in range(198)] + ["no number at all", ""]
    status, out, error = node(
        web / "translate-cli.mjs",
        "--json",
        "--n-best",
        2,
        text="".join(f"{text}\n" for text in texts),
    )
    assert (status, error) == (0, "")
    actual = [json.loads(line) for line in out.splitlines()]
    expected = translator.translate(texts, n_best=2)
    assert [[each["text"] for each in row["hypotheses"]] for row in actual] == [
        [each.text for each in row.hypotheses] for row in expected
    ]
    scores = [each["score"] for row in actual for each in row["hypotheses"]]
    np.testing.assert_allclose(
        scores, [each.score for row in expected for each in row.hypotheses], atol=1e-4
    )
    source_ids = padded_ids(translator.source_tokenizer.encode(texts[:50]))
    ids, _ = translator.generate(source_ids)
    assert [[number for number in row["ids"] if number > END_ID] for row in actual[:50]] == [
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
    assert status == 0
    assert lines[0][0] == "sieben"
    assert float(lines[0][1]) >= float(lines[1][1])


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
    (
        "seven " * 40,
        {"splitSentences": False},
        "text: expected at most 32 tokens, got more; split it into sentences.",
    ),
    ("seven", {"splitSentences": 0}, "splitSentences: expected true or false, got 0."),
    ("seven", {"language": "d e"}, 'language: expected a language code such as "de", got "d e".'),
    (7, {}, "text: expected a string, got number."),
    (
        "seven",
        {"beams": 2},
        f"settings: expected some of {', '.join(sorted(SETTING_DTYPES))}, got beams.",
    ),
    ("seven", {"beam_size": 0}, "beam_size: expected an integer from 1 to 80, got 0."),
    ("seven", {"beam_size": 1.5}, "beam_size: expected an integer from 1 to 80, got 1.5."),
    ("seven", {"top_p": 0}, "top_p: expected a number above 0 to 1, got 0."),
    (
        "seven",
        {"temperature": 0.0001},
        "temperature: expected a number from 0 to 1000 and at least 0.001 if not 0, got 0.0001.",
    ),
    (
        "seven",
        {"min_length": 9, "max_length": 8},
        "min_length: expected at most max_length, got min_length 9 and max_length 8.",
    ),
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
    text = json.dumps([tried[:2] for tried in REFUSED])
    status, out, error = node(
        "--input-type=module", "-e", code, (web / "translate.mjs").as_uri(), text=text
    )
    assert (status, error) == (0, "")
    assert out.splitlines() == [*(message for *_, message in REFUSED), "sieben"]


TRANSLATE = """
const { openTranslator } = await import(process.argv[1]);
const translator = await openTranslator();
const tasks = JSON.parse((await import("node:fs")).readFileSync(0, "utf8"));
const results = [];
for (const [text, options] of tasks) results.push(await translator.translate(text, options));
console.log(JSON.stringify(results));
"""
PARAGRAPH = "forty-two. seven! Is it nine?  eight\n\n  one hundred ninety-nine.\r\n"
# Texts, and the number of their sentences.
TEXTS = {
    "paragraph": PARAGRAPH,
    "blanks": " \tforty-two \n",
    "blank": " \n",
    "emoji": "😀 seven",
    "emoji in the middle": "one hundred 👩‍👩‍👧 forty-two!",
    "emoji alone": "😀 👍🏽",
    "unknown word": "seven Tage and nine",
    "capitals": "Forty-two. SEVEN! Ärger",
    "punctuation": "...",
    "punctuation lines": "-\nseven\n(!)",
    "long": "one hundred and ninety-nine, " * 20,
    "long word": "seven" * 60,
    "title": 'Dr. seven. "nine!" eight.',
}


@pytest.fixture(scope="module")
def in_node(web, translator):
    """The result of each of TEXTS in Node and in Python, with two hypotheses."""
    text = json.dumps([[text, {"n_best": 2}] for text in TEXTS.values()])
    url = (web / "translate.mjs").as_uri()
    status, out, error = node("--input-type=module", "-e", TRANSLATE, url, text=text)
    assert (status, error) == (0, "")
    expected = translator.translate(list(TEXTS.values()), n_best=2)
    return dict(zip(TEXTS, zip(json.loads(out), expected, strict=True), strict=True))


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_as_in_python(in_node, name):
    result, expected = in_node[name]
    assert [each["text"] for each in result["hypotheses"]] == [
        each.text for each in expected.hypotheses
    ]
    scores = [each["score"] for each in result["hypotheses"]]
    np.testing.assert_allclose(scores, [each.score for each in expected.hypotheses], atol=1e-4)
    assert [each["source"] for each in result.get("sentences", [])] == [
        each.source for each in expected.sentences
    ]
    assert result.get("keptCharacters", 0) == expected.kept_characters


def test_a_paragraph_has_five_sentences(in_node):
    result, _ = in_node["paragraph"]
    texts = [sentence["text"] for sentence in result["sentences"]]
    assert texts[:2] + texts[3:] == [
        "zweiundvierzig.",
        "sieben!",
        "acht",
        "einhundertneunundneunzig.",
    ]
    assert result["text"] == "{} {} {}  {}\n\n  {}\r\n".format(*texts)
    assert "ids" not in result
    assert all(sentence["ids"] for sentence in result["sentences"])


def test_an_emoji_is_put_back(in_node):
    result, _ = in_node["emoji"]
    assert (result["text"], result["keptCharacters"]) == ("😀 sieben", 1)
    result, _ = in_node["emoji in the middle"]
    assert "👩‍👩‍👧" in result["text"]
    assert result["keptCharacters"] == 6


def test_punctuation_stays_as_it_is(in_node):
    for name in ("punctuation", "emoji alone"):
        result, _ = in_node[name]
        assert (result["text"], result["score"], result["ids"]) == (TEXTS[name], 0, [])


def test_a_long_sentence_is_cut(in_node):
    for name in ("long", "long word"):
        result, _ = in_node[name]
        assert len(result["sentences"]) > 1
        sources = "".join(sentence["source"] for sentence in result["sentences"])
        assert sources.replace(" ", "") == TEXTS[name].replace(" ", "")


def test_program_may_not_split_texts(web, translator):
    text = "forty-two. seven."
    status, out, _ = node(web / "translate-cli.mjs", "--no-split-sentences", text)
    expected = translator.translate([text], split_sentences=False)[0].text
    assert (status, out) == (0, f"{expected}\n")
    assert "sieben" not in expected
    assert node(web / "translate-cli.mjs", text)[1] == "zweiundvierzig. sieben.\n"


SPLIT = """
const { splitText } = await import(process.argv[1]);
const texts = JSON.parse((await import("node:fs")).readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map(([language, text]) => splitText(text, language))));
"""
SENTENCES = {
    "titles": ("en", ["Dr. Smith met Mrs. Lee.", "It was late."]),
    "quotations": ("en", ["“Yes!” he said.", "We left.", "`print!` is `a!` call.", "`b` is one."]),
    "lower case": ("en", ["he ran.", "5 dogs sat, etc. and more.", "it costs 3.5 euros."]),
    "German": ("deu_Latn", ["„Hallo!“ sagte er.", "»Ja.«", "Das sind bzw. waren sie."]),
    "Greek": ("el", ["Τι κάνεις;", "Καλά."]),
}


def test_sentences_end_at_their_marks(web):
    texts = [[language, " ".join(sentences)] for language, sentences in SENTENCES.values()]
    texts.append(["ja", "今日は。いい天気！"])
    url = (web / "sentences.mjs").as_uri()
    status, out, error = node("--input-type=module", "-e", SPLIT, url, text=json.dumps(texts))
    assert (status, error) == (0, "")
    *results, japanese = json.loads(out)
    for name, (_, sentences), result in zip(SENTENCES, SENTENCES.values(), results, strict=True):
        assert result["sentences"] == sentences, name
    assert japanese == {"sentences": ["今日は。", "いい天気！"], "blanks": ["", "", ""]}
