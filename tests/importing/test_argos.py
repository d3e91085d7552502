"""Packages of Argos Translate, compared with what argostranslate/translate.py does with them."""

import json
import os
import zipfile

import numpy as np
import pytest
import sentencepiece
from ctranslate2_folder import packed, write_fairseq, write_marian, write_opennmt
from imported_folder import refused, weights_of
from marian_folder import pieces_of, sentences, trained
from typer.testing import CliRunner

from tfk_transformer.apps.cli import main
from tfk_transformer.importing.ctranslate2_folder import argos
from tfk_transformer.importing.model_import import import_model
from tfk_transformer.pipelines.translator import Translator

ctranslate2 = pytest.importorskip("ctranslate2")
pytestmark = pytest.mark.filterwarnings("default::UserWarning:ctranslate2")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("argos")
    write_marian(folder / "model")
    return packed(folder / "de_en.argosmodel", folder / "model")


def test_argos_package_is_imported(package, tmp_path):
    arguments = ["import", str(package), "--out", str(tmp_path / "bundle"), "--json"]
    done = CliRunner().invoke(main.app, arguments)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert {name: facts[name] for name in ("family", "name", "license", "source_language")} == {
        "family": "CTranslate2",
        "name": "de_en 1.3",
        "license": "cc0-1.0",
        "source_language": "de",
    }
    bundle = Translator.load(tmp_path / "bundle")
    assert bundle.languages == ("de", "en")
    expected = weights_of(import_model(package.parent / "model"))
    with zipfile.ZipFile(package) as archive:
        archive.extractall(tmp_path / "packages")
    unpacked = import_model(tmp_path / "packages" / "translate-xx_yy-1_0")
    assert unpacked.origin["name"] == "de_en 1.3"
    for translator in (bundle, unpacked):
        for name, array in weights_of(translator).items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_hostile_packages_are_named(package, tmp_path):
    path = tmp_path / "hostile.argosmodel"
    content = package.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert f"Argos Translate: {path} does not load: File is not a zip file" in refused(path)
    damaged = bytearray(content)
    damaged[100] ^= 255
    path.write_bytes(damaged)
    assert "does not load" in refused(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "a")
    assert "expected a package with one model/model.bin, got 0 in 1 files" in refused(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/model/model.bin", bytes(10**7))
    assert "does not load: expected at most" in refused(path)


def test_package_files_stay_inside(package, tmp_path):
    """Names in an archive are never used as paths."""
    path = tmp_path / "folder" / "outside.argosmodel"
    path.parent.mkdir()
    packed(path, package.parent / "model", root="../../outside/")
    with argos.unpacked(path) as folder:
        assert (folder / "model" / "model.bin").is_file()
    assert sorted(os.listdir(tmp_path)) == ["folder"]
    assert not folder.exists()


def write_opus_mt(folder):
    """As Locomotive converts OPUS-MT: a vocabulary of both sides, and only the source's model."""
    models = [trained(side, pieces) for side, pieces in (("source", 71), ("target", 67))]
    pieces = dict.fromkeys(piece for model in models for piece in pieces_of(model))
    write_marian(folder, models[0], ["</s>", "<unk>", *pieces])


def write_nllb(folder):
    """As NLLB-200: each target starts with the end token and a language token."""
    pieces = pieces_of(trained("target", 67))
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *pieces, "deu_Latn", "eng_Latn"]
    write_fairseq(folder, tokens, tied="none", pre_norm=True)
    (folder / "sentencepiece.bpe.model").rename(folder / "sentencepiece.model")


def write_package(folder, write, **metadata):
    """Write an unpacked package, and return it."""
    write(folder / "model")
    (folder / "model" / "sentencepiece.model").rename(folder / "sentencepiece.model")
    values = {"from_code": "de", "to_code": "en", "package_version": "1.9", **metadata}
    (folder / "metadata.json").write_text(json.dumps(values))
    return folder


