"""Translations of an imported model, compared with the library that the model is from."""

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from sentencepiece import SentencePieceProcessor

from tfk_transformer.importing import model_paths
from tfk_transformer.importing.checking.description import CARD, Values, read_examples
from tfk_transformer.importing.checking.reference_program import CTRANSLATE2, TRANSFORMERS
from tfk_transformer.importing.ctranslate2_folder import argos, tokens
from tfk_transformer.importing.ctranslate2_folder.binary_file import open_binary
from tfk_transformer.importing.hugging_face.multilingual import MBART_25, SMALL100
from tfk_transformer.importing.vocabulary import UNKNOWN_PIECE, is_tag
from tfk_transformer.pipelines.translator import Translator
from tfk_transformer.text.languages import Languages
from tfk_transformer.text.results import Translation
from tfk_transformer.tokenizers.token_vocabulary import piece_of, split_function
from tfk_transformer.training.trimming import TRIMMING

# The packages that each library needs to run a model.
LIBRARIES = {TRANSFORMERS: ("transformers", "torch"), CTRANSLATE2: ("ctranslate2",)}
MULTILINGUAL = ("M2M100", "NLLB", "mBART")  # beginnings of families whose decoder gets a language
TEXTS = 5  # to compare
MAX_TOKENS = 256  # of a text, since both searches take time in proportion
VOCABULARY_TOKENS = 6  # of a text of random pieces
SCORE_TOLERANCE = 1e-3  # sums of rounding differences over the tokens of a long translation
BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
LEFT_OUT = re.compile("[⁇\ufffd]")
PROGRAM = "tfk_transformer.importing.checking.reference_program"
# The folder's files are the only ones that the library reads.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def compare_with_library(
    model: str | os.PathLike[str], translator: Translator, vocab: Sequence[Path] = ()
) -> Values:
    """Return how a few translations compare with the library that a model is from, as JSON values.

    The texts are examples in the model card, the probes, and random pieces. The values are
    `source`, `translation` and `source_from` of an example; `library` with its version; `texts`,
    their number; `equal_tokens` and `equal_translations`; `unknown_tokens`, which the
    model's vocabulary lacks; the `largest_score_difference`, None if
    the library has no scores; the `first_difference`, if any; and `agrees`. If nothing was
    compared, `agrees` is None, and `reason` says why.
    """
    path = model_paths.resolve_model_path(model)
    with contextlib.ExitStack() as stack:
        if path.suffix == model_paths.ARGOS_SUFFIX:
            path = stack.enter_context(argos.unpacked(path))
        examples = read_examples(path if path.is_dir() else path.parent)
        # With the imported settings, but without drawing tokens.
        sources = _short_texts(translator, examples)
        ours = translator.translate(sources, split_sentences=False, temperature=0.0)
        library: str | None = (
            CTRANSLATE2 if model_paths.is_ctranslate2_folder(path) else TRANSFORMERS
        )
        if path.is_file() or model_paths.is_marian_folder(path):  # of Marian or PyTorch
            library = None
        reason = _missing(library, translator)
        theirs = None
        if reason is None:
            make = _transformers_request if library == TRANSFORMERS else _ctranslate2_request
            request = make(path, translator, [each.source for each in ours], vocab)
            theirs, reason = _run(request)
    first = ours[0].source
    origin = "probes" if first in translator.probes else "vocabulary"
    comparison: Values = {
        "source": first,
        "translation": ours[0].text,
        "source_from": CARD if first in examples else origin,
    }
    if theirs is None:
        return {**comparison, "library": library, "agrees": None, "reason": reason}
    version = {"library": f"{library} {theirs['version']}"}
    return {**comparison, **version, **_compare(translator, ours, request, theirs)}


def _missing(library: str | None, translator: Translator) -> str | None:
    """Return the reason why nothing can be compared, if any."""
    if library is None:
        return "no library reads this file with its search; compare logits as in docs/pytorch.md"
    if TRIMMING in translator.origin:
        return "the vocabulary was cut, so that the library segments texts differently"
    packages = [name for name in LIBRARIES[library] if importlib.util.find_spec(name) is None]
    if packages:
        return f"not installed: pip install {' '.join(packages)}"
    return None


