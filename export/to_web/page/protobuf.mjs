// Read the fields of protocol buffers from bytes, without a schema, and write fields of bytes.

/**
 * Yield the fields of the message in bytes [at, end): {field, start, end, key} for texts, messages
 * and floats, and {field, value, key, end} for integers. The field begins at `key`.
 */
export function* fields(bytes, at = 0, end = bytes.length) {
  function number() {
    for (let value = 0, scale = 1; ; scale *= 128) {
      if (at >= end) throw new Error("expected a protocol buffer, got other or fewer bytes.");
      const byte = bytes[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }
  while (at < end) {
    const key = at;
    const tag = number();
    const [field, wireType] = [Math.floor(tag / 8), tag % 8];
    if (wireType === 0) {
      const value = number();
      yield { field, value, key, end: at };
    } else {
      const size = wireType === 2 ? number() : wireType === 1 ? 8 : 4;
      yield { field, start: at, end: at + size, key };
      at += size;
    }
  }
}

/** Return the fields with this number in a part [start, end) of the bytes. */
export const fieldsOf = (bytes, { start, end }, field) => [...fields(bytes, start, end)].filter((other) => other.field === field);

/** Return the text of a part of the bytes. */
export const textOf = (bytes, { start, end }) => new TextDecoder().decode(bytes.subarray(start, end));

/** Return a field with bytes or a text as its value. */
export function bytesField(field, value) {
  const content = typeof value === "string" ? new TextEncoder().encode(value) : value;
  return concatenated([bytesHeader(field, content.length), content]);
}

/** Return what precedes the value of a field with bytes of this length. */
export const bytesHeader = (field, length) => Uint8Array.of(...varint(field * 8 + 2), ...varint(length));

/** Return a field with an integer as its value. */
export const numberField = (field, value) => Uint8Array.of(...varint(field * 8), ...varint(value));

function varint(value) {
  const bytes = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...bytes, rest];
    bytes.push((rest % 128) + 128);
  }
}

/** Return parts as one array of bytes. */
export function concatenated(parts) {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
