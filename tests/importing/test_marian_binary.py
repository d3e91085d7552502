"""Marian's .bin files: values to the bit, and files that are broken or hostile."""

import struct

import numpy as np
import pytest
from marian_npz_folder import binary_file, stored, write_file

from tfk_transformer.importing.marian_files.files import open_binary
from tfk_transformer.importing.model_import import import_model

COUNT = 8  # the offset of the number of arrays
FIRST = 16  # the offset of the four sizes of the first array


@pytest.mark.parametrize("dtype", ["float32", "float16", "int16", "int8"])
def test_binary_values_are_exact(tmp_path, dtype):
    file = open_binary(write_file(tmp_path, dtype=dtype, student=True))
    with np.load(tmp_path / "weights") as expected:
        for name, array in expected.items():
            assert file.shapes[name] == array.shape
            np.testing.assert_array_equal(file.read(name), array)


@pytest.mark.parametrize(("number", "dtype"), [(0x10001, "int8"), (0x10002, "int16")])
def test_quantized_types_of_both_forks(tmp_path, number, dtype):
    array = np.arange(6, dtype="float32").reshape(2, 3)
    item, expected = stored("encoder_l1_self_Wq", array, dtype)
    content = bytearray(binary_file({"encoder_l1_self_Wq": item}))
    content[FIRST + 8 : FIRST + 16] = struct.pack("<Q", number)
    np.testing.assert_array_equal(read(tmp_path, content), expected)


def test_unaligned_data_are_read(tmp_path):
    values = np.arange(6, dtype="float32").reshape(2, 3)
    item = ("float32", values.shape, values.tobytes())
    (tmp_path / "model.bin").write_bytes(binary_file({"a": item, "b": item}))
    file = open_binary(tmp_path / "model.bin")
    np.testing.assert_array_equal(file.read("b"), values)


def read(folder, content):
    """Return the first array of a file with these bytes."""
    path = folder / "model.bin"
    path.write_bytes(content)
    file = open_binary(path)
    return file.read(next(iter(file.shapes)))


def patched(offset, form, *values):
    """Return the bytes of a file of one quantized array, of which some are replaced."""
    item = stored("encoder_l1_self_Wq", np.ones((2, 3), "float32"), "int8")[0]
    content = bytearray(binary_file({"encoder_l1_self_Wq": item}))
    replacement = struct.pack(form, *values)
    content[offset : offset + len(replacement)] = replacement
    return bytes(content)


SHAPE = FIRST + 32 + len("encoder_l1_self_Wq") + 1
GAP = SHAPE + 8  # the offset of the number of bytes before the data
DATA = 256
BROKEN = {
    "another version": (patched(0, "<Q", 2), "version 1 .* got 2"),
    "no bytes": (b"", "breaks off at byte 0"),
    "many arrays": (patched(COUNT, "<Q", 10_001), "at most 10,000 arrays, got 10,001"),
    "more arrays": (patched(COUNT, "<Q", 9_999), "breaks off at byte"),
    "a long name": (patched(FIRST, "<Q", 2**63), "breaks off at byte"),
    "many axes": (patched(FIRST + 16, "<Q", 2**40), "1 to 8 axes .* got 1,099,511,627,776"),
    "no axes": (patched(FIRST + 16, "<Q", 0), "1 to 8 axes .* got 0"),
    "more data": (patched(FIRST + 24, "<Q", 2**63), "expected 10 bytes .* got 9,22.* 256 bytes"),
    "fewer data": (patched(FIRST + 24, "<Q", 9), "expected 10 bytes .* got 9"),
    "a large shape": (patched(SHAPE, "<2I", 2**32 - 1, 2**32 - 1), r"expected 18,446,744,.* bytes"),
    "a negative axis": (patched(SHAPE, "<i", -1), "expected 12,884,901,889 bytes"),
    "a long gap": (patched(GAP, "<Q", 2**63), "with 0 bytes left"),
    "no factor": (patched(DATA + 6, "<f", 0.0), "positive factor .* got 0.0"),
    "a tiny factor": (patched(DATA + 6, "<f", 1e-40), "positive factor .* got 9.99"),
    "an infinite factor": (patched(DATA + 6, "<f", np.inf), "positive factor .* got inf"),
    "a negative factor": (patched(DATA + 6, "<f", -127.0), "positive factor .* got -127.0"),
    "packed8avx2": (patched(FIRST + 8, "<Q", 0x1801), "got packed8avx2 for 'encoder_l1_self_Wq'"),
    "intgemm8avx512vnni": (patched(FIRST + 8, "<Q", 0x13001), "got intgemm8avx512vnni for"),
    "an unknown type": (patched(FIRST + 8, "<Q", 0x208), "got type 0x208 for"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_binaries_are_refused(tmp_path, name):
    content, message = BROKEN[name]
    with pytest.raises(ValueError, match=rf"model.bin does not load: .*{message}") as error:
        read(tmp_path, content)
    assert "\n" not in str(error.value)


def test_repeated_names_are_refused(tmp_path):
    item = ("float32", (1,), bytes(4))
    content = binary_file({"aa": item, "ab": item}).replace(b"ab\0", b"aa\0")
    with pytest.raises(ValueError, match="1 names appear twice"):
        read(tmp_path, content)


def test_cut_binaries_are_refused(tmp_path):
    path = write_file(tmp_path, dtype="int8", student=True)
    content = path.read_bytes()
    for size in np.random.default_rng(5).integers(8, len(content), 60):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"model.bin does not load: ") as error:
            open_binary(path)
        assert "\n" not in str(error.value)


def test_changed_headers_never_crash(tmp_path):
    path = write_file(tmp_path, dtype="int8", student=True)
    content = path.read_bytes()
    random = np.random.default_rng(6)
    refused = 0
    for _ in range(300):
        changed = bytearray(content)
        for offset in random.integers(0, 16_000, 3):
            changed[offset] = random.integers(0, 256)
        path.write_bytes(changed)
        try:
            file = open_binary(path)
            for name in file.shapes:
                file.read(name)
        except ValueError as error:
            refused += 1
            assert str(error).startswith("Marian: ")
    assert refused > 100


def test_binary_without_options_is_refused(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(binary_file({"Wemb": ("float32", (1,), bytes(4))}))
    (tmp_path / "vocab.spm").touch()
    with pytest.raises(ValueError, match="got .*model.bin without 'special:model.yml'"):
        import_model(path, vocab=[tmp_path / "vocab.spm"])
