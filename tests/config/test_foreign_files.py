"""Files that others wrote: honest ones are read, and others are refused in one short line, before
they take memory or time.
"""

import io
import json
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tfk_transformer.config import array_files, small_files
from tfk_transformer.data.encoding import META, PairCache, Rows
from tfk_transformer.data.labels import Labels
from tfk_transformer.datasets import Report
from tfk_transformer.export.runtime import protobuf
from tfk_transformer.export.runtime.opening import load
from tfk_transformer.formats.output_file import UnfinishedRun, unfinished_run
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer
from tfk_transformer.training.recipe import Recipe

SAVED = Path(__file__).parents[1] / "saved_files"
# Of an entry in the directory of an archive: offset and format.
FLAGS, METHOD, COMPRESSED_SIZE, SIZE = (8, "<H"), (10, "<H"), (20, "<I"), (24, "<I")


def refusal(read, *arguments):
    """The message of a refusal."""
    with pytest.raises(ValueError) as error, small_files.one_line_error("file: "):
        read(*arguments)
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


def test_missing_package_is_no_error_of_the_file():
    with pytest.raises(ImportError, match="No module named"), small_files.one_line_error("file: "):
        import no_such_module_of_any_package  # noqa: F401


def zipped(method=zipfile.ZIP_DEFLATED, **members):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, member in members.items():
            archive.writestr(f"{name}.npy", member)
    return content.getvalue()


def stating(field, value, content):
    """An archive whose directory states another value of all members."""
    offset, form = field
    content = bytearray(content)
    entry = content.find(b"PK\1\2")
    while entry >= 0:
        struct.pack_into(form, content, entry + offset, value)
        entry = content.find(b"PK\1\2", entry + 1)
    return bytes(content)


def npy(descr="'<f4'", shape="(3,)", data=bytes(12)):
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


def read_npz(path):
    with array_files.open_archive(path) as archive:
        return {
            name: array_files.read_npz(archive, name) for name in array_files.npz_headers(archive)
        }


BROKEN_ARRAYS = {
    "object": (npy("'|O'"), "expected arrays of numbers, got object for 'a'"),
    "long text": (npy("'|S2000000000'"), "expected arrays of numbers, got |S2000000000 for 'a'"),
    "date": (npy("'<M8[s]'"), "expected arrays of numbers, got datetime64[s] for 'a'"),
    "structure": (npy("[('b', '<f4')]"), "expected arrays of numbers, got [('b', '<f4')]"),
    "no type": (npy("None"), "descr is not a valid dtype descriptor"),
    "long type": (npy(repr("x" * 9000)), "descr is not a valid dtype descriptor"),
    "10 GB": (npy(shape="(10000000000,)"), "expected 12 bytes for 'a', got float32 of shape"),
    "negative": (npy(shape="(-1, -3)"), "expected 12 bytes for 'a', got float32 of shape (-1, -3)"),
    "no numbers": (npy(shape="(9999999999999999999999, 0)"), "file: "),
    "code": (npy(shape="(print(),)"), "malformed node"),
    "brackets": (npy(shape="(" * 3000), "file: "),
    "header of 2 GB": (b"\x93NUMPY\2\0" + struct.pack("<I", 2**31), "expected 2147483648 bytes"),
    "version 3": (b"\x93NUMPY\3\0" + bytes(9), "expected arrays of version 1.0 or 2.0, got (3, 0)"),
    "half": (npy()[:30], "EOF: reading array header"),
    "text": (b"words", "EOF: reading magic string"),
}
BROKEN_ARCHIVES = {
    "bzip2": (zipped(zipfile.ZIP_BZIP2, a=npy()), "got compression method 12 of 'a.npy'"),
    "lzma": (zipped(zipfile.ZIP_LZMA, a=npy()), "got compression method 14 of 'a.npy'"),
    "unknown method": (stating(METHOD, 99, zipped(a=npy())), "got compression method 99"),
    "encrypted": (stating(FLAGS, 1, zipped(a=npy())), "files without a password, got 'a.npy' with"),
    "large": (zipped(a=bytes(10**7)), "expected at most 4,"),
    "false size": (stating(SIZE, 2**31, zipped(a=npy())), "got 2,147,483,648"),
    "two false sizes": (
        stating(SIZE, 2**31, stating(COMPRESSED_SIZE, 2**31 - 1, zipped(a=npy()))),
        "got 2,147,483,648",
    ),
    "damaged": (zipped(a=npy())[:45] + b"\xff" * 20 + zipped(a=npy())[65:], "decompressing"),
    "cut": (zipped(a=npy())[:-30], "File is not a zip file"),
    "long name": (zipped(zipfile.ZIP_BZIP2, **{"a" * 60_000: b""}), f"'{'a' * 80}…'"),
}


