"""Mutations of files for scripts/fuzz.py: each takes the content and a source of randomness.

The ten formats make it longer than 60 lines.
"""

import copy
import gzip
import io
import json
import random
import re
import warnings
import zipfile
from typing import Any

VALUES: list[Any] = [
    None, True, -1, 0, 1, 3, 2**31, 2**63, 10**7, 10**9, 10**400,
    0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", "x", "\0", "\ud800", "x" * 10**5, [], [1], {}, {"a": 1}, [[]] * 9,
]  # fmt: skip
NAMES = ["self", "", "__class__", "max_length", "x" * 10**4, "\n", "é"]
# Values in YAML and TOML.
SCRAPS = [
    "!!bool maybe", "!!int ''", "!!float x", "!!timestamp foo", "!!binary é", "!!set [1]", "!x y",
    "&a [*a]", "{<<: &a {b: 1}, <<: *a}", "~", "- x", "0x" + "f" * 9000, "9" * 9000, ".inf",
    "&a [1, 1, 1, 1, 1, 1, 1, 1]\n" + "\n".join(f"k{i}: &a [{'*a, ' * 9}*a]" for i in range(9)),
    "[" * 9000, "{a: " * 900, '"', "a" * 9000, "1979-05-27", "[[a]]", "[a.b]", "[" + "a." * 9000,
    "a." * 30000 + "a = 1", "{" + "a." * 30000 + "a = 1}", "'" + "." * 9000 + "'", "{a.b = 1}",
]  # fmt: skip
DTYPES = [
    "|O", "|S2000000000", "<U1000000", "<U9", "<f8", "<f2", ">f4", "|i1", "|u1", "<i8", "|b1",
    "<c16", "<M8[s]", "|V8", "x" * 99,
]  # fmt: skip
SHAPES = [
    "()", "(0,)", "(3,)", "(1, 2, 3)", "(-1,)", "(-1, -3)", "(10000000000,)", "(x,)", "[" * 99,
    "(99999999999999999999999, 0)", "(True,)", "(1.5,)", "(1,) * 99",
]  # fmt: skip
METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
# In a directory of a zip archive: the offsets and sizes of flags, method, sizes and start.
FIELDS = [(8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (42, 4)]
NUMBERS = [0, 1, 8, 9, 12, 14, 93, 99, 2**16 - 1, 2**31 - 1, 2**32 - 1]
TEXTS = [b"[" * 10**5, b"", b"null", b"5", b'"x"', b"[1]", b'{"a":' * 10**4]


def mutated_bytes(content: bytes, chance: random.Random) -> bytes:
    """Flip, overwrite, insert, repeat, delete or cut, often near the start, where headers are."""
    data = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 8, 64])):
        start = chance.randrange(max(1, chance.choice([len(data), min(len(data), 4096)])))
        end = start + chance.choice([1, 2, 4, 8, 64])
        old, size = data[start:end], end - start
        flipped = bytes(byte ^ 1 << chance.randrange(8) for byte in old[:1]) + old[1:]
        more = [b"\0" * size, b"\xff" * size, b"\x7f" * size, chance.randbytes(size) + old]
        data[start:end] = chance.choice([flipped, flipped, flipped, *more, old * 2, b""])
        if chance.random() < 0.02:
            del data[start:]
    return bytes(data)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) in nested objects and lists."""
    pairs = {dict: dict.items, list: enumerate}.get(type(value), lambda _: ())(value)
    return [place for key, inner in pairs for place in [(value, key), *places(inner)]]


def change(value: Any, chance: random.Random) -> None:
    """Replace, delete, rename or copy one entry of nested objects and lists."""
    if not (found := places(value)):
        return
    container, key = chance.choice(found)
    action = chance.random()
    old = container.pop(key) if action > 0.6 else container[key]
    if action <= 0.5:
        # A copy, since a later mutation may change the value.
        container[key] = copy.deepcopy(chance.choice(VALUES))
    elif action < 0.8 and isinstance(container, dict):
        container[chance.choice(NAMES)] = old


def mutated_json(text: bytes, chance: random.Random) -> bytes:
    """Change a few entries, or damage the text."""
    if chance.random() < 0.15:
        return chance.choice([*TEXTS, mutated_bytes(text, chance)])
    value = json.loads(text)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        change(value, chance)
    return json.dumps(value).encode()


def mutated_safetensors(content: bytes, chance: random.Random) -> bytes:
    """Mutate the header, a length followed by JSON, or any bytes."""
    if chance.random() < 0.3:
        return mutated_bytes(content, chance)
    end = 8 + int.from_bytes(content[:8], "little")
    header = mutated_json(content[8:end], chance)
    size = len(header)
    length = chance.choice([*[size] * 16, 0, 1, size + 9, 2**40, 2**64 - 1])
    return length.to_bytes(8, "little") + header + content[end:]


def changed_message(message: Any, chance: random.Random) -> Any:
    """Change an entry of a protobuf message such that it remains a message of its type."""
    from google.protobuf import json_format

    while True:
        value = json_format.MessageToDict(message)
        change(value, chance)
        try:
            return json_format.ParseDict(value, type(message)(), ignore_unknown_fields=True)
        except (json_format.ParseError, UnicodeError, OverflowError, SystemError):
            pass  # the new value has another type


def mutated_message(kind: Any, content: bytes, chance: random.Random) -> bytes:
    """Change a few entries of a protobuf message, or any bytes."""
    if chance.random() < 0.3:
        return mutated_bytes(content, chance)
    message = kind.FromString(content)
    for _ in range(chance.choice([1, 1, 3])):
        message = changed_message(message, chance)
    return message.SerializePartialToString()


def mutated_onnx(content: bytes, chance: random.Random) -> bytes:
    """Mutate the metadata of this library in an ONNX file, or the file as a message."""
    import onnx

    if chance.random() < 0.6:
        return mutated_message(onnx.ModelProto, content, chance)
    model = onnx.ModelProto.FromString(content)
    (entry,) = [entry for entry in model.metadata_props if entry.key == "tfk_transformer"]
    entry.value = mutated_json(entry.value.encode(), chance).decode("utf-8", "replace")
    return model.SerializeToString()


def mutated_tokenizer(content: bytes, chance: random.Random) -> bytes:
    """Mutate a SentencePiece model as a message."""
    from sentencepiece import sentencepiece_model_pb2

    return mutated_message(sentencepiece_model_pb2.ModelProto, content, chance)


def mutated_options(text: bytes, chance: random.Random) -> bytes:
    """Replace values in lines of YAML or TOML, or any bytes."""
    if chance.random() < 0.3:
        return mutated_bytes(text, chance)
    lines = text.split(b"\n")
    for _ in range(chance.choice([1, 1, 3])):
        number = chance.randrange(len(lines))
        (name,) = re.match(rb"([\w-]+\s*[:=]\s*)?", lines[number]).groups(b"")
        lines[number] = chance.choice([name, name, b""]) + chance.choice(SCRAPS).encode()
    return b"\n".join(lines)


def mutated_npy(content: bytes, chance: random.Random) -> bytes:
    """Write another header, which states another dtype and shape, or mutate any bytes."""
    if chance.random() < 0.3:
        return mutated_bytes(content, chance)
    header = f"{{'descr': '{chance.choice(DTYPES)}', 'fortran_order': False, "
    header += f"'shape': {chance.choice(SHAPES)}}}\n"
    data = chance.choice([content[128:], b"", bytes(10**7)])
    return b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header.encode() + data


def mutated_archive(content: bytes, chance: random.Random) -> bytes:
    """Mutate a member of a zip archive, its compression, the directory, or any bytes."""
    action = chance.random()
    if action < 0.2:
        return mutated_bytes(content, chance)
    if action < 0.6:
        return mutated_directory(content, chance)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = chance.choice([*members])
    mutate = mutated_npy if name.endswith(".npy") else mutated_bytes
    changed = mutate(members[name], chance)
    members[name] = chance.choice([changed, changed, changed, bytes(2**28)])
    methods = {name: chance.choice(METHODS) for name in members} if action < 0.7 else {}
    changed_archive = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(changed_archive, "w") as archive:
        warnings.simplefilter("ignore")  # of names that appear twice
        for name, member in members.items():
            archive.writestr(name, member, methods.get(name, zipfile.ZIP_DEFLATED))
    return changed_archive.getvalue()


def mutated_directory(content: bytes, chance: random.Random) -> bytes:
    """Change flags, methods, sizes and starts of members in the directory of a zip archive."""
    data = bytearray(content)
    entries = [match.start() for match in re.finditer(b"PK\1\2", content)]
    for _ in range(chance.choice([1, 1, 3])):
        offset, size = chance.choice(FIELDS)
        number = chance.choice(NUMBERS) % 256**size
        for entry in chance.choice([entries, [chance.choice(entries)]]):
            data[entry + offset : entry + offset + size] = number.to_bytes(size, "little")
    return bytes(data)


def mutated_gzip(content: bytes, chance: random.Random) -> bytes:
    """Compress mutated lines, or an endless line, or mutate the compressed bytes."""
    if chance.random() < 0.3:
        return mutated_bytes(content, chance)
    changed = mutated_bytes(gzip.decompress(content), chance)
    return gzip.compress(chance.choice([changed, changed, changed, bytes(2**28)]), 1, mtime=0)


def mutated_pickle(content: bytes, chance: random.Random) -> bytes:
    """Write another kind of tensor into a file of `torch.save`, or mutate the archive."""
    import torch

    if chance.random() < 0.6:
        return mutated_archive(content, chance)
    tensors = torch.load(io.BytesIO(content), weights_only=True)
    name = chance.choice([*tensors])
    tensor = tensors.pop(name)
    kinds = [
        torch.nn.Parameter, torch.Tensor.to_sparse, lambda t: t.to("meta"), torch.Tensor.half,
        torch.Tensor.bool, lambda t: torch.nested.nested_tensor([t, t[:1]]), torch.Tensor.tolist,
        lambda t: t.to(torch.complex64), lambda t: t.flatten()[:1].expand(10**5, 10**5),
        lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8), lambda t: {"a": t}, id,
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of prototypes
        tensors[chance.choice([name, name, name, 5, "x" * 10**5])] = chance.choice(kinds)(tensor)
        changed = io.BytesIO()
        torch.save(tensors, changed)
    return changed.getvalue()
