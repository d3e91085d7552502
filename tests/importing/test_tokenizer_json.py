"""Files of the package tokenizers, which each test trains, next to their SentencePiece models."""

import json
import random

import pytest
import sentencepiece
from multilingual_folder import (
    MODEL,
    NLLB_LANGUAGES,
    SPECIAL,
    arrays_of,
    config_of,
    write_mbart,
    write_nllb,
)
from safetensors.numpy import save_file

from tfk_transformer.datasets.number_words import spell
from tfk_transformer.importing.hugging_face import tokenizer_json
from tfk_transformer.importing.hugging_face.tokenizer_json import read_tokenizer_json
from tfk_transformer.importing.model_import import import_model

tokenizers = pytest.importorskip("tokenizers")

SCRIPTS = [
    "Все люди рождаются свободными и равными в своём достоинстве и правах.",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
]
LEARNED = [*(spell(number, side) for number in range(300) for side in ("en", "de")), *SCRIPTS] * 2
UNKNOWN = ["꧁ seven ꧂", "seven  ꧁꧂꧁  eight", "a\tb　c", "½ ﬁ Ünïcödé", "", "-- 🫠 --"]
BLANKS = tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " ")
METASPACE = tokenizers.pre_tokenizers.Metaspace()


def texts():
    """Learned texts, parts and mixtures of them, and texts with unknown characters."""
    draw = random.Random(1)
    words = [word for text in LEARNED for word in text.split()]
    mixed = [
        " ".join(draw.choices(words, k=5)) + "".join(draw.choices("".join(SCRIPTS), k=9)).strip()
        for _ in range(500)
    ]
    return [*LEARNED, *SCRIPTS, *UNKNOWN, *mixed]