@pytest.mark.parametrize(("content", "part"), BROKEN_ARCHIVES.values(), ids=BROKEN_ARCHIVES)
def test_archives_are_refused(tmp_path, content, part):
    path = tmp_path / "file.npz"
    path.write_bytes(content)
    assert part in refusal(read_npz, path)


def test_large_directory_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "MAX_DIRECTORY_BYTES", 100)
    path = tmp_path / "file.npz"
    path.write_bytes(zipped(a=npy(), b=npy(), c=npy()))
    assert "expected at most 10,000 files, got more" in refusal(read_npz, path)


@pytest.mark.parametrize(("content", "part"), BROKEN_ARRAYS.values(), ids=BROKEN_ARRAYS)
def test_arrays_are_refused(tmp_path, content, part):
    archive, array = tmp_path / "file.npz", tmp_path / "a"
    archive.write_bytes(zipped(a=content))
    array.write_bytes(content)
    for read, path in ((read_npz, archive), (array_files.open_npy, array)):
        assert part in refusal(read, path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_honest_archives_are_read(tmp_path, save):
    arrays = {
        "weights": np.arange(35, dtype="float32").reshape(5, 7),
        "about": np.array("a text"),
        "history": np.array(np.random.default_rng(1).bytes(550_000).hex()),  # of many epochs
        "none": np.zeros((0, 3), "int64"),
        "half": np.float16(1.5),
        "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    }
    save(tmp_path / "file.npz", **arrays)
    actual = read_npz(tmp_path / "file.npz")
    assert actual.keys() == arrays.keys()
    for name, expected in arrays.items():
        np.testing.assert_array_equal(actual[name], expected, err_msg=name)


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{earlier}'] * 9)}]\n"
    for earlier, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{earlier}'] * 9)}]}}\n"
    for earlier, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BROKEN_YAML = {
    "aliases": (BOMB, "expected at most 10,000 values, aliases included"),
    "merges": (MERGES, "expected at most 10,000 values, aliases included"),
    "circle": ("a: &a [*a]", "expected at most 10,000 values, aliases included"),
    "wide aliases": (
        f"a: &a [{'1, ' * 5000}]\nb: [{'*a, ' * 5000}]",
        "expected at most 10,000 values, aliases included",
    ),
    "bytes": ("a" * 70_000, "expected at most 65,536 bytes, got 70,000"),
    "depth": ("[" * 1500, "recursion"),
    "digits": ("a: 0x" + "f" * 9000, "expected values of at most 1,000 characters"),
    "bool": ("a: !!bool maybe", "KeyError: 'maybe'"),
    "int": ("a: !!int ''", "IndexError: string index out of range"),
    "timestamp": ("a: !!timestamp foo", "AttributeError"),
    "unknown tag": ("a: !x y", "could not determine a constructor for the tag '!x'"),
    "program": ("!!python/object/apply:os.getpid []", "could not determine a constructor"),
    "binary": ("a: !!binary é", "failed to convert base64 data into ascii"),
    "unhashable": ("{[a]: b}", "while constructing a mapping"),
    "bytes of no text": ("\0", "unacceptable character"),
}


@pytest.mark.parametrize(("text", "part"), BROKEN_YAML.values(), ids=BROKEN_YAML)
def test_yaml_is_refused(text, part):
    pytest.importorskip("yaml")
    assert part in refusal(small_files.parse_yaml, text.encode())


def test_honest_yaml_is_read():
    pytest.importorskip("yaml")
    text = b"a: &x [1, 0.5, true]\nb: *x\nc: {<<: {d: e}, f: ~}\n"
    values = {"a": [1, 0.5, True], "b": [1, 0.5, True], "c": {"d": "e", "f": None}}
    assert small_files.parse_yaml(text) == values
    assert small_files.parse_yaml(b"# nothing") is None


BROKEN_RECIPES = {
    "bytes": (f"a = '{'b' * 70_000}'", "expected a file of at most 65,536 bytes"),
    "key": ("a." * 30_000 + "a = 1", "got a line of more than 100 dots."),
    "inline key": ("x = {" + "a." * 30_000 + "a = 1}", "got a line of more than 100 dots."),
    "header": ("[" + "a." * 30_000 + "a]", "got a line of more than 100 dots."),
    "depth": ("a = " + "[" * 60_000, "got too many nested brackets."),
    "digits": ("a = " + "9" * 60_000, "got invalid TOML: Exceeds the limit"),
    "name": ("a" * 60_000 + " = 1", f"unknown key '{'a' * 80}…'"),
    "value": (f"preset = '{'a' * 60_000}'", "preset: Input should be"),
}


@pytest.mark.parametrize(("text", "part"), BROKEN_RECIPES.values(), ids=BROKEN_RECIPES)
def test_recipes_are_refused(tmp_path, text, part):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    assert part in refusal(Recipe.read, path)


BROKEN_JSON = {
    "lists": ("[" + "[]," * 2_100_000 + "0]", "expected JSON with at most 4,194,304 commas"),
    "depth": ("[" * 100_000, "too many nested brackets"),
    "digits": ("9" * 100_000, "Exceeds the limit"),
    "half": ('{"a": [', "breaks off or is malformed"),
}


@pytest.mark.parametrize(("text", "part"), BROKEN_JSON.values(), ids=BROKEN_JSON)
def test_json_is_refused(text, part):
    assert part in refusal(small_files.parse_json, text, "a.json")
    assert part in refusal(small_files.parse_json, text.encode(), "a.json")


@pytest.mark.parametrize("content", ["5", "null", "{}", "[[1]]", '["a", 5]', "[" * 10_000, "["])
def test_labels_are_refused(content):
    assert "labels: expected " in refusal(Labels, content.encode())


@pytest.mark.parametrize(
    "content",
    [b"\n\0" * 2**21 + b"\n", bytes(26_000_000), b"words"],
    ids=["pieces", "bytes", "text"],
)
def test_sentencepiece_models_are_refused(content):
    assert "expected a SentencePiece model, got" in refusal(SubwordTokenizer, content)


def safetensors_file(path, **arrays):
    header = json.dumps(arrays).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(100))
    return path


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        ({"a": {"dtype": "x" * 10**5, "shape": [1], "data_offsets": [0, 4]}}, "unknown variant"),
        ({"a": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4]}}, "invalid shape"),
        ({"a" * 17_000_000: {}}, "expected a header of at most 16,777,216 bytes"),
    ],
    ids=["type", "shape", "header"],
)
def test_safetensors_are_refused(tmp_path, arrays, part):
    pytest.importorskip("safetensors")
    path = safetensors_file(tmp_path / "a.safetensors", **arrays)
    assert part in refusal(array_files.open_safetensors, path)


