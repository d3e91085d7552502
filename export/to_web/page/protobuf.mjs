// Read the fields of protocol buffers from bytes, without a schema.

/**
 * Yield the fields of the message in bytes [at, end): {field, value} for integers, and
 * {field, start, end} for other types.
 */
export function* fields(bytes, at = 0, end = bytes.length) {
  function number() {
    for (let value = 0, scale = 1; ; scale *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }
  while (at < end) {
    const key = number();
    const [field, kind] = [Math.floor(key / 8), key % 8];
    if (kind === 0) yield { field, value: number() };
    else {
      const size = kind === 2 ? number() : kind === 1 ? 8 : 4;
      yield { field, start: at, end: at + size };
      at += size;
    }
  }
}

/** Return the fields with this number in a part [start, end) of the bytes. */
export const fieldsOf = (bytes, { start, end }, field) => [...fields(bytes, start, end)].filter((found) => found.field === field);

/** Return the text of a part of the bytes. */
export const textOf = (bytes, { start, end }) => new TextDecoder().decode(bytes.subarray(start, end));