def _short_texts(translator: Translator, examples: Sequence[str]) -> list[str]:
    """Return texts that the model reads whole: examples, probes, and texts of random words."""
    tokenizer = translator.source_tokenizer
    pieces = tokenizer.pieces_of(range(tokenizer.vocab_size))
    plain = list(map(_plain, pieces))
    letters = [row for row, piece in enumerate(plain) if piece.lstrip("▁").isalpha()]
    words = [row for row in letters if pieces[row].startswith("▁")]
    encoded = tokenizer.encode(tokenizer.decode([[row] for row in words]))
    # Libraries segment texts of pieces that only the other side of a joint vocabulary uses
    # differently.
    read = [row for row, ids in zip(words, encoded, strict=True) if ids == [row]]
    letter_bytes = [row for row in letters if plain[row] != pieces[row] and plain[row].isascii()]
    ids = read or letter_bytes or letters or tokenizer.text_ids()
    random = np.random.default_rng(0)
    limit = min(MAX_TOKENS, translator.model.config.max_length - 1)
    count = min(VOCABULARY_TOKENS, limit)
    drawn = [random.choice(ids, count).tolist() for _ in range(TEXTS)]
    texts = list(dict.fromkeys([*examples, *translator.probes, *tokenizer.decode(drawn)]))
    lengths = map(len, tokenizer.encode(texts))
    fitting = [text for text, length in zip(texts, lengths, strict=True) if 0 < length <= limit]
    return fitting[:TEXTS]


def _transformers_request(
    path: Path, translator: Translator, texts: Sequence[str], _: Sequence[Path]
) -> Values:
    family = str(translator.origin["family"])
    source, target = Languages.of(translator.origin)  # in the family's codes
    languages = {"src_lang": source, "tgt_lang": target}
    setting = None
    if family == SMALL100:
        # The class of SMaLL-100 is in its own folders. It reads the target's language as M2M100's
        # class reads the source's.
        languages["src_lang"] = target
    elif family == MBART_25:
        setting = "decoder_start_token_id"
    elif family.startswith(MULTILINGUAL):
        setting = "forced_bos_token_id"
    else:
        languages = {}
    prefix = translator.origin.get("source_text_prefix")
    return {
        "library": TRANSFORMERS,
        "folder": str(path),
        "tokenizer": "M2M100Tokenizer" if family == SMALL100 else "AutoTokenizer",
        "languages": languages,
        "language_setting": setting,
        "texts": [*texts] if prefix is None else _with_prefix(translator, prefix, texts),
    }


def _with_prefix(translator: Translator, prefix: str, texts: Sequence[str]) -> list[str]:
    """Return texts after a prefix, so that their tokens are the model's own."""
    encode = translator.source_tokenizer.encode
    (first,) = encode([prefix])
    with_blank = encode([f"{prefix.rstrip()} {texts[0]}"])[0] == [*first, *encode(texts[:1])[0]]
    joined = f"{prefix.rstrip()} " if with_blank else prefix
    return [joined + text for text in texts]


def _ctranslate2_request(
    path: Path, translator: Translator, texts: Sequence[str], vocab: Sequence[Path]
) -> Values:
    is_package = not (path / model_paths.CTRANSLATE2_BINARY).is_file()
    folder = path / model_paths.ARGOS_MODEL_FOLDER if is_package else path
    values = tokens.FolderConfig.read(folder, open_binary(folder / model_paths.CTRANSLATE2_BINARY))
    rule = translator.origin.get("tokens")
    folders = list(dict.fromkeys((folder, path)))
    models, vocabularies, pieces = tokens.read_tokenizers(folders, vocab, rule, values)
    _, _, target_prefix = argos.read_package(path)
    selected = Languages.of(translator.origin)
    passed, _ = tokens.passed_tokens(values, pieces[1], models[0], selected, target_prefix)
    if rule is None:
        model = models[0].SerializeToString()
        rows = SentencePieceProcessor(model_proto=model).encode(texts, out_type=str)
    else:
        rows = [
            [piece_of(token, rule) for token in row] for row in map(split_function(rule), texts)
        ]
    token_of = dict(zip(pieces[0], vocabularies[0], strict=True))
    tokenizer = translator.source_tokenizer
    unknown = values.unk_token
    known = {
        piece: UNKNOWN_PIECE if token == unknown else token for piece, token in token_of.items()
    }
    # CTranslate2 adds the tokens that config.json states.
    before = passed.source_prefix[1 if values.add_source_bos else 0 :]
    adds_end = translator.model.config.source_end and not values.add_source_eos
    after = [values.eos_token] * adds_end + [*passed.source_suffix]
    prefix = [] if passed.start == values.decoder_start_token else [passed.start]
    search = translator.search_settings
    return {
        "library": CTRANSLATE2,
        "folder": str(folder),
        "tokens": [
            [*before, *(token_of.get(piece, piece) for piece in row), *after] for row in rows
        ],
        "library_tokens": _looked_up(rows, known),
        "our_tokens": _looked_up(map(tokenizer.pieces_of, tokenizer.encode(texts)), known),
        "target_prefix": prefix,
        "settings": {
            "beam_size": search.beam_size,
            "length_penalty": search.length_penalty,
            "max_decoding_length": search.max_length + len(prefix),
        },
    }


