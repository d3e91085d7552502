import io
import string

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

TEXTS = [
    "Der Bär läuft über die große Straße.",
    "Ein Mädchen spielt im grünen Garten.",
    "Zwei Männer und drei Frauen sitzen am Tisch.",
    "The bear walks across the wide street.",
    "A girl plays in the green garden.",
    "Two men and three women sit at the table.",
] * 3
SIZES = {"unigram": 80, "bpe": 113, "char": 80}


@pytest.fixture(scope="module", params=SIZES)
def tokenizer(request):
    return SubwordTokenizer.train(TEXTS, SIZES[request.param], request.param)


def in_graph(function, *arguments):
    return tf.function(function, autograph=False)(*arguments).numpy()


def decoded(ids, tokenizer):
    return [text.decode() for text in in_graph(tokenizer.graph_decode, tf.constant(ids, tf.int32))]


def random_rows(tokenizer, lowest, seed=1, rows=101, length=13):
    return np.random.default_rng(seed).integers(lowest, tokenizer.vocab_size, size=(rows, length))


def test_bpe_vocabulary_size_is_exact():
    assert [SubwordTokenizer.train(TEXTS, size, "bpe").vocab_size for size in (67, 113)] == [
        67,
        113,
    ]


def test_unigram_vocabulary_size_limit():
    assert 50 < SubwordTokenizer.train(TEXTS, 53).vocab_size <= 53


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_small_texts_give_fewer_pieces(model_type):
    assert 53 < SubwordTokenizer.train(TEXTS, 5000, model_type).vocab_size < 1000


def test_training_reads_every_text():
    tokenizer = SubwordTokenizer.train(iter(["Ж", *TEXTS, "Я"]), 80)
    (ids,) = tokenizer.encode(["Ж Я"])
    assert 3 not in ids


def test_special_ids_come_first(tokenizer):
    names = [
        sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model).id_to_piece(i)
        for i in range(4)
    ]
    assert names == ["<pad>", "<s>", "</s>", "<unk>"]


def test_encode_gives_no_special_ids(tokenizer):
    ids = tokenizer.encode(TEXTS)
    assert min(min(row) for row in ids) == 4
    assert max(max(row) for row in ids) < tokenizer.vocab_size
    assert all(type(i) is int for row in ids for i in row)


def test_encode_decode_round_trip(tokenizer):
    assert tokenizer.decode(tokenizer.encode(TEXTS)) == TEXTS


def test_encode_normalizes_blanks(tokenizer):
    assert tokenizer.decode(tokenizer.encode(["  Der   Bär\t", " ", ""])) == ["Der Bär", "", ""]


def test_an_unknown_character_is_id_3(tokenizer):
    (ids,) = tokenizer.encode(["Der 熊"])
    assert ids[-1] == 3
    assert ids.count(3) == 1
    assert tokenizer.decode([ids]) == ["Der  ⁇"]


def test_special_names_are_plain_text(tokenizer):
    (ids,) = tokenizer.encode(["<s> a </s> b <pad>"])
    assert not {0, 1, 2} & set(ids)


def test_graph_encode_matches_encode(tokenizer):
    texts = [*TEXTS[:5], "", "  ", "熊", "<s>", "Der Bär " * 11]
    rows = [[*ids, 2] for ids in tokenizer.encode(texts)]
    expected = np.zeros((len(rows), max(map(len, rows))), "int32")
    for row, ids in zip(expected, rows, strict=True):
        row[: len(ids)] = ids
    actual = in_graph(tokenizer.graph_encode, tf.constant(texts))
    assert actual.dtype == np.int32
    np.testing.assert_array_equal(actual, expected)


def test_graph_of_model_without_normalization_prints_nothing(capfd):
    model = io.BytesIO()
    special = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        vocab_size=60,
        normalization_rule_name="identity",
        **special,
    )
    tokenizer = SubwordTokenizer(model.getvalue())
    texts = ["Der Bär ½ ﬁ", "Ａ\tb\u3000c", "\ufdd1"]
    rows = [[*ids, 2] for ids in tokenizer.encode(texts)]
    capfd.readouterr()
    actual = in_graph(tokenizer.graph_encode, tf.constant(texts))
    assert capfd.readouterr().err == ""
    assert [[token for token in row if token] for row in actual.tolist()] == rows


