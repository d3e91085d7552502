"""Imported models and exported folders against the classes of transformers themselves, where these
are installed.
"""

import functools
import pathlib

import numpy as np
import pytest
from id_rows import padded
from marian_folder import TAGS, has_unknown_run, random_texts, sentences, write_folder
from tiers import with_long
from transformers_marian import (
    CASES,
    EXPORTED,
    LAYERS,
    ExportedPair,
    MarianPair,
    own_translator,
    torch,
    transformers,
)

from tfk_transformer.constants import END_ID, START_ID, UNKNOWN_ID
from tfk_transformer.importing.model_import import import_model

pytestmark = pytest.mark.filterwarnings("default")  # of the libraries


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The import of each case, made when it is first asked for."""
    path = tmp_path_factory.mktemp("marian")

    @functools.cache
    def make(name):
        return MarianPair(write_folder(path / name, **CASES[name]))

    return make


@pytest.fixture(scope="module")
def exported(imported, tmp_path_factory):
    """The export of each case, made when it is first asked for."""

    @functools.cache
    def make(name):
        folder = tmp_path_factory.mktemp("exported")
        options = EXPORTED[name]
        original = name.removeprefix("exported: ")
        if options is None:
            translator = own_translator()
        elif options == CASES.get(original):
            translator = imported(original).translator  # so that they share a search
        else:
            translator = import_model(write_folder(folder / "folder", **options))
        return ExportedPair(translator, folder / "exported")

    return make


@pytest.fixture(params=[*CASES, *EXPORTED])
def pair(request, imported, exported):
    return (imported if request.param in CASES else exported)(request.param)


SEARCHED = {
    name: name
    for name in (
        "scaled, swish",
        "exported: scaled, swish",
        "two vocabularies, gelu",
        "exported: two vocabularies, gelu, nothing tied",
        "exported: a model of this project",
    )
}
# A search is traced for each translator, which takes 3 seconds. Other activations and widths change
# the logits only.
searched = pytest.mark.parametrize("pair", with_long(SEARCHED, list(SEARCHED)[1:]), indirect=True)


def test_logits_equal_transformers(pair):
    random = np.random.default_rng(3)
    sizes = [
        tokenizer.vocab_size
        for tokenizer in (pair.translator.source_tokenizer, pair.translator.target_tokenizer)
    ]
    lengths = random.integers(1, 20, 40)
    sources = padded(
        [[*random.integers(UNKNOWN_ID, sizes[0], length), END_ID] for length in lengths]
    )
    targets = padded(
        [[START_ID, *random.integers(UNKNOWN_ID, sizes[1], length)] for length in lengths[::-1]]
    )
    ours = np.array(pair.translator.model({"source": sources, "target": targets}))
    with torch.no_grad():
        theirs = pair.model(
            input_ids=torch.tensor(pair.rows[0][sources]),
            attention_mask=torch.tensor((sources > 0).astype("int64")),
            decoder_input_ids=torch.tensor(pair.rows[1][targets]),
        ).logits.numpy()[:, :, pair.rows[1]]
    real = (targets > 0)[:, :, None] & (ours > -9e8)
    difference = np.abs(ours - theirs)[real].max()
    print(f"largest difference of a logit: {difference:.2g}")
    assert difference < 1e-4


@searched
def test_greedy_equals_transformers(pair):
    texts = sentences("source", 80, seed=9)
    theirs = [rows[0] for rows, _ in pair.generated(texts, num_beams=1, do_sample=False)]
    ours = [rows[0] for rows, _ in pair.ours(texts, beam_size=1)]
    assert ours == theirs


@searched
def test_beam_equals_transformers(pair):
    """Both end when as many hypotheses are finished as there are beams."""
    texts = sentences("source", 80, seed=11)
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
    np.testing.assert_allclose(*scores, rtol=1e-5)
    # Hypotheses that are this close may change places, or one may take the last place of another.
    assert same >= 0.98 * len(texts)


# The tokenizers of the other cases are those of the first one without tags.
@pytest.mark.parametrize(
    "pair",
    [
        "scaled, swish",
        "two vocabularies, gelu",
        "exported: scaled, swish",
        "exported: a model of this project",
    ],
    indirect=True,
)
@pytest.mark.parametrize("count", [3000, pytest.param(18_000, marks=pytest.mark.long)])
def test_ids_equal_transformers(pair, count):
    """What differs, for a reason: special tokens in a text, tags, and several characters in a row
    that only the other side has.
    """
    processor, vocabulary = pair.tokenizer.spm_source, pair.tokenizer.get_vocab()
    texts = [
        text
        for text in random_texts(count)
        if not any(part in text for part in ("</s>", "<unk>", "<pad>"))
        and not text.startswith(">>")
        and not has_unknown_run(processor, vocabulary, text)
    ]
    theirs = pair.tokenizer(texts)["input_ids"]
    ours = [
        [*pair.rows[0][ids].tolist(), pair.end]
        for ids in pair.translator.source_tokenizer.encode(texts)
    ]
    different = [text for text, one, other in zip(texts, ours, theirs, strict=True) if one != other]
    tagged = [text for text in different if any(tag in processor.normalize(text) for tag in TAGS)]
    print(f"{len(texts)} texts, {len(different)} differ, {len(tagged)} of them with a tag")
    assert len(texts) >= 5 / 9 * count
    assert different == tagged


def test_tags_equal_transformers(pair):
    texts = sentences("source", 100, seed=4)
    for tag in TAGS if ">>fra<<" in pair.tokenizer.get_vocab() else ():
        tagged = [f"{tag} {text}" for text in texts]
        ours = [
            [*pair.rows[0][ids].tolist(), pair.end]
            for ids in pair.translator.source_tokenizer.encode(tagged)
        ]
        assert ours == pair.tokenizer(tagged)["input_ids"]


def test_lowercasing_exports_its_tags(tmp_path):
    """The source's SentencePiece model folds case, and a language token has capitals."""
    options = {"normalization_rule_name": "nmt_nfkc_cf"}
    folder = write_folder(tmp_path / "folder", tags=[">>por_BR<<"], options=options, **LAYERS)
    pair = ExportedPair(import_model(folder), tmp_path / "exported")
    text = ">>por_BR<< Ka lo"
    ids = pair.translator.source_tokenizer.encode([text])[0]
    assert UNKNOWN_ID not in ids
    assert pair.tokenizer(text)["input_ids"] == [*ids, END_ID]


def test_pickle_must_hold_tensors(tmp_path):
    folder = write_folder(tmp_path / "folder")
    whole = import_model(folder).model.get_weights()
    # Every name of the shared table, and the positions.
    tensors = transformers.MarianMTModel.from_pretrained(folder).state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    for one, other in zip(whole, import_model(folder).model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    torch.save({"model.shared.weight": pathlib.Path("of a class")}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"the weights in .*pytorch_model.bin do not load"):
        import_model(folder)


def test_saved_folder_is_read(tmp_path):
    folder = write_folder(tmp_path / "folder")
    whole = import_model(folder).model.get_weights()
    transformers.MarianMTModel.from_pretrained(folder).save_pretrained(folder)
    transformers.MarianTokenizer.from_pretrained(folder).save_pretrained(folder)
    for one, other in zip(whole, import_model(folder).model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