def translated_by_argos(package, texts, **limits):
    """The translations of one sentence each, as `apply_packaged_translation` makes them."""
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(package / "sentencepiece.model")
    )
    prefix = json.loads((package / "metadata.json").read_text()).get("target_prefix", "")
    engine = ctranslate2.Translator(str(package / "model"), compute_type="float32", intra_threads=1)
    results = engine.translate_batch(
        processor.encode(texts, out_type=str),
        target_prefix=[[prefix]] * len(texts) if prefix else None,
        replace_unknowns=True,
        beam_size=4,
        length_penalty=0.2,
        **limits,
    )
    for result in results:
        value = processor.decode_pieces(result.hypotheses[0]).replace("▁", " ").replace("_", " ")
        # Argos Translate itself does not find a prefix whose underscores have become blanks.
        yield value.removeprefix(prefix.replace("_", " ")).removeprefix(" ")


# A search each. The searches of CTranslate2's own folders are compared in every run.
@pytest.mark.long
@pytest.mark.parametrize(
    ("write", "metadata"),
    [(write_nllb, {"target_prefix": "eng_Latn"}), (write_opennmt, {}), (write_opus_mt, {})],
)
def test_packages_translate_as_argos(write, metadata, tmp_path):
    count = 200
    package = write_package(tmp_path / "package", write, **metadata)
    translator = import_model(package)
    texts = sentences("source" if write is write_opus_mt else "target", count, seed=5)
    # Random models often end at once. After a language token, CTranslate2 would drop such an end
    # unless it is the most probable token.
    settings = {**translator.origin["search"], "max_length": 30, "min_length": 2}
    ours = [translation.text for translation in translator.translate(texts, **settings)]
    counted = len(translator.model.config.target_prefix)
    limits = {"max_decoding_length": 30 + counted, "min_decoding_length": 1 + counted}
    theirs = list(translated_by_argos(package, texts, **limits))
    # The scores of two hypotheses may be equal: CTranslate2 then chooses by the size of a batch.
    alone = list(translated_by_argos(package, texts, **limits, max_batch_size=1))
    # Argos Translate writes underscores, as in a language token, as blanks.
    ours = [text.replace("_", " ") for text in ours]
    assert all(text in pair for text, *pair in zip(ours, theirs, alone, strict=True))
    assert sum(text == other for text, other in zip(ours, theirs, strict=True)) >= 0.975 * count
    assert len(set(theirs)) > count / 4


@pytest.mark.parametrize(
    ("metadata", "part"),
    [
        ({"type": "sbd"}, "expected a package of type 'translate', got 'sbd' in"),
        ({"target_prefix": ["__en__"]}, "expected a token as target_prefix in"),
        ({"target_prefix": "__en__"}, "a decoder that reads '__en__' before every target in"),
        ({"target_prefix": "</s>"}, "got start_from_zero_embedding"),
    ],
)
def test_packages_without_translators_are_named(package, tmp_path, metadata, part):
    path = packed(tmp_path / "a.argosmodel", package.parent / "model", **metadata)
    assert part in refused(path)


def test_subword_nmt_packages_name_the_nearest_way(package, tmp_path):
    path = tmp_path / "bpe.argosmodel"
    with zipfile.ZipFile(package) as archive, zipfile.ZipFile(path, "w") as changed:
        for name in archive.namelist():
            renamed = name.replace("sentencepiece.model", "bpe.model")
            changed.writestr(renamed, archive.read(name))
    message = refused(path)
    assert "got bpe.model: codes of subword-nmt for words of Moses's tokenizer" in message
    assert "import an OPUS-MT model of the pair" in message


@pytest.mark.parametrize("root", ["", "any name/", "translate-en_pb-1_0/"])
def test_package_roots_and_codes_are_read(package, tmp_path, root):
    codes = {"from_code": "zt", "to_code": "pb", "package_version": 1.0}
    path = packed(tmp_path / "a.argosmodel", package.parent / "model", root=root, **codes)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"__MACOSX/{root}model/._model.bin", b"resource fork")
    with argos.unpacked(path) as folder:
        name, languages, _ = argos.read_package(folder)
        assert sorted(os.listdir(folder / "model")) == [
            "config.json",
            "model.bin",
            "shared_vocabulary.json",
        ]
    assert languages == ("zh_Hant", "pt_BR")
    assert name == "zt_pb 1.0"
