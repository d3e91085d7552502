"""Folders of `save_to_disk` of Hugging Face's `datasets`."""

import pytest

from tfk_transformer.datasets import load

hub = pytest.importorskip("datasets")
TEXTS = {"id": list(range(40)), "de": [f"Satz {n}" for n in range(40)], "en": ["x"] * 40}
COLUMNS = ",source=de,target=en"


@pytest.fixture
def folder(tmp_path):
    hub.disable_progress_bars()
    hub.Dataset.from_dict(TEXTS).save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("form", ["{}", "hf:{}"])
def test_saved_folder_is_read(folder, form):
    source = load(form.format(folder) + COLUMNS)
    assert next(source.pairs("all")) == ("Satz 0", "x", "train:1")
    assert source.splits == ("train", "validation", "test", "all")


def test_splits_of_a_saved_dictionary_stay(tmp_path):
    data = hub.Dataset.from_dict(TEXTS)
    hub.DatasetDict(train=data, validation=data).save_to_disk(tmp_path / "saved")
    assert load(f"{tmp_path}/saved{COLUMNS}").splits == ("train", "validation")


def test_nested_texts_are_read(tmp_path):
    rows = [{"id": str(n), "translation": {"de": f"Satz {n}", "en": "x"}} for n in range(5)]
    hub.Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    assert next(load(str(tmp_path / "saved")).pairs("train")).source == "Satz 0"


def test_digest_is_of_the_files(folder, tmp_path):
    first = load(f"{folder}{COLUMNS}").digest("train")
    hub.Dataset.from_dict({**TEXTS, "en": ["y"] * 40}).save_to_disk(tmp_path / "other")
    assert load(f"{tmp_path}/other{COLUMNS}").digest("train") != first


def test_damaged_folder_is_refused(folder):
    (folder / "state.json").write_text("{")
    with pytest.raises(ValueError, match="expected a data set that `datasets` opens, got "):
        load(str(folder))