def tensors(torch):
    torch.manual_seed(1)
    return dict(torch.nn.Linear(3, 5).named_parameters())


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda torch, values: values, {}),
        (lambda torch, values: values, {"_use_new_zipfile_serialization": False}),
        (lambda torch, values: {n: t.detach().requires_grad_() for n, t in values.items()}, {}),
        (lambda torch, values: {n: t.detach() for n, t in values.items()}, {}),
    ],
    ids=["parameters", "parameters in the legacy format", "with gradients", "tensors"],
)
def test_honest_pickles_are_read(tmp_path, change, options):
    torch = pytest.importorskip("torch")
    expected = tensors(torch)
    torch.save(change(torch, expected), tmp_path / "a.bin", **options)
    actual = array_files.read_pickle(tmp_path / "a.bin")
    assert actual.keys() == expected.keys()
    for name, tensor in actual.items():
        np.testing.assert_array_equal(tensor.numpy(), expected[name].detach().numpy())


BROKEN_PICKLES = {
    "sparse": lambda torch, tensor: tensor.to_sparse(),
    "without values": lambda torch, tensor: tensor.to("meta"),
    "nested": lambda torch, tensor: torch.nested.nested_tensor([tensor, tensor[:1]]),
    "quantized": lambda torch, tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8),
    "view of 40 GB": lambda torch, tensor: tensor[:1, :1].expand(10**5, 10**5),
    "list": lambda torch, tensor: tensor.tolist(),
    "program": lambda torch, tensor: print,
}


