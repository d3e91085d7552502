"""Imported multilingual models against the classes of transformers themselves, where these are
installed.
"""

import functools
import unicodedata

import numpy as np
import pytest
import sentencepiece
from id_rows import padded
from marian_folder import random_texts, sentences
from transformers_multilingual import CASES, MultilingualPair, torch

from tfk_transformer.constants import END_ID, START_ID, UNKNOWN_ID
from tfk_transformer.importing.model_import import import_model

pytestmark = pytest.mark.filterwarnings("default")  # of the libraries


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """The pair of each case, made when it is first asked for."""

    @functools.cache
    def make(name):
        write, model, options, languages = CASES[name]
        folder = write(tmp_path_factory.mktemp("multilingual") / "folder", **options)
        return MultilingualPair(folder, model, languages)

    return make


@pytest.fixture(params=CASES)
def pair(request, pairs):
    return pairs(request.param)


def test_logits_equal_transformers(pair):
    random = np.random.default_rng(3)
    size, lengths = pair.translator.source_tokenizer.vocab_size, random.integers(1, 20, 40)
    sources = padded([[*random.integers(UNKNOWN_ID, size, length), END_ID] for length in lengths])
    targets = padded(
        [[START_ID, *random.integers(UNKNOWN_ID, size, length)] for length in lengths[::-1]]
    )
    ours = np.array(pair.translator.model({"source": sources, "target": targets}))
    before = np.tile(pair.started[:-1], (len(targets), 1)).astype("int64")
    started = np.concatenate([before, pair.rows[targets]], axis=1)
    with torch.no_grad():
        theirs = pair.model(
            **pair.read(sources), decoder_input_ids=torch.tensor(started)
        ).logits.numpy()[:, before.shape[1] :, pair.rows]
    real = (targets > 0)[:, :, None] & ~pair.never
    difference = np.abs(ours - theirs)[real].max()
    print(f"largest difference of a logit: {difference:.2g}")
    assert difference < 1e-4


# A search is traced for each family, which takes 3 seconds.
searched = pytest.mark.parametrize(
    ("pair", "count"),
    [("mBART-25", 40), *(pytest.param(name, 200, marks=pytest.mark.long) for name in CASES)],
    indirect=["pair"],
)


@searched
def test_greedy_equals_transformers(pair, count):
    texts = sentences("source", count, seed=9)
    theirs = [rows[0] for rows, _ in pair.generated(texts, num_beams=1, do_sample=False)]
    assert [rows[0] for rows, _ in pair.ours(texts, beam_size=1)] == theirs


@searched
def test_beam_equals_transformers(pair, count):
    """Both end when as many hypotheses are finished as there are beams."""
    texts = sentences("source", count, seed=11)
    settings = {
        "num_beams": 4,
        "num_return_sequences": 4,
        "length_penalty": 0.0,
        "early_stopping": True,
    }
    theirs = pair.generated(texts, **settings)
    ours = list(pair.ours(texts, beam_size=4, n_best=4, length_penalty=0.0, early_stopping=True))
    same = sum(list(one[0]) == list(other[0]) for one, other in zip(ours, theirs, strict=True))
    scores = [
        np.array([score for actual in side for score in actual[1]]) for side in (ours, theirs)
    ]
    difference = np.abs(scores[0] - scores[1]).max()
    print(f"the same 4 hypotheses for {same} of {len(texts)}, scores up to {difference:.2g} apart")
    # A few hypotheses are so probable that their scores are near 0.
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-5)
    # Hypotheses that are this close may change places, or one may take the last place of another.
    assert same >= 0.98 * len(texts)


def written_otherwise(text, family):
    """Whether a text has blanks or marks that the library tokenizers normalizes in another way than
    SentencePiece, see docs/models.md. The class of mBART-25 does not normalize at all.
    """
    is_normal = unicodedata.normalize("NFKC", text) == text
    has_control = any(unicodedata.category(character)[0] == "C" for character in text)
    if family == "mBART-25" and (has_control or not is_normal):
        return True
    return text != " ".join(text.split()) or "▁" in text or any(map(unicodedata.combining, text))


@pytest.mark.parametrize("count", [2500, pytest.param(12_500, marks=pytest.mark.long)])
def test_ids_equal_transformers(pair, count):
    """All are those of SentencePiece, which the models were trained with. Left out are special
    tokens, which are text here.
    """
    names = ["</s>", "<unk>", "<pad>", "<s>", "<mask>"]
    texts = [text for text in random_texts(count) if not any(name in text for name in names)]
    assert len(texts) >= 0.8 * count
    ours = [
        [*pair.before, *pair.rows[ids].tolist(), pair.end, *pair.after]
        for ids in pair.translator.source_tokenizer.encode(texts)
    ]
    different = [
        text
        for text, one, other in zip(texts, ours, pair.tokenizer(texts)["input_ids"], strict=True)
        if one != other
    ]
    print(f"{len(texts)} texts, {len(different)} differ")
    if pair.slow:
        assert not different
    else:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(pair.sentencepiece))
        offset = 103 if pair.family == "Pegasus" else 1
        expected = [
            [row + offset if row else 3 for row in rows] for rows in processor.encode(texts)
        ]
        ends = len(pair.before), -1 - len(pair.after)
        assert [rows[slice(*ends)] for rows in ours] == expected
        otherwise = {text for text in texts if written_otherwise(text, pair.family)}
        assert [text for text in different if text not in otherwise] == []
        # Many hostile texts are compared with the class, too.
        assert len(otherwise) < 0.6 * len(texts)


def test_saved_folder_is_read(pair, tmp_path):
    """The classes of NLLB, mBART and Pegasus save no SentencePiece model, so the one of the first
    folder has to be added. SMaLL-100's folder has the class of its tokenizer.
    """
    pair.model.save_pretrained(tmp_path)
    pair.tokenizer.save_pretrained(tmp_path)
    (tmp_path / pair.sentencepiece.name).write_bytes(pair.sentencepiece.read_bytes())
    if pair.family == "SMaLL-100":
        (tmp_path / "tokenization_small100.py").touch()
    source, target = pair.translator.languages
    again = import_model(tmp_path, source_language=source, target_language=target)
    for one, other in zip(
        pair.translator.model.get_weights(), again.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert again.source_tokenizer.model == pair.translator.source_tokenizer.model
    assert again.model.config == pair.translator.model.config