def trained(model, path, pre_tokenizer=METASPACE, normalizer=BLANKS, added=(), **options):
    """Train a model on the texts, and save it."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.normalizer = pre_tokenizer, normalizer
    name = f"{type(model).__name__.replace('BPE', 'Bpe')}Trainer"
    special = {"special_tokens": [*SPECIAL, *added], "show_progress": False}
    tokenizer.train_from_iterator(
        LEARNED, getattr(tokenizers.trainers, name)(vocab_size=500, **special, **options)
    )
    tokenizer.save(str(path))
    return tokenizer


def bpe(**options):
    return tokenizers.models.BPE(**{"unk_token": "<unk>", "fuse_unk": True, **options})


def assert_same_ids(tokenizer, path, ties=False):
    """Compare all texts; with `ties`, other pieces may have the same score."""
    rows, _, model = read_tokenizer_json(path, "copy it")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    for text in texts():
        pieces = processor.id_to_piece(processor.encode(text))
        expected = tokenizer.encode(text, add_special_tokens=False)
        if ties and pieces != expected.tokens:
            sums = [
                sum(map(processor.get_score, map(processor.piece_to_id, each)))
                for each in (pieces, expected.tokens)
            ]
            assert sums[0] == pytest.approx(sums[1], abs=1e-4), text
        else:
            assert [rows[piece] for piece in pieces] == expected.ids, text


def test_bpe_with_word_marks_has_the_same_ids(tmp_path):
    path = tmp_path / "tokenizer.json"
    assert_same_ids(trained(bpe(), path), path)


def test_bpe_of_whole_texts_with_bytes_has_the_same_ids(tmp_path):
    """The layout of Llama: merges may cross words, and unknown characters become bytes."""
    path = tmp_path / "tokenizer.json"
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    trained(bpe(byte_fallback=True), path, None, normalizer, names)
    values = json.loads(path.read_text())
    values["added_tokens"] = [each for each in values["added_tokens"] if each["id"] < len(SPECIAL)]
    path.write_text(json.dumps(values))
    assert_same_ids(tokenizers.Tokenizer.from_file(str(path)), path)


def test_unigram_has_the_same_ids(tmp_path):
    path = tmp_path / "tokenizer.json"
    model = tokenizers.models.Unigram()
    assert_same_ids(trained(model, path, unk_token="<unk>"), path, ties=True)


def test_all_whitespace_splits_as_in_the_file(tmp_path):
    path = tmp_path / "tokenizer.json"
    split = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), METASPACE]
    )
    assert_same_ids(trained(bpe(), path, split, None), path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"pre_tokenizer": tokenizers.pre_tokenizers.ByteLevel()},
            "got the part ByteLevel; copy it.$",
        ),
        ({"normalizer": tokenizers.normalizers.Lowercase()}, "got the part Lowercase; "),
        ({"model": bpe(fuse_unk=False)}, r"got an unknown token for each .* \(fuse_unk is false\)"),
        ({"end_of_word_suffix": "@"}, "got the option end_of_word_suffix; copy it.$"),
        ({"model": tokenizers.models.WordLevel(unk_token="<unk>")}, "got the model WordLevel; "),
    ],
)
def test_what_sentencepiece_lacks_is_refused(tmp_path, options, message):
    path = tmp_path / "tokenizer.json"
    trained(**{"model": bpe(), "path": path, **options})
    with pytest.raises(ValueError, match=message) as error:
        read_tokenizer_json(path, "copy it")
    assert "\n" not in str(error.value)


def test_other_ids_are_refused(tmp_path, monkeypatch):
    """The end token in a text: a text never has it here."""
    path = tmp_path / "tokenizer.json"
    trained(bpe(), path)
    monkeypatch.setattr(tokenizer_json, "sample_texts", lambda model: ["seven", "</s>"])
    with pytest.raises(ValueError, match="got other ids for 1 of 2 sample texts, such as '</s>'; "):
        read_tokenizer_json(path, "copy it")


@pytest.mark.parametrize(
    "changes",
    [
        {"vocab": 7},
        {"vocab": {"<unk>": 0, "a": 1}, "merges": ["a"]},
        {"vocab": {"<unk>": 0, "a": 1}, "merges": [["a", []]]},
        {"vocab": {"a": 1}},
        {"vocab": {"<unk>": 0, "a" * 20_000: 1}},
        {"vocab": dict.fromkeys(map(str, range(2**20 + 1)), 0)},
    ],
)
def test_malformed_files_are_one_line(tmp_path, changes):
    path = tmp_path / "tokenizer.json"
    trained(bpe(), path)
    values = json.loads(path.read_text())
    values["model"] |= changes
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="^tokenizer: ") as error:
        read_tokenizer_json(path, "copy it")
    assert len(str(error.value)) < 600


def test_nllb_needs_only_tokenizer_json(tmp_path):
    """The layout that transformers 5 saves."""
    folder = write_nllb(tmp_path / "nllb")
    (folder / MODEL).unlink()
    path = folder / "tokenizer.json"
    tokenizer = trained(bpe(), path, added=[*NLLB_LANGUAGES, "<mask>"])
    config = config_of(tokenizer.get_vocab_size() + 2)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(arrays_of(config), folder / "model.safetensors")
    translator = import_model(folder, source_language="deu_Latn", target_language="eng_Latn")
    source = translator.source_tokenizer
    for text in texts():
        ids = source.encode([text])[0]
        expected = tokenizer.encode(text, add_special_tokens=False).tokens
        assert source.pieces_of(ids) == expected, text
    assert source.decode(source.encode(SCRIPTS)) == SCRIPTS


def test_other_added_tokens_are_refused(tmp_path):
    folder = write_nllb(tmp_path / "nllb")
    (folder / MODEL).unlink()
    tokenizer = trained(bpe(), folder / "tokenizer.json", added=NLLB_LANGUAGES)
    tokenizer.add_tokens(["<name>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(ValueError, match="got the added token <name>; copy sentencepiece.bpe"):
        import_model(folder, source_language="deu_Latn", target_language="eng_Latn")


@pytest.mark.filterwarnings("default")  # of the library
def test_mbart_saved_by_transformers_needs_no_other_file(tmp_path):
    transformers = pytest.importorskip("transformers")
    folder = write_mbart(tmp_path / "mbart")
    languages = {"source_language": "de_DE", "target_language": "en_XX"}
    expected = import_model(folder, **languages)
    transformers.MBart50Tokenizer.from_pretrained(folder).save_pretrained(folder)
    (folder / MODEL).unlink()
    actual = import_model(folder, **languages)
    sources = texts()
    assert actual.source_tokenizer.encode(sources) == expected.source_tokenizer.encode(sources)
    assert actual.model.config == expected.model.config
