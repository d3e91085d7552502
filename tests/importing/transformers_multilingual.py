"""Imported folders of multilingual families next to the classes of transformers."""

import json

import numpy as np
import pytest
from id_rows import hypotheses_of, padded
from multilingual_case import MultilingualCase
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

from tfk_transformer.constants import END_ID
from tfk_transformer.export.to_libraries.hugging_face_files import (
    write_m2m100 as write_m2m100_again,
)
from tfk_transformer.importing.model_import import import_model

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
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
    "M2M100": (write_m2m100, "M2M100", {"dropped": ["▁ka", "lo"], **LAYERS}, ("de", "en")),
    "M2M100, exported": (
        write_exported_m2m100,
        "M2M100",
        {"dropped": ["▁ka", "lo"], **LAYERS},
        ("de", "en"),
    ),
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


class MultilingualPair(MultilingualCase):
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
        return hypotheses_of(actual, texts, count, self.end)

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
