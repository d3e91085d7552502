"""SentencePiece models of imported vocabularies: the family's segmentation, this project's ids."""

import json

import numpy as np
import pytest
import sentencepiece
from marian_folder import (
    TAGS,
    has_unknown_run,
    pieces_of,
    random_texts,
    sentences,
    trained,
    vocabulary,
    write_folder,
)

from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.importing.vocabulary import (
    TYPES,
    SpecialRows,
    Vocabulary,
    parse_sentencepiece,
    text_pieces,
)
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

DROPPED = ["▁ka", "lo", "m", "ß"]


def family_ids(model, pieces, texts):
    """The rows of texts as the family numbers them: a piece that its vocabulary lacks is the
    unknown one.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [
        [pieces.get(piece, 1) for piece in row] for row in processor.encode(texts, out_type=str)
    ]


def imported(model, pieces, tags=()):
    proto = parse_sentencepiece(model, "source.spm")
    special = SpecialRows(pad=len(pieces) - 1, start=len(pieces) - 1, end=0, unknown=1)
    made = Vocabulary.remapped(pieces, len(pieces), special, set(text_pieces(proto)) - set(pieces))
    return SubwordTokenizer(made.sentencepiece_model(proto, tags)), made


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalization_rule_name": "identity"},
        {"byte_fallback": True, "pieces": 350},
        {"model_type": "bpe"},
        {"model_type": "char", "hard_vocab_limit": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("count", [3000, pytest.param(18_000, marks=pytest.mark.long)])
def test_ids_equal_the_original(options, count):
    source = trained("source", **options)
    tags = () if "model_type" in options else TAGS
    pieces = vocabulary([source, trained("target")], DROPPED, tags)
    tokenizer, made = imported(source, pieces, tags)
    processor = sentencepiece.SentencePieceProcessor(model_proto=source)
    texts = [
        text
        for text in random_texts(count)
        if not any(tag in processor.normalize(text) for tag in TAGS)
        and not has_unknown_run(processor, pieces, text)
    ]
    assert len(texts) >= 5 / 9 * count
    ours = [made.rows[ids].tolist() for ids in tokenizer.encode(texts)]
    assert ours == family_ids(source, pieces, texts)
    rows = {row for ids in ours for row in ids}
    # Unknown pieces, and no special token from any text.
    assert {1} < rows
    assert not rows & {0, len(pieces) - 1}


def test_leading_tags_are_tokens():
    source = trained("source")
    pieces = vocabulary([source, trained("target")], tags=TAGS)
    tokenizer, made = imported(source, pieces, TAGS)
    texts = sentences("source", 200)
    for tag in TAGS:
        plain = tokenizer.encode(texts)
        assert tokenizer.encode([f"{tag} {text}" for text in texts]) == [
            [list(made.rows).index(pieces[tag]), *ids] for ids in plain
        ]
    # No token of this vocabulary: it is text.
    assert UNKNOWN_ID in tokenizer.encode([">>xyz<< ka"])[0]


def test_target_apostrophe_has_its_id():
    """Characters of the other side have its ids, as the family looks them up. Words of another
    script stay unknown.
    """
    source = trained("source", 30, ["Die Katze ist da, der Hund hier."] * 9, hard_vocab_limit=False)
    target = trained("target", 40, ["It's the cat's «кот», я."] * 9, hard_vocab_limit=False)
    pieces = vocabulary([source, target])
    tokenizer, made = imported(source, pieces)
    for text in ("Die's", "'Die' «ist»", "Die кот ist"):
        assert (
            made.rows[tokenizer.encode([text])[0]].tolist() == family_ids(source, pieces, [text])[0]
        )
    assert made.rows[tokenizer.encode(["Die's"])[0][-2]] == pieces["'"]


def test_byte_pieces_spell_characters():
    options = {"byte_fallback": True, "hard_vocab_limit": False}
    source = trained("source", 300, ["Die Katze ist da."] * 9, **options)
    target = trained("target", 300, ["It's the cat."] * 9, **options)
    pieces = vocabulary([source, target])
    tokenizer, made = imported(source, pieces)
    ids = tokenizer.encode(["Die's"])[0]
    assert made.rows[ids].tolist() == family_ids(source, pieces, ["Die's"])[0]
    assert pieces["<0x27>"] in made.rows[ids]


def test_bpe_decodes_source_words():
    """The model may predict a piece of the source, such as a name."""
    source, target = trained("source", model_type="bpe"), trained("target", model_type="bpe")
    pieces = vocabulary([source, target])
    tokenizer, made = imported(target, pieces)
    assert "▁ka" not in pieces_of(target)
    (token,) = np.flatnonzero(made.rows == pieces["▁ka"])
    assert tokenizer.decode([[token]]) == ["ka"]
    # Texts are segmented as before.
    texts = [*sentences("target", 500), *sentences("source", 100)]
    processor = sentencepiece.SentencePieceProcessor(model_proto=target)
    texts = [text for text in texts if not has_unknown_run(processor, pieces, text)]
    assert [made.rows[ids].tolist() for ids in tokenizer.encode(texts)] == family_ids(
        target, pieces, texts
    )


def test_lowercasing_keeps_tags():
    source = trained("source", normalization_rule_name="nmt_nfkc_cf")
    pieces = vocabulary([source], tags=TAGS)
    tokenizer, made = imported(source, pieces, TAGS)
    assert [made.rows[ids[0]] for ids in tokenizer.encode([f"{tag} Ka" for tag in TAGS])] == [
        pieces[tag] for tag in TAGS
    ]


def test_folded_tags_must_differ():
    source = trained("source", normalization_rule_name="nmt_nfkc_cf")
    tags = (">>por_BR<<", ">>por_br<<")
    with pytest.raises(ValueError, match="got >>por_BR<< and >>por_br<<, which the SentencePiece"):
        imported(source, vocabulary([source], tags=tags), tags)


def test_special_tokens_come_first():
    pieces = {"</s>": 0, "<unk>": 1, "b": 2, "<s>": 3, "a": 4, "<pad>": 5}
    made = Vocabulary.remapped(pieces, 7, SpecialRows(pad=5, start=5, end=0, unknown=1), ["z", "y"])
    assert made.pieces == ("<pad>", "<s_>", "</s>", "<unk>", "b", "<s>", "a", "<row 6>", "y", "z")
    assert made.rows.tolist() == [5, 5, 0, 1, 2, 3, 4, 6, 1, 1]
    bias = made.bias(np.arange(7, dtype="float32"))
    assert bias.tolist() == [5, -1e9, 0, 1, 2, 3, 4, 6, -1e9, -1e9]
    assert bias.dtype == np.float32


def test_start_token_keeps_its_row():
    made = Vocabulary.remapped(
        {"</s>": 0, "<unk>": 1, "go": 2, "<pad>": 3},
        4,
        SpecialRows(pad=3, start=2, end=0, unknown=1),
    )
    assert made.rows[[PAD_ID, START_ID, END_ID, UNKNOWN_ID]].tolist() == [3, 2, 0, 1]
    assert (made.pieces[4:], made.rows[4:].tolist(), made.silent.tolist()) == (
        ("go",),
        [2],
        [False, True, False, False, False],
    )


@pytest.mark.parametrize(
    ("pieces", "got"),
    [
        ({"a": 0, "b": 0}, "0 for 'a' and for 'b'"),
        ({"a": 7}, "7 for 'a'"),
        ({"b": 1, "a": -1}, "-1 for 'a'"),
        ({"a": "0"}, "'0' for 'a'"),
        ({"a": 0.0}, r"0\.0 for 'a'"),
        ({"a": [0]}, r"\[0\] for 'a'"),
    ],
    ids=str,
)
def test_rows_must_fit_the_table(pieces, got):
    with pytest.raises(
        ValueError, match=f"expected a row of its own below 4 for each piece, got {got}"
    ):
        Vocabulary.remapped(pieces, 4, SpecialRows(3, 3, 0, 1))


@pytest.mark.parametrize(
    ("rows", "start", "message"),
    [
        (10**30, 3, "tables of at most 1,048,576 rows, got 10000"),
        (4, 4, "rows of special tokens below 4, got 4"),
        (4, -1, "rows of special tokens below 4, got -1"),
    ],
)
def test_row_numbers_are_limited(rows, start, message):
    with pytest.raises(ValueError, match=f"^vocabulary: expected {message}"):
        Vocabulary.remapped({"a": 2}, rows, SpecialRows(3, start, 0, 1))


def test_rejected_model_is_named():
    proto = parse_sentencepiece(trained("source"), "source.spm")
    proto.pieces[9].piece = ""
    with pytest.raises(
        ValueError,
        match=(
            "a SentencePiece model in source.spm, got a file that SentencePiece does not load "
            ".*piece must not be empty"
        ),
    ):
        parse_sentencepiece(proto.SerializeToString(), "source.spm")


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (b"", r"in source.spm, .* SentencePiece does not load \(it has no pieces\)"),
        (b"\x00words", "in source.spm, got a file that SentencePiece does not load"),
    ],
)
def test_other_bytes_are_refused(model, problem):
    with pytest.raises(ValueError, match=f"expected a SentencePiece model {problem}"):
        parse_sentencepiece(model, "source.spm")


def test_a_model_of_words_keeps_its_type():
    model = trained("source", model_type="word", hard_vocab_limit=False)
    assert TYPES[parse_sentencepiece(model, "source.spm").trainer_spec.model_type] == "word"


def test_language_tokens_need_unigram():
    source = trained("source", model_type="bpe")
    with pytest.raises(
        ValueError,
        match="type unigram for a vocabulary with language tokens, such as >>fra<<, got type bpe",
    ):
        imported(source, vocabulary([source], tags=TAGS), TAGS)


def test_decoding_equals_the_original(tmp_path):
    """Pieces of the source are text in a translation, too; the family's decoder has them as they
    are.
    """
    folder = write_folder(tmp_path / "folder", tags=TAGS)
    pieces = json.loads((folder / "vocab.json").read_text())
    texts = {row: piece for piece, row in pieces.items()}
    target = (folder / "target.spm").read_bytes()
    special = SpecialRows(pad=len(pieces) - 1, start=len(pieces) - 1, end=0, unknown=1)
    made = Vocabulary.remapped(pieces, len(pieces), special)
    tokenizer = SubwordTokenizer(
        made.sentencepiece_model(parse_sentencepiece(target, "target.spm"))
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=target)
    random = np.random.default_rng(5)
    for _ in range(500):
        ids = random.integers(UNKNOWN_ID + 1, tokenizer.vocab_size, random.integers(1, 12)).tolist()
        expected = (
            processor.decode_pieces([texts[made.rows[i]] for i in ids]).replace("▁", " ").strip()
        )
        assert tokenizer.decode([ids]) == [expected]
        assert "".join(tokenizer.pieces()[i] for i in ids).strip() == expected
