import functools
import http.server
import threading

import pytest
import tensorflow_datasets as tfds

from tfk_transformer.datasets import Report, load
from tfk_transformer.datasets.number_words import NumberWords, NumberWordsConfig

VALIDATION = [
    ("hallo", "hello"),
    ("", "nothing"),
    ("Größe\u2028XL", "size"),
    ("vier", " "),
    ("fünf", "five"),
]


class TinyPairs(tfds.core.GeneratorBasedBuilder):
    """Five pairs; being defined registers it with TFDS."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.Translation(languages=["de", "en"]),
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager):
        return {
            "validation": self._generate_examples(VALIDATION),
            "train": self._generate_examples([("eins", "one")]),
        }

    def _generate_examples(self, pairs):
        for key, (de, en) in enumerate(pairs):
            yield key, {"de": de, "en": en}


class TinyImages(tfds.core.GeneratorBasedBuilder):
    """No translation dataset."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict({"label": tfds.features.Text()})
        )

    def _split_generators(self, dl_manager):
        return {}

    def _generate_examples(self):
        yield from ()


class TinyManual(TinyPairs):
    """A dataset whose files the user has to fetch."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = "Fetch it yourself."

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(dl_manager.manual_dir)}


class TinyDownload(TinyPairs):
    """A dataset whose server, here on this machine, does not have it."""

    url = ""

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(dl_manager.download(self.url))}


@pytest.fixture(autouse=True)
def data_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path


def test_dataset_is_prepared_on_read(data_dir):
    source, report = load("tfds:tiny_pairs:de-en"), Report()
    assert list(data_dir.iterdir()) == []
    assert source.splits == ("train", "validation")
    assert list(source.pairs("validation", report)) == [
        ("hallo", "hello", "tiny_pairs validation 1"),
        ("Größe\u2028XL", "size", "tiny_pairs validation 3"),
        ("fünf", "five", "tiny_pairs validation 5"),
    ]
    assert report.lines() == [
        "dropped 2 pairs with an empty side (tiny_pairs validation 2, tiny_pairs validation 4)"
    ]
    assert (data_dir / "tiny_pairs" / "1.0.0" / "dataset_info.json").is_file()


def test_direction_and_version():
    source = load("tfds:tiny_pairs:1.0.0:en-de")
    assert (source.source_language, source.target_language) == ("en", "de")
    assert list(source.pairs("train")) == [("one", "eins", "tiny_pairs:1.0.0 train 1")]


def test_unknown_split_is_refused():
    source = load("tfds:tiny_pairs:de-en")
    with pytest.raises(
        ValueError,
        match=r"^split: expected one of train, validation, which tfds:tiny_pairs:de-en has, got "
        r"'test'; choose one of them, or add the split to the data\.$",
    ):
        source.pairs("test")


def test_missing_language_is_named():
    with pytest.raises(
        ValueError, match=r"^tfds: 'tiny_pairs' has the languages de, en, not fr\.$"
    ):
        load("tfds:tiny_pairs:de-fr")


def test_dataset_needs_translations():
    with pytest.raises(
        ValueError,
        match=(
            r"^tfds: 'tiny_images' is not a translation dataset: expected "
            r"tfds.features.Translation, got FeaturesDict\.$"
        ),
    ):
        load("tfds:tiny_images:de-en")


def test_unknown_dataset_is_one_line():
    with pytest.raises(
        ValueError, match=r"^tfds: no dataset 'tiny_pair/x'\. Did you mean 'tiny_pairs'\?$"
    ):
        load("tfds:tiny_pair/x:de-en")


def test_unknown_config_is_one_line():
    with pytest.raises(
        ValueError,
        match=r"^tfds: 'number_words/en-xy' cannot be opened: .*BuilderConfig en-xy not found.*$",
    ):
        load("tfds:number_words/en-xy:en-de")


def test_unknown_version_is_one_line():
    with pytest.raises(
        ValueError, match=r"^tfds: 'tiny_pairs:9\.9\.9' cannot be opened: .*only: 1\.0\.0\.$"
    ):
        load("tfds:tiny_pairs:9.9.9:de-en")


def test_manual_dataset_says_so():
    source = load("tfds:tiny_manual:de-en")
    with pytest.raises(
        ValueError,
        match=r"^tfds: 'tiny_manual' could not be downloaded and prepared: .*Fetch it yourself\.",
    ):
        source.pairs("train")


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_failed_download_is_one_line(server, monkeypatch):
    monkeypatch.setattr(TinyDownload, "url", f"{server}/pairs.txt")
    source = load("tfds:tiny_download:de-en")
    with pytest.raises(
        ValueError,
        match=(
            r"^tfds: 'tiny_download' could not be downloaded and prepared: Failed to get url .* "
            r"code: 404\.$"
        ),
    ):
        source.pairs("train")


@pytest.fixture
def few():
    return tfds.download.DownloadConfig(max_examples_per_split=3)


def test_number_words_tfds_builder(data_dir, few):
    builder = NumberWords(data_dir=data_dir)
    builder.download_and_prepare(download_config=few)
    examples = {
        (example["en"], example["de"])
        for example in tfds.as_numpy(builder.as_dataset(split="test"))
    }
    assert builder.info.full_name == "number_words/en-de/2.0.0"
    assert builder.info.supervised_keys == ("en", "de")
    assert {split: info.num_examples for split, info in builder.info.splits.items()} == {
        "train": 3,
        "validation": 3,
        "test": 3,
    }
    assert examples == {
        (
            b"one hundred sixty thousand eight hundred thirty-one",
            "einhundertsechzigtausendachthunderteinunddreißig".encode(),
        ),
        (b"five thousand five hundred two", "fünftausendfünfhundertzwei".encode()),
        (b"six thousand three hundred sixty", b"sechstausenddreihundertsechzig"),
    }


def test_number_words_listed_config():
    builder = tfds.builder("number_words/en-fr")
    assert builder.info.features.languages == ["en", "fr"]


def test_number_words_unlisted_pair(data_dir, few):
    builder = NumberWords(config=NumberWordsConfig("fi-en"), data_dir=data_dir)
    builder.download_and_prepare(download_config=few)
    source = load("tfds:number_words/fi-en:2.0.0:fi-en")
    assert sorted(source.pairs("test"))[0][:2] == (
        "kuusituhatta kolmesataakuusikymmentä",
        "six thousand three hundred sixty",
    )


def test_number_words_bad_language():
    with pytest.raises(ValueError, match=r"^language: expected a code of num2words, got 'xx'"):
        NumberWordsConfig("en-xx")
