"""Folders of Marian's files: Firefox's models, Bergamot's students, and unclear folders."""

import json

import numpy as np
import pytest
from marian_file_case import MarianFileCase
from marian_folder import sentences
from marian_npz_folder import write_file, write_firefox
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.constants import END_ID, PAD_ID
from tfk_transformer.importing.marian_files.folder import find_vocab, model_in
from tfk_transformer.importing.marian_files.model_file import read_side
from tfk_transformer.importing.marian_files.shortlist import MAGIC, read_marian_shortlist
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

BEAMS = 4
FIREFOX = {"beam_size": 1, "length_penalty": 1.0, "max_length_factor": 2.0}
DECODER = """relative-paths: true
models:
  - model.npz
vocabs:
  - vocab.deen.spm
  - vocab.deen.spm
beam-size: 6
normalize: 0.5
word-penalty: 0
max-length-factor: 2.5
"""


@pytest.mark.parametrize("separate", [False, True], ids=["one vocabulary", "two vocabularies"])
def test_firefox_folder_is_imported(tmp_path, separate):
    folder = write_firefox(tmp_path / "deen", separate)
    done = CliRunner().invoke(main.app, ["import", str(folder), "--out", str(tmp_path / "bundle")])
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.output.startswith("Marian: deen, license: not stated, from de to en\n")
    translator = import_model(folder)
    assert translator.languages == ("de", "en")
    assert translator.search.items() >= FIREFOX.items()
    assert translator.model.config.decoder_mixer == "ssru"


def test_metadata_names_languages(tmp_path):
    folder = write_firefox(tmp_path)
    languages = {"sourceLanguage": "zh_Hant", "targetLanguage": "en"}
    (folder / "metadata.json").write_text(json.dumps(languages))
    assert import_model(folder).languages == ("zh_Hant", "en")
    assert import_model(folder, source_language="zh").languages == ("zh", "en")


def test_decoder_options_become_settings(tmp_path):
    write_file(tmp_path)
    (tmp_path / "source.spm").rename(tmp_path / "vocab.deen.spm")
    (tmp_path / "target.spm").unlink()
    (tmp_path / "config.yml").write_text(DECODER)
    (tmp_path / "config.intgemm8bitalpha.yml").write_text(DECODER.replace("npz", "bin"))
    translator = import_model(tmp_path)
    assert translator.search == {
        "beam_size": 6,
        "length_penalty": 0.5,
        "length_penalty_form": "length",
        "max_length": 512,
        "max_length_factor": 2.5,
    }
    assert "removes complete hypotheses from its beam" in translator.origin["notes"][0]


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        ("{}", {}),
        ("beam-size: 1", {"beam_size": 1, "length_penalty": 0.0, "max_length_factor": 3.0}),
        ("beam-size: .inf\nnormalize: .nan", {"beam_size": 64, "length_penalty": 0.0}),
        ("beam-size: -3\nnormalize: true", {"beam_size": 1, "length_penalty": 1.0}),
        ("beam-size: x\nmax-length-factor: 1e9", {"beam_size": 12, "max_length_factor": 3.0}),
        (f"beam-size: 2\nnormalize: 1{'0' * 400}", {"beam_size": 2, "length_penalty": 10.0}),
    ],
)
def test_any_decoder_options_are_read(tmp_path, values, settings):
    write_file(tmp_path)
    (tmp_path / "decoder.yml").write_text(values)
    assert import_model(tmp_path).search.items() >= settings.items()


def test_word_penalty_is_noted(tmp_path):
    write_file(tmp_path)
    (tmp_path / "decoder.yml").write_text("beam-size: 1\nword-penalty: 0.3")
    assert import_model(tmp_path).origin["notes"] == ["word-penalty 0.3 is not imported"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["a.npz", "b.npz"], "expected one .npz file of Marian .* got 2, a.npz, b.npz; pass the"),
        (["a.npz"], r"one SentencePiece model \(\*.spm\) .* got none; pass them \(vocab\)"),
        (["a.npz", "vocab.de.spm.gz"], "got none; run gunzip .*/vocab.de.spm.gz"),
        (["a.npz", "a.spm", "b.spm"], "got a.spm, b.spm; pass them"),
        (["a.npz", "source.spm", "src.spm"], "got source.spm, src.spm; pass them"),
        (["a.npz", "source.spm", "opus.vocab.yml"], "got .*/opus.vocab.yml, which has other rows"),
        (["model.deen.bin.gz", "vocab.deen.spm.gz"], "compressed files of Marian; run gunzip"),
    ],
    ids=str,
)
def test_unclear_folders_are_refused(tmp_path, files, message):
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=message):
        import_model(tmp_path)


def test_sides_are_found_by_name(tmp_path):
    for names in (
        ("srcvocab.enja.spm", "trgvocab.enja.spm"),
        ("source.spm", "target.spm"),
        ("vocab.src.spm", "vocab.trg.spm"),
        ("vocab.en.spm", "vocab.ja.spm"),
    ):
        folder = tmp_path / names[0]
        folder.mkdir()
        for name in ("model.enja.npz", "model.npz.optimizer.npz", *names):
            (folder / name).touch()
        model = model_in(folder)
        assert model.name == "model.enja.npz"
        assert [path.name for path in find_vocab(model)] == list(names)