def _looked_up(rows: Iterable[Iterable[str]], tokens_by_piece: Values) -> list[list[str]]:
    """Return the tokens of a library, with the unknown one for those that its vocabulary lacks."""
    return [[tokens_by_piece.get(piece, UNKNOWN_PIECE) for piece in row] for row in rows]


def _run(request: Values) -> tuple[Values | None, str | None]:
    """Return the results of a library, or None and the last line of its messages."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        done = subprocess.run(
            [sys.executable, "-P", "-m", PROGRAM, str(results)],
            input=json.dumps(request),
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0 and results.is_file():
            return json.loads(results.read_text(encoding="utf-8")), None
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return None, f"{request['library']} does not load or run the model: {lines[-1][:300]}"


def _compare(
    translator: Translator, ours: Sequence[Translation], request: Values, theirs: Values
) -> Values:
    """Return how many tokens and translations are equal, and the first that are not."""
    if request["library"] == TRANSFORMERS:
        source = translator.source_tokenizer
        ids = source.encode(request["texts"])
        our_tokens = [list(map(_plain, source.pieces_of(row))) for row in ids]
        library_tokens = [list(map(_plain, pieces)) for pieces in theirs["tokens"]]
        translations = theirs["translations"]
    else:
        our_tokens, library_tokens = request["our_tokens"], request["library_tokens"]
        target = translator.target_tokenizer
        hypotheses = theirs["hypotheses"]
        if (rule := translator.origin.get("tokens")) is not None:
            hypotheses = [[piece_of(token, rule) for token in row] for row in hypotheses]
        translations = target.decode(list(map(target.ids_of, hypotheses)))
    rows = [
        {
            "source": result.source,
            "tokens": pieces,
            "library_tokens": library_pieces,
            "translation": result.text,
            "library_translation": translation,
        }
        for result, pieces, library_pieces, translation in zip(
            ours, our_tokens, library_tokens, translations, strict=True
        )
    ]
    same_tokens = [_are_equal(row["tokens"], row["library_tokens"]) for row in rows]
    same_texts = [_words(row["translation"]) == _words(row["library_translation"]) for row in rows]
    same = [*map(all, zip(same_tokens, same_texts, strict=True))]
    pairs = zip(ours, theirs["scores"], strict=True)
    differences = [abs(result.score - score) for result, score in pairs if score is not None]
    largest = max(differences, default=None)
    first = {} if all(same) else {"first_difference": rows[same.index(False)]}
    return {
        "texts": len(rows),
        "equal_tokens": sum(same_tokens),
        "equal_translations": sum(same_texts),
        "unknown_tokens": sum(row["library_tokens"].count(UNKNOWN_PIECE) for row in rows),
        "largest_score_difference": largest,
        **first,
        "agrees": all(same) and (largest or 0) <= SCORE_TOLERANCE,
    }


def _plain(piece: str) -> str:
    """Return a piece as both libraries write it: a byte as a character, a tag without a mark."""
    if byte := BYTE_PIECE.fullmatch(piece):
        return chr(int(byte[1], 16))
    tag = piece.removeprefix("▁")
    return tag if is_tag(tag) else piece


def _words(text: str) -> list[str]:
    """Return words without signs of unknown tokens and broken bytes, which libraries lack."""
    return LEFT_OUT.sub(" ", text).split()


def _are_equal(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Compare tokens. A library may return the text of an unknown token."""
    return len(ours) == len(theirs) and all(
        piece in (other, UNKNOWN_PIECE) for piece, other in zip(ours, theirs, strict=True)
    )
