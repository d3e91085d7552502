"""The T5 family against the classes of transformers, where these are installed."""

import functools

import numpy as np
import pytest
from id_rows import padded, until_end
from marian_folder import random_texts, sentences
from t5_folder import CASES, write_folder
from t5_rows import rows_of

from tfk_transformer.constants import END_ID, START_ID, UNKNOWN_ID
from tfk_transformer.importing.model_import import import_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("default")  # of the libraries
torch.set_num_threads(1)

LONGEST = 24
END_ROW = 1
GENERATION = {
    "num_beams": 4,
    "length_penalty": 1.3,
    "early_stopping": False,
    "max_length": LONGEST + 1,
    "bad_words_ids": [[0]],
    "decoder_start_token_id": 0,
    "eos_token_id": END_ROW,
    "pad_token_id": 0,
}
CLASSES = {
    "t5": transformers.T5ForConditionalGeneration,
    "mt5": transformers.MT5ForConditionalGeneration,
    "umt5": transformers.UMT5ForConditionalGeneration,
}


class T5Pair:
    """An imported model and the family's own class, loaded from the same folder."""

    def __init__(self, folder, case):
        write_folder(folder, generation=GENERATION, **case)
        self.translator = import_model(folder)
        self.model = CLASSES[case.get("model_type", "t5")].from_pretrained(folder).eval()
        tokenizer = transformers.ByT5Tokenizer if case.get("bytes") else transformers.T5Tokenizer
        self.tokenizer = tokenizer.from_pretrained(folder)
        self.rows = rows_of(folder)

    def generated(self, texts, **settings):
        """Their rows of tokens by hypothesis, without the start and up to the end."""
        sources = padded([[*ids, END_ID] for ids in self.translator.source_tokenizer.encode(texts)])
        with torch.no_grad():
            actual = self.model.generate(
                torch.tensor(self.rows[sources]),
                attention_mask=torch.tensor((sources > 0).astype("int64")),
                **settings,
            )
        return [until_end(row, END_ROW) for row in actual[:, 1:].tolist()]

    def ours(self, texts, **settings):
        """Our rows by hypothesis."""
        ids_of = self.translator.target_tokenizer.ids_of
        return [
            self.rows[ids_of(hypothesis.tokens)].tolist()
            for actual in self.translator.translate(texts, token_scores=True, **settings)
            for hypothesis in actual.hypotheses
        ]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """The pair of each case, made when it is first asked for."""

    @functools.cache
    def make(name):
        return T5Pair(tmp_path_factory.mktemp("t5") / "folder", CASES[name])

    return make


@pytest.fixture(params=CASES)
def pair(request, pairs):
    return pairs(request.param)


def test_t5_logits_equal_transformers(pair):
    random = np.random.default_rng(3)
    size = len(pair.rows)
    lengths = random.integers(1, 40, 20)  # many times the distance that has buckets of its own
    sources = padded([[*random.integers(UNKNOWN_ID, size, n), END_ID] for n in lengths])
    targets = padded([[START_ID, *random.integers(UNKNOWN_ID, size, n)] for n in lengths[::-1]])
    ours = np.array(pair.translator.model({"source": sources, "target": targets}))
    with torch.no_grad():
        theirs = pair.model(
            input_ids=torch.tensor(pair.rows[sources]),
            attention_mask=torch.tensor((sources > 0).astype("int64")),
            decoder_input_ids=torch.tensor(pair.rows[targets]),
        ).logits.numpy()[:, :, pair.rows]
    real = (targets > 0)[:, :, None] & (ours > -9e8)
    difference = np.abs(ours - theirs)[real].max()
    print(f"largest difference of a logit: {difference:.2g}")
    assert difference < 1e-4
    assert theirs.std() > 0.5


@pytest.mark.long  # a search is traced for each case
def test_t5_greedy_equals_transformers(pair):
    texts = sentences("source", 200, seed=9)
    theirs = pair.generated(texts, num_beams=1, do_sample=False)
    assert pair.ours(texts, beam_size=1) == theirs


@pytest.mark.long  # a search is traced for each case
def test_t5_beams_equal_transformers(pair):
    """The best four hypotheses of four beams."""
    texts = sentences("source", 200, seed=11)
    settings = {"num_beams": 4, "num_return_sequences": 4}
    theirs = pair.generated(texts, **settings, length_penalty=0.0, early_stopping=True)
    ours = pair.ours(texts, beam_size=4, n_best=4, length_penalty=0.0, early_stopping=True)
    assert ours == theirs
    assert len(set(map(tuple, ours))) > 4


@pytest.mark.long  # a search is traced for each case
def test_t5_defaults_equal_transformers(pair):
    texts = sentences("source", 200, seed=13)
    assert pair.ours(texts) == pair.generated(texts)


@pytest.mark.parametrize("count", [400, pytest.param(12_000, marks=pytest.mark.long)])
def test_t5_ids_equal_transformers(pair, count):
    """Texts are left out that transformers' tokenizer does not read as SentencePiece does: with
    special tokens; with a combining mark after a character that its normalization changes, which
    it drops; and with U+0085, which it takes for a blank.
    """
    apart = ("</s>", "<unk>", "<pad>", "\u0308", "\u0301", "\u0085")
    texts = [text for text in random_texts(count) if not any(part in text for part in apart)]
    theirs = pair.tokenizer(texts)["input_ids"]
    ids = pair.translator.source_tokenizer.encode(texts)
    assert [[*pair.rows[row].tolist(), END_ROW] for row in ids] == theirs
    assert len(texts) > 0.7 * count


def test_t5_sentinels_equal_transformers(pair):
    if pair.tokenizer.__class__.__name__ == "ByT5Tokenizer":
        pytest.skip("its sentinels are text here")
    random = np.random.default_rng(5)
    texts = [
        " ".join(
            word if random.random() > 0.3 else f"<extra_id_{random.integers(0, 5)}>"
            for word in text.split()
        )
        for text in sentences("source", 100)
    ]
    ids = pair.translator.source_tokenizer.encode(texts)
    expected = pair.tokenizer(texts)["input_ids"]
    assert [[*pair.rows[row].tolist(), END_ROW] for row in ids] == expected
