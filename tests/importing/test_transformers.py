"""Imported models and exported folders against the classes of transformers themselves, where these
are installed.
"""

import pathlib

import numpy as np
import pytest
from marian_folder import TAGS, has_unknown_run, random_texts, sentences, write_folder
from random_translators import of_transformer
from test_marian import Case, padded

from tfk_transformer.constants import END_ID, START_ID, UNKNOWN_ID
from tfk_transformer.export.to_libraries.hugging_face_files import write_marian
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("default")  # of the libraries
torch.set_num_threads(1)  # its threads wait actively: their search takes 0.8 s, and 13 with two

LAYERS = {"encoder_layers": 1, "decoder_layers": 2}  # a search is traced layer by layer
CASES = {
    "scaled, swish": {"tags": TAGS, "dropped": ["▁ka", "lo"], **LAYERS},
    "unscaled, relu": {"scale_embedding": False, "activation_function": "relu", **LAYERS},
    "two vocabularies, gelu": {"separate": True, "activation_function": "gelu", **LAYERS},
    "unlike widths, gelu_new": {
        "activation_function": "gelu_new",
        "decoder_ffn_dim": 31,
        **LAYERS,
    },
    "unlike widths, quick_gelu": {
        "activation_function": "quick_gelu",
        "decoder_ffn_dim": 23,
        **LAYERS,
    },
}
# What is exported again: imported models, and a model of this project with options that need more
# than other names of arrays.
EXPORTED = {
    "exported: scaled, swish": CASES["scaled, swish"],
    "exported: two vocabularies, gelu, nothing tied": {
        **CASES["two vocabularies, gelu"],
        "tie_word_embeddings": False,
    },
    "exported: unlike widths, gelu_new": CASES["unlike widths, gelu_new"],
    "exported: unlike widths, quick_gelu": CASES["unlike widths, quick_gelu"],
    "exported: a model of this project": None,
}
LONGEST = 30


class Pair(Case):
    """An imported model and the family's own classes, loaded from the same folder."""

    end = 0

    def __init__(self, folder):
        super().__init__(folder)
        self.load(folder)

    def load(self, folder):
        self.model = transformers.MarianMTModel.from_pretrained(folder).eval()
        self.tokenizer = transformers.MarianTokenizer.from_pretrained(folder)

    def generated(self, texts, **settings):
        """Their hypotheses by text, as rows of tokens without the start and with the end, and their
        log-probabilities.
        """
        sources = padded([[*ids, END_ID] for ids in self.translator.source_tokenizer.encode(texts)])
        options = {
            "max_length": LONGEST + 1,
            "forced_eos_token_id": None,
            "return_dict_in_generate": True,
            "output_scores": True,
        }
        with torch.no_grad():
            actual = self.model.generate(
                torch.tensor(self.rows[0][sources]),
                attention_mask=torch.tensor((sources > 0).astype("int64")),
                **options,
                **settings,
            )
        rows = np.array_split(actual.sequences.numpy()[:, 1:], len(texts))
        scores = (
            actual.sequences_scores.numpy().reshape(len(texts), -1)
            if actual.get("sequences_scores") is not None
            else rows
        )
        return [
            ([until_end(row.tolist(), self.end) for row in some], these)
            for some, these in zip(rows, scores, strict=True)
        ]

    def ours(self, texts, **settings):
        limits = {"max_length": LONGEST, "max_length_factor": 1000}
        for actual in self.translator.translate(texts, token_scores=True, **limits, **settings):
            ids = [
                [
                    self.translator.target_tokenizer._processor.piece_to_id(piece)
                    for piece in h.tokens
                ]
                for h in actual.hypotheses
            ]
            yield [self.rows[1][row].tolist() for row in ids], [h.score for h in actual.hypotheses]


class ExportedPair(Pair):
    """A translator, and the family's own classes, loaded from the folder that was written of it.
    Their rows are its ids.
    """

    end = END_ID

    def __init__(self, translator, folder):
        self.translator = translator
        self.rows = [
            np.arange(tokenizer.vocab_size)
            for tokenizer in (translator.source_tokenizer, translator.target_tokenizer)
        ]
        write_marian(translator, folder)
        self.load(folder)


def own_translator():
    """A translator of this project, with random weights and a byte pair encoding of both sides."""
    tokenizer = SubwordTokenizer.train(
        sentences("source", 300) + sentences("target", 300), 90, "bpe"
    )
    options = {
        "keys_are_values": True,
        "attention_scale": "key_dim",
        "attention_bias": ["query", "output"],
        "tie_embeddings": "target",
    }
    family = {"norm": "post_dropout", "norm_epsilon": 1e-5, "positions": "sinusoidal_paper_halves"}
    return of_transformer(
        tokenizer, source_vocab_size=90, target_vocab_size=90, max_length=40, **options, **family
    )


# Two imports and two searches each. Their options and exports are in the other cases too.
LONG = [
    "unscaled, relu",
    "unlike widths, gelu_new",
    "unlike widths, quick_gelu",
    "exported: unlike widths, gelu_new",
    "exported: unlike widths, quick_gelu",
    "exported: two vocabularies, gelu, nothing tied",
    "exported: a model of this project",
]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=pytest.mark.long) if name in LONG else name
        for name in (*CASES, *EXPORTED)
    ],
)
def pair(request, tmp_path_factory):
    folder, options = tmp_path_factory.mktemp("marian"), {**CASES, **EXPORTED}[request.param]
    if request.param in CASES:
        return Pair(write_folder(folder / "folder", **options))
    return ExportedPair(
        import_model(write_folder(folder / "folder", **options)) if options else own_translator(),
        folder / "exported",
    )


def until_end(row, end):
    return row[: row.index(end) + 1] if end in row else row


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


def test_greedy_equals_transformers(pair):
    texts = sentences("source", 80, seed=9)
    theirs = [rows[0] for rows, _ in pair.generated(texts, num_beams=1, do_sample=False)]
    ours = [rows[0] for rows, _ in pair.ours(texts, beam_size=1)]
    assert ours == theirs


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


def test_ids_equal_transformers(pair):
    """What differs, for a reason: special tokens in a text, tags, and several characters in a row
    that only the other side has.
    """
    processor, vocabulary = pair.tokenizer.spm_source, pair.tokenizer.get_vocab()
    texts = [
        text
        for text in random_texts(18_000)
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
    assert len(texts) >= 10_000
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
