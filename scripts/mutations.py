"""Mutations of files for scripts/fuzz.py: each takes the content and a source of randomness.

The five formats make it longer than 60 lines.
"""

import copy
import json
import random
from typing import Any

VALUES: list[Any] = [
    None, True, -1, 0, 1, 3, 2**31, 2**63, 10**7, 10**9, 10**400,
    0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", "x", "\0", "\ud800", "x" * 10**5, [], [1], {}, {"a": 1}, [[]] * 9,
]  # fmt: skip
NAMES = ["self", "", "__class__", "max_length", "x" * 10**4, "\n", "é"]
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
        except (json_format.ParseError, UnicodeError, OverflowError):
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
