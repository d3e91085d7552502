"""Imported multilingual models against the classes of transformers themselves, where these are
installed.
"""

import json
import unicodedata

import numpy as np
import pytest
import sentencepiece
from marian_folder import sentences
from multilingual_folder import (
    MODEL,
    NLLB_LANGUAGES,
    SPECIAL,
    pieces_of,
    write_m2m100,
    write_mbart,
    write_mbart25,
    write_nllb,
    write_pegasus,
    write_small100,
)
from test_multilingual import Case, padded
from test_vocabulary import random_texts
from tiers import with_long

from tfk_transformer.constants import END_ID, START_ID, UNKNOWN_ID
from tfk_transformer.export.to_libraries.hugging_face_files import (
    write_m2m100 as write_m2m100_again,
)
from tfk_transformer.importing.model_import import import_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("default")  # of the libraries
torch.set_num_threads(1)  # its threads wait actively, which takes ten times as long

LONGEST = 30
LAYERS = {"encoder_layers": 1, "decoder_layers": 2}  # a search is traced layer by layer


def write_whole_nllb(folder, legacy_behaviour=False, **options):
    """A folder of NLLB with a whole tokenizer.json, as the hub has them: the class makes no
    languages from a SentencePiece model.
    """
    made = write_nllb(folder, **options)
    (made / "tokenizer.json").unlink()
    backend = json.loads(
        transformers.NllbTokenizer.from_pretrained(made).backend_tokenizer.to_str()
    )
    tokens = [*SPECIAL, *pieces_of((made / MODEL).read_bytes()), *NLLB_LANGUAGES, "<mask>"]
    plain = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    backend["added_tokens"] = [
        {"id": tokens.index(name), "content": name, **plain}
        for name in [*SPECIAL, *NLLB_LANGUAGES, "<mask>"]
    ]
    backend["model"]["vocab"] = {token: row for row, token in enumerate(tokens)}
    backend["post_processor"] = None
    (made / "tokenizer.json").write_text(json.dumps(backend))
    (made / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "NllbTokenizer",
                "extra_special_tokens": NLLB_LANGUAGES,
                "src_lang": "deu_Latn",
                "legacy_behaviour": legacy_behaviour,
            }
        )
    )
    return made


def write_exported_m2m100(folder, **options):
    """A folder of M2M100 that was imported, and written again."""
    original = write_m2m100(folder.with_name("original"), **options)
    write_m2m100_again(import_model(original, source_language="de", target_language="en"), folder)
    return folder


CASES = {
    "M2M100": (write_m2m100, "M2M100", {"dropped": ["▁ka", "lo"]}, ("de", "en")),
    "M2M100, exported": (write_exported_m2m100, "M2M100", {"dropped": ["▁ka", "lo"]}, ("de", "en")),
    "NLLB": (
        write_whole_nllb,
        "M2M100",
        {"scale_embedding": False, **LAYERS},
        ("zho_Hans", "deu_Latn"),
    ),
    "mBART-50": (write_mbart, "MBart", LAYERS, ("de_DE", "en_XX")),
    "mBART-25": (write_mbart25, "MBart", {"decoder_ffn_dim": 31, **LAYERS}, ("de_DE", "en_XX")),
    "SMaLL-100": (write_small100, "M2M100", LAYERS, (None, "de")),
    "NLLB with legacy_behaviour": (
        write_whole_nllb,
        "M2M100",
        {"legacy_behaviour": True, **LAYERS},
        ("zho_Hans", "deu_Latn"),
    ),
    "Pegasus": (write_pegasus, "Pegasus", {"activation_function": "relu", **LAYERS}, (None, None)),
}


