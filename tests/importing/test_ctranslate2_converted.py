"""Folders that CTranslate2's converter makes of transformers' models: their translations by default
are CTranslate2's own.
"""

import numpy as np
import pytest
from ctranslate2_converted import FAMILIES, LANGUAGES, write_converted
from imported_folder import rows_of_texts
from marian_folder import random_texts

from tfk_transformer.config.search_settings import SearchSettings
from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.search.search_state import Limits

ctranslate2 = pytest.importorskip("ctranslate2")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("default")  # of the libraries
LONGEST = 20


def imported(folder, family):
    """The translator of a folder, and the tokens that the family's users pass: around a source, and
    before a target.
    """
    if family not in LANGUAGES:
        return import_model(folder), lambda tokens: [*tokens, "</s>"], None
    _, source, target = LANGUAGES[family]
    codes = [language.strip("_") for language in (source, target)]
    translator = import_model(folder, source_language=codes[0], target_language=codes[1])
    if family == "mBART-25":
        return translator, lambda tokens: [*tokens, "</s>", source], target
    return translator, lambda tokens: [source, *tokens, "</s>"], target


def searched(translator, ids, **settings):
    """The hypotheses as rows of ids, the end included, and the scores, with the folder's defaults
    and some changes.
    """
    values = SearchSettings(**{**translator.origin["search"], **settings}).as_numbers()
    return translator.functions.generate(ids, Limits(**values))


def dropped_ends(translator, ids, beam_size):
    """Whether the end token is the second or a later choice for the first token of each target.

    After a language token, CTranslate2 drops such an end, and a beam with it.
    """
    first = searched(translator, ids, beam_size=beam_size, n_best=beam_size, max_length=1)
    return (first.ids.numpy()[:, 1:, 0] == END_ID).any(axis=1)


# A conversion by transformers and a search each. Others are compared in every run.
@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_defaults_translate_as_ctranslate2(family, tmp_path):
    count = 200
    folder = write_converted(tmp_path / "folder", family)
    translator, around, target = imported(folder, family)
    random = np.random.default_rng(3)
    pieces = np.array(translator.source_tokenizer.text_ids())
    sources = [random.choice(pieces, random.integers(1, 9)) for _ in range(count)]
    ids = np.zeros((count, 10), "int32")
    for row, source in zip(ids, sources, strict=True):
        row[: len(source) + 1] = [*source, END_ID]
    texts = [around(translator.source_tokenizer.pieces_of(source)) for source in sources]
    prefix = {"target_prefix": [[target]] * count} if target else {}
    engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    # CTranslate2 counts a token after the start token, and repeats only such a token in its result.
    counted = len(translator.model.config.target_prefix)
    for settings in ({}, {"beam_size": 1}, {"beam_size": 4}):
        ours = searched(translator, ids, max_length=LONGEST, **settings)
        theirs = engine.translate_batch(
            texts, max_decoding_length=LONGEST + counted, return_scores=True, **prefix, **settings
        )
        rows = [[i for i in row if i not in (END_ID, PAD_ID)] for row in ours.ids.numpy()[:, 0]]
        hypotheses = [translator.target_tokenizer.pieces_of(row) for row in rows]
        expected = [result.hypotheses[0][counted:] for result in theirs]
        same = np.array([a == b for a, b in zip(hypotheses, expected, strict=True)])
        explained = same.copy()
        if counted and (beam_size := settings.get("beam_size", 2)) > 1:
            explained |= dropped_ends(translator, ids, beam_size)
        assert explained.all()
        assert same.sum() >= 0.975 * count
        assert len(set(map(tuple, hypotheses))) > count / 4
        scores = np.array([result.scores[0] for result in theirs])
        np.testing.assert_allclose(ours.scores.numpy()[same, 0], scores[same], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "family",
    ["M2M100", *(pytest.param(name, marks=pytest.mark.long) for name in ("Pegasus", "T5"))],
)
def test_texts_have_the_rows_of_the_vocabulary(family, tmp_path):
    folder = write_converted(tmp_path / "folder", family)
    translator, _, _ = imported(folder, family)
    files = ("sentencepiece.model", "shared_vocabulary.json", "decoder/embeddings/weight")
    expected, rows = rows_of_texts(translator, folder, *files, random_texts(2000))
    np.testing.assert_array_equal(rows, expected)