def test_decode_ends_at_special_id(tokenizer):
    first, second = tokenizer.encode(["Der Bär", "am Tisch."])
    length = len(first) + len(second) + 3
    rows = [
        [*first, special, *second, 2] + [0] * (length - len(first) - len(second) - 2)
        for special in (2, 0, 1)
    ]  # something stands behind each end
    rows += [
        [2, *first, *[0] * (length - len(first) - 1)],
        [0] * length,
        [*first] + [0] * (length - len(first)),
    ]
    expected = ["Der Bär", "Der Bär", "Der Bär", "", "", "Der Bär"]
    assert tokenizer.decode(rows) == expected
    assert decoded(rows, tokenizer) == expected


@pytest.mark.parametrize("lowest", [0, 3])
def test_graph_decode_matches_decode(tokenizer, lowest):
    rows = random_rows(tokenizer, lowest)
    texts = tokenizer.decode(rows)
    assert len(set(texts)) > 50
    assert decoded(rows, tokenizer) == texts


def test_graph_decode_of_empty_rows(tokenizer):
    assert decoded(np.zeros((2, 0)), tokenizer) == ["", ""]
    assert decoded(np.zeros((0, 3)), tokenizer) == []


def test_joined_pieces_match_decode(tokenizer):
    pieces = tokenizer.pieces()
    assert len(pieces) == tokenizer.vocab_size
    assert pieces[:4] == ["", "", "", " ⁇ "]
    rows = random_rows(tokenizer, 3)
    assert (rows == 3).any()
    assert [
        "".join(pieces[i] for i in row).strip(string.whitespace) for row in rows
    ] == tokenizer.decode(rows)


def test_unicode_blanks_are_text():
    # U+0085 survives SentencePiece's normalization, is a blank to Python and none to TensorFlow.
    tokenizer = SubwordTokenizer.train([*TEXTS, "a\u0085 b\u0085 \u0085c"], 80)
    rows = [[*ids, 2] for ids in tokenizer.encode(["\u0085a\u0085"])]
    assert tokenizer.decode(rows) == ["\u0085a\u0085"]
    assert decoded(rows, tokenizer) == ["\u0085a\u0085"]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_training_is_deterministic(kind):
    first, second = (SubwordTokenizer.train(iter(TEXTS), SIZES[kind], kind) for _ in range(2))
    assert first.model == second.model


def test_tokenizer_round_trip(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "source.model")
    loaded = SubwordTokenizer.load(str(tmp_path / "source.model"))
    assert loaded.model == tokenizer.model
    assert loaded.encode(TEXTS) == tokenizer.encode(TEXTS)


def test_training_needs_texts():
    with pytest.raises(
        ValueError, match="^texts: expected sentences to learn a vocabulary from, got none.$"
    ):
        SubwordTokenizer.train(iter(["", " "]))


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_small_vocabulary_is_refused(model_type):
    message = "^vocab_size: expected at least 41, the special pieces and one for each character"
    with pytest.raises(ValueError, match=message):
        SubwordTokenizer.train(TEXTS, 5, model_type)


@pytest.mark.parametrize("model_type", ["bpe", "unigram", "char"])
def test_long_texts_are_learned(model_type):
    long = f"{'one two three ' * 500}Ω"
    assert "Ω" in SubwordTokenizer.train([long], 60, model_type).characters()
    assert "Ω" in SubwordTokenizer.train([long.replace(" ", "")], 60, model_type).characters()


def test_unknown_model_type_is_refused():
    with pytest.raises(
        ValueError, match="^model_type: expected one of unigram, bpe, char, word, got 'words'.$"
    ):
        SubwordTokenizer.train(TEXTS, 80, "words")


def test_non_model_bytes_are_refused(tokenizer):
    with pytest.raises(
        ValueError,
        match="^tokenizer model: expected a SentencePiece model, got 7 bytes that are not one ",
    ):
        SubwordTokenizer(b"garbage")


def test_an_empty_model_is_refused():
    with pytest.raises(ValueError, match="^tokenizer model: expected "):
        SubwordTokenizer(b"")


def test_other_special_ids_are_refused():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=60, minloglevel=2
    )
    message = (
        r"^tokenizer model: expected ids 0, 1, 2, 3 for pad, start, end, unknown, got \(-1, "
        r"1, 2, 0\); train it with "
    )
    with pytest.raises(ValueError, match=message):
        SubwordTokenizer(model.getvalue())