@pytest.mark.filterwarnings("ignore:.*(prototype|deprecated|pending|nested)")
@pytest.mark.parametrize("change", BROKEN_PICKLES.values(), ids=BROKEN_PICKLES)
def test_pickles_are_refused(tmp_path, change):
    torch = pytest.importorskip("torch")
    values = {name: tensor.detach() for name, tensor in tensors(torch).items()}
    torch.save({**values, "weight": change(torch, values["weight"])}, tmp_path / "a.bin")
    assert "file: " in refusal(array_files.read_pickle, tmp_path / "a.bin")


def test_deflated_pickle_is_refused_unread(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "a.bin"
    torch.save(tensors(torch), path)
    path.write_bytes(stating(SIZE, 2**31, path.read_bytes()))
    assert "expected at most" in refusal(array_files.read_pickle, path)


def as_npy(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def meta(**changes):
    return json.dumps({"contents": "c", "shards": 1, "dropped": {}, **changes}).encode()


BROKEN_CACHES = {
    "shards of a text": (META, meta(shards="x"), "expected x shards, got 1"),
    "too few shards": (META, meta(shards=0), "expected 0 shards, got 1"),
    "too many shards": (META, meta(shards=10**9), "expected 1000000000 shards, got 1"),
    "dropped of a number": (META, meta(dropped=5), "AttributeError"),
    "dropped of objects": (META, meta(dropped={"a": {"b": 1}}), "not enough values to unpack"),
    "dropped of texts": (META, meta(dropped={"a": ["x", []]}), "invalid literal for int()"),
    "no ids": ("00000.0.ids.npy", b"", "EOF: reading magic string"),
    "archive": ("00000.0.ids.npy", zipped(a=npy()), "the magic string is not correct"),
    "matrix": ("00000.0.ids.npy", as_npy(np.zeros((3, 1), int)), "expected ids, and the end"),
    "scalar": ("00000.0.ids.npy", as_npy(np.int32(3)), "expected ids, and the end"),
    "fractions": ("00000.1.ends.npy", as_npy(np.array([0.5, 3])), "expected ids, and the end"),
    "ends beyond": ("00000.1.ends.npy", as_npy(np.array([2, 9])), "expected ids, and the end"),
    "backwards": ("00000.1.ends.npy", as_npy(np.array([5, 3])), "expected ids, and the end"),
}


def read_cache(folder):
    return [*PairCache(folder, "c", lambda report: ()).shards(Report())]


@pytest.mark.parametrize(("name", "content", "part"), BROKEN_CACHES.values(), ids=BROKEN_CACHES)
def test_data_caches_are_refused(tmp_path, name, content, part):
    folder = tmp_path / "cache"
    sides = [Rows.of([[5, 6], [7]]), Rows.of([[8], [9, 4]])]
    written = [*PairCache(folder, "c", lambda report: [sides]).shards()]
    assert len(written) == len(read_cache(folder)) == 1
    (folder / name).write_bytes(content)
    assert part in refusal(read_cache, folder)


@pytest.mark.parametrize(
    "content",
    ["[]", "[" * 10_000, '{"run": 5}', '{"run": {}, "size": "x"}', '{"run": {}, "other": 1}', "x"],
)
def test_records_of_unfinished_runs_are_refused(tmp_path, content):
    (tmp_path / "a.partial.json").write_text(content)
    message = refusal(unfinished_run, tmp_path / "a")
    assert "expected the record of an unfinished run" in message


def test_long_setting_of_unfinished_run_is_shortened():
    done = UnfinishedRun({"model": "x" * 10**6})
    assert f'was "{"x" * 79}…' in refusal(done.check_run, {"model": "y"})


def test_onnx_file_of_many_fields_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(protobuf, "MAX_FIELDS", 50)
    path = shutil.copy(SAVED / "translate.onnx", tmp_path / "a.onnx")
    assert "does not load: expected at most 50 fields" in refusal(load, path)


def test_onnx_file_that_asks_for_memory_is_one_line(tmp_path):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(SAVED / "translate.onnx")
    size = onnx.helper.make_tensor("size", onnx.TensorProto.INT64, [1], [2**60])
    model.graph.initializer.append(size)
    model.graph.node.append(onnx.helper.make_node("ConstantOfShape", ["size"], ["large"]))
    output = onnx.helper.make_tensor_value_info("large", onnx.TensorProto.FLOAT, None)
    model.graph.output.append(output)
    onnx.save(model, tmp_path / "a.onnx")
    translator = load(tmp_path / "a.onnx", threads=1)
    with pytest.raises(OSError, match=r"^ONNX: .*a.onnx does not run: [^\n]*$"):
        translator.translate(["one"])
