"""Tokenizers of whole tokens: the rules, the ids, and what is refused."""

import re

import pytest

from tfk_transformer.constants import END_ID, UNKNOWN_ID
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

# The usual regular expression of SMILES (Schwaller et al., arXiv:1711.04810).
SMILES = (
    r"\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|/|:|~|@|\?|>|\*|\$"
    r"|%[0-9]{2}|[0-9]"
)
# Molecules of the table HIV of MoleculeNet.
MOLECULES = [
    "CCC1=[O+][Cu-3]2([O+]=C(CC)C1)[O+]=C(CC)CC(CC)=[O+]2",
    "CC(=O)N1c2ccccc2Sc2c1ccc1ccccc21",
    "O=C1NC(=O)C(Br)(C(Cl)Cl)N1",
    "C[C@@H]1CC[C@H](C)%10.[Na+]",
]
PHONES = ["HH AH0 L OW1", "W ER1 L D"]  # of CMUdict
RULES = {
    "characters": ("characters", ["forty-two", "Zürich  東京", "a🙂b"]),
    "words": ("words", PHONES),
    "smiles": (SMILES, MOLECULES),
}


def tokens_of(rule, text):
    if rule == "words":
        return text.split()
    return list(text) if rule == "characters" else re.findall(rule, text)


@pytest.mark.parametrize("name", RULES)
def test_each_token_has_an_id(name):
    rule, texts = RULES[name]
    tokenizer = SubwordTokenizer.train(texts, 100, tokens=rule)
    tokens = {token for text in texts for token in tokens_of(rule, text)}
    assert tokenizer.vocab_size == len(tokens) + 4
    ids = tokenizer.encode(texts)
    assert [len(row) for row in ids] == [len(tokens_of(rule, text)) for text in texts]
    assert UNKNOWN_ID not in {token for row in ids for token in row}


@pytest.mark.parametrize("name", RULES)
def test_texts_come_back_exactly(name):
    rule, texts = RULES[name]
    tokenizer = SubwordTokenizer.train(texts, 100, tokens=rule)
    assert tokenizer.decode([[*row, END_ID] for row in tokenizer.encode(texts)]) == texts


def test_ids_follow_the_order_of_tokens():
    tokenizer = SubwordTokenizer.from_tokens(["c", "a", " ", "b"])
    assert tokenizer.encode(["ab c", "cx"]) == [[5, 7, 6, 4], [4, UNKNOWN_ID]]


def test_the_word_mark_is_a_blank():
    tokenizer = SubwordTokenizer.from_tokens(["a", "▁"])
    assert tokenizer.encode(["a a▁"]) == [[4, 5, 4, 5]]
    assert SubwordTokenizer.train(["a▁b a"], 9, tokens="characters").vocab_size == 7
    assert SubwordTokenizer.train(["a▁b a"], 9, tokens="words").vocab_size == 6
    with pytest.raises(ValueError, match="^tokens: expected each token once, got ' ' again"):
        SubwordTokenizer.from_tokens([" ", "▁"])


def test_unknown_tokens_have_no_blanks_added():
    assert SubwordTokenizer.from_tokens("ab").decode([[4, 3, 5]]) == ["a⁇b"]
    assert SubwordTokenizer.from_tokens("ab", "words").decode([[4, 3, 5]]) == ["a ⁇ b"]


def test_the_longest_token_is_taken():
    tokenizer = SubwordTokenizer.from_tokens(["a", "ab", "abc", "c", "d"], "longest")
    assert tokenizer.encode(["abcabda"]) == [[6, 5, 8, 4]]


def test_special_tokens_of_a_trained_model_move():
    tokens = ["<unk>", "a", "<pad>", "<sos>", "b", "<eos>"]
    special = ["<pad>", "<sos>", "<eos>", "<unk>"]
    tokenizer = SubwordTokenizer.from_tokens(tokens, special=special)
    order = SubwordTokenizer.token_order(tokens, special)
    assert tokenizer.pieces_of(range(1, 6)) == [tokens[number] for number in order[1:]]
    assert tokenizer.encode(["ab<"]) == [[4, 5, UNKNOWN_ID]]
    assert tokenizer.decode([[4, 5]]) == ["ab"]


def test_ids_are_texts_without_tokens():
    tokenizer = SubwordTokenizer.of_ids(20)
    assert tokenizer.vocab_size == 20
    assert tokenizer.encode(["17 4 9"]) == [[17, 4, 9]]
    assert tokenizer.decode([[17, 4, 9, END_ID]]) == ["17 4 9"]


def test_tokens_of_several_characters_keep_no_characters():
    assert SubwordTokenizer.train(MOLECULES, 100, tokens=SMILES).characters() is None
    assert SubwordTokenizer.from_tokens("ab", "words").characters() is None
    characters = SubwordTokenizer.from_tokens("ab").characters()
    assert characters.as_text() == "ab"


@pytest.mark.parametrize(
    ("tokens", "rule", "problem"),
    [
        (["a", "b", "a"], "characters", "expected each token once, got 'a' again or empty"),
        (["a", ""], "longest", "expected each token once, got '' again"),
        (["ab"], "characters", r"by the rule 'characters', got 'ab', which it splits into \['a'"),
        (["a b"], "words", r"got 'a b', which it splits into \['a', 'b'\]; remove the token, or"),
        # The expression prefers the shorter token.
        (["a", "ab"], "a|ab|b", r"got 'ab', which it splits into \['a', 'b'\]"),
        (["a"], "(", "expected characters, words or a regular expression, got '\\('"),
    ],
)
def test_tokens_that_do_not_fit_the_rule_are_refused(tokens, rule, problem):
    with pytest.raises(ValueError, match=f"^tokens: .*{problem}"):
        SubwordTokenizer.from_tokens(tokens, rule)


@pytest.mark.parametrize(
    ("tokens", "rule", "text", "problem"),
    [
        (["a", "ab", "b", "c"], "ab(?!c)|[abc]", "abc", r"expected 'abc' as .*, got \['ab', 'c'\]"),
        (["a"], "[a-z]+", "ab", r"expected 'ab' as \['ab'\] .*, got \['a', '⁇'\]; add the tokens"),
        (["a"], "a", "a a", r"expected 'a a' as \['a', 'a'\] .*, got \['a', '⁇', 'a'\]"),
    ],
)
def test_a_text_that_would_be_split_otherwise_is_named(tokens, rule, text, problem):
    with pytest.raises(ValueError, match=f"^tokens: .*{problem}"):
        SubwordTokenizer.from_tokens(tokens, rule, samples=["a", text])


def test_special_tokens_must_be_tokens():
    with pytest.raises(ValueError, match=r"^special: .*, got a, b, c, d, without c in tokens"):
        SubwordTokenizer.from_tokens("ab", special="abcd")


def test_frequent_words_are_kept():
    tokenizer = SubwordTokenizer.train(["b a b", "c b a"], 6, tokens="words")
    assert tokenizer.encode(["a b c"]) == [[5, 4, UNKNOWN_ID]]


def test_names_of_special_tokens_are_words():
    tokenizer = SubwordTokenizer.train(["a <unk> </s> a"], 9, tokens="words")
    assert tokenizer.encode(["a </s> <unk>"]) == [[4, 5, 6]]


def test_a_pattern_keeps_all_of_its_tokens():
    with pytest.raises(ValueError, match=r"^vocab_size: expected at least 9, .* got 8\.$"):
        SubwordTokenizer.train(["abcde"], 8, tokens="[a-z]")