def test_git_lfs_pointer_is_named(tmp_path):
    write_file(tmp_path)
    (tmp_path / "source.spm").write_text("version https://git-lfs.github.com/spec/v1\nsize 9\n")
    with pytest.raises(ValueError, match=r"pointers of Git LFS: .*source.spm; run `git lfs pull`"):
        import_model(tmp_path)


def best_of_beams(reference, source, limit=20):
    """Return the best target of a beam search in NumPy, and its log-probability."""
    live, complete = [(0.0, [])], []
    for _ in range(limit):
        options = []
        for score, target in live:
            logits = reference.logits(source, target)[-1]
            best = np.argsort(-logits)[: 2 * BEAMS]
            scores = score + logits - np.logaddexp.reduce(logits)
            options += [(scores[row], [*target, int(row)]) for row in best]
        options = sorted(options, reverse=True)[: 2 * BEAMS]
        complete += [option for option in options[:BEAMS] if option[1][-1] == 0]
        live = [option for option in options if option[1][-1] != 0][:BEAMS]
        if len(complete) >= BEAMS:
            return max(complete)
    return max(complete + live)


def test_student_beams_equal_the_reference(tmp_path):
    case = MarianFileCase(tmp_path, student=True, dtype="int8")
    texts = sentences("source", 10, seed=12)
    settings = {"beam_size": BEAMS, "length_penalty": 0.0, "max_length_factor": 1000}
    translations = case.translator.translate(texts, token_scores=True, max_length=20, **settings)
    for source, translation in zip(
        case.translator.source_tokenizer.encode(texts), translations, strict=True
    ):
        score, target = best_of_beams(case.reference, case.rows[0][[*source, END_ID]])
        hypothesis = translation.hypotheses[0]
        ids = [row + END_ID for row in target]
        assert hypothesis.tokens == case.translator.target_tokenizer.pieces_of(ids)
        assert hypothesis.score == pytest.approx(score, abs=1e-4)


LEX_NAME = "lex.50.50.deen.s2t.bin"


def shortlist_bytes(common, lists):
    """Return a binary shortlist: the candidates of each source row."""
    offsets = np.cumsum([0, *map(len, lists)]).astype("<u8")
    candidates = np.array([row for rows in lists for row in rows], "<u4")
    header = np.array([MAGIC, 0, common, 50, len(offsets), len(candidates)], "<u8")
    return header.tobytes() + offsets.tobytes() + candidates.tobytes()


def write_shortlist(folder, rows=67):
    """Write a shortlist of random candidates, and return them."""
    random = np.random.default_rng(4)
    lists = [sorted(random.choice(rows, random.integers(0, 9), False)) for _ in range(rows)]
    (folder / LEX_NAME).write_bytes(shortlist_bytes(5, lists))
    return lists


def test_shortlist_has_the_candidates(tmp_path):
    folder = write_firefox(tmp_path)
    lists = write_shortlist(folder)
    translator = import_model(folder)
    assert translator.origin["notes"] == [
        f"{LEX_NAME}, a shortlist, is not imported; pass it to the export"
    ]
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    shortlist = read_marian_shortlist(folder / LEX_NAME, *tokenizers)
    assert shortlist.common.tolist() == [0, 1, *range(2, 5 + 2)]  # row 0 is the end, id 2
    for row, rows in enumerate(lists):
        source = row + END_ID
        expected = {row + END_ID for row in rows} | ({source} if row > 0 else set())
        assert set(shortlist.likely[source].tolist()) - {PAD_ID} == expected


@pytest.mark.long  # converts a search to ONNX
def test_shortlist_is_exported(tmp_path):
    folder = write_firefox(tmp_path / "deen")
    write_shortlist(folder)
    import_model(folder).save(tmp_path / "bundle")
    arguments = ["export", str(tmp_path / "bundle"), "--shortlist", str(folder / LEX_NAME)]
    arguments += ["--format", "onnx"]
    done = CliRunner().invoke(main.app, [*arguments, "--out", str(tmp_path / "files")])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "Shortlist: 7 tokens, and 9 for each source token.\n" in done.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], "another file or breaks off"),
        (lambda content: content[:20], "another file or breaks off"),
        (lambda content: b"\x1f\x8b" + content[2:], "another file .* gunzip"),
        (lambda content: shortlist_bytes(5, [[1]] * 9), "for 67 source rows"),
        (lambda content: shortlist_bytes(5, [[67]] * 67), "target rows below 67"),
        (lambda content: shortlist_bytes(5, [[1] * 1001] * 67), "at most 1,000 target rows"),
        (lambda content: content[:48] + b"\xff" * 8 + content[56:], "got others in"),
    ],
)
def test_broken_shortlists_are_refused(tmp_path, change, message):
    folder = write_firefox(tmp_path)
    write_shortlist(folder)
    tokenizer = SubwordTokenizer(read_side(folder / "vocab.deen.spm", 67)[1])
    path = folder / LEX_NAME
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        read_marian_shortlist(path, tokenizer, tokenizer)


def test_shortlist_of_others_is_refused(tmp_path):
    folder = write_firefox(tmp_path)
    write_shortlist(folder)
    tokenizer = SubwordTokenizer.train(["ab ba aab bba abab cd dc"] * 30, 15)
    with pytest.raises(ValueError, match="expected the vocabulary of the bundle .* other pieces"):
        read_marian_shortlist(folder / LEX_NAME, tokenizer, tokenizer)