class Pair(Case):
    """An imported model and the family's own classes, loaded from the same folder."""

    def __init__(self, folder, model, languages):
        super().__init__(folder, languages)
        self.slow = (folder / "vocab.json").exists()
        models = (folder / name for name in (MODEL, "spiece.model"))
        self.sentencepiece = next(path for path in models if path.exists())
        self.model = (
            getattr(transformers, f"{model}ForConditionalGeneration").from_pretrained(folder).eval()
        )
        # The class of SMaLL-100 is in its own folders; the prefix of M2M100's is like it.
        is_small100 = self.family == "SMaLL-100"
        name = "M2M100Tokenizer" if is_small100 else "AutoTokenizer"
        options = {"src_lang": languages[is_small100], "tgt_lang": languages[1]}
        self.tokenizer = getattr(transformers, name).from_pretrained(
            folder, **(options if self.languages else {})
        )

    @property
    def shortest(self):
        """Their settings and ours for hypotheses of at least four tokens: the decoder of SMaLL-100
        starts with the end token, which random weights would predict at once.
        """
        if self.family != "SMaLL-100":
            return {}, {}
        return {"min_new_tokens": 3}, {"min_length": 4, "renormalize_logits": True}

    @property
    def pad(self):
        return self.config["pad_token_id"]

    @property
    def end(self):
        return self.config["eos_token_id"]

    def read(self, sources):
        """Their ids of padded rows of ours, and the mask."""
        rows = padded([[*self.before, *self.rows[row[row > 0]], *self.after] for row in sources])
        lengths = np.count_nonzero(sources, axis=1) + len(self.before) + len(self.after)
        mask = np.arange(rows.shape[1]) < lengths[:, None]
        return {
            "input_ids": torch.tensor(np.where(mask, rows, self.pad)),
            "attention_mask": torch.tensor(mask.astype("int64")),
        }

    def generated(self, texts, **settings):
        """Their hypotheses by text, as rows of tokens after the language's and with the end, and
        their log-probabilities.
        """
        sources = padded([[*ids, END_ID] for ids in self.translator.source_tokenizer.encode(texts)])
        count = len(self.started)
        forced = self.target if count > 1 else None  # after the decoder's first token
        options = {
            "max_length": LONGEST + count,
            "decoder_start_token_id": self.started[0],
            "forced_bos_token_id": forced,
            "bad_words_ids": [
                [self.pad],
                *([row] for row in self.languages.values() if row != forced),
            ],
            # Padding has its part of the probabilities of Pegasus here.
            "renormalize_logits": bool(self.languages),
            "forced_eos_token_id": None,
            "return_dict_in_generate": True,
            "output_scores": True,
        }
        # The target's language must come first and never again: a processor of their own does what
        # bad_words_ids cannot.
        never_again = transformers.LogitsProcessorList([OnlyFirst(forced)] * (count > 1))
        with torch.no_grad():
            actual = self.model.generate(
                **self.read(sources),
                logits_processor=never_again,
                **{**options, **self.shortest[0], **settings},
            )
        assert (actual.sequences[:, :count].numpy() == self.started).all()
        rows = np.array_split(actual.sequences.numpy()[:, count:], len(texts))
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
        limits = {"max_length": LONGEST, "max_length_factor": 1000, **self.shortest[1]}
        for actual in self.translator.translate(texts, token_scores=True, **limits, **settings):
            ids = [
                [
                    self.translator.target_tokenizer._processor.piece_to_id(piece)
                    for piece in h.tokens
                ]
                for h in actual.hypotheses
            ]
            yield [self.rows[row].tolist() for row in ids], [h.score for h in actual.hypotheses]


class OnlyFirst(transformers.LogitsProcessor):
    """Allow a token only as the first predicted one."""

    def __init__(self, token):
        self.token = token

    def __call__(self, input_ids, scores):
        if input_ids.shape[1] > 1:
            scores[:, self.token] = -float("inf")
        return scores


# Two searches of one more family each, whose logits and searches differ little from the others'.
LONG = {"SMaLL-100", "NLLB with legacy_behaviour"}


@pytest.fixture(scope="module", params=with_long({name: name for name in CASES}, LONG))
def pair(request, tmp_path_factory):
    write, model, options, languages = CASES[request.param]
    return Pair(
        write(tmp_path_factory.mktemp("multilingual") / "folder", **options), model, languages
    )


def until_end(row, end):
    return row[: row.index(end) + 1] if end in row else row


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


# Searches of 200 texts in both libraries take too long for every run.
COUNTS = [80, pytest.param(200, marks=pytest.mark.long)]


@pytest.mark.parametrize("count", COUNTS)
def test_greedy_equals_transformers(pair, count):
    texts = sentences("source", count, seed=9)
    theirs = [rows[0] for rows, _ in pair.generated(texts, num_beams=1, do_sample=False)]
    assert [rows[0] for rows, _ in pair.ours(texts, beam_size=1)] == theirs


@pytest.mark.parametrize("count", COUNTS)
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
    # Of so many hypotheses, a few are so probable that their scores are near 0.
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-5 if count == 200 else 0)
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


def test_ids_equal_transformers(pair):
    """All are those of SentencePiece, which the models were trained with. Left out are special
    tokens, which are text here.
    """
    names = ["</s>", "<unk>", "<pad>", "<s>", "<mask>"]
    texts = [text for text in random_texts(12_500) if not any(name in text for name in names)]
    assert len(texts) >= 10_000
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
