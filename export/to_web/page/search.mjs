// Search with generate.onnx or translate.onnx in JavaScript: from source ids to target ids, with all
// search settings.
//
// The settings have defaults in the file, which makes them optional inputs. The JavaScript packages
// of onnxruntime do not support optional inputs: Node silently ignores them, and the web package
// refuses them. Therefore the defaults are read from the bytes of the file and renamed there, which
// turns the settings into required inputs.

import { fieldsOf, textOf } from "./protobuf.mjs";
import { withoutTextOperators } from "./text-operators.mjs";

const [PADDING_ID, END_ID] = [0, 2];

// Fields of onnx.proto.
const [MODEL_GRAPH, GRAPH_INITIALIZER, GRAPH_INPUT, INPUT_NAME] = [7, 5, 11, 1];
const [TENSOR_TYPE, TENSOR_NAME, TENSOR_DATA, FLOAT] = [2, 8, 9, 1];

/** Make the settings required inputs in the bytes of a file; return their {type, value} by name. */
function takeDefaults(bytes) {
  const within = (part, field) => fieldsOf(bytes, part, field);
  const text = (part) => textOf(bytes, part);
  const [graph] = within({ start: 0, end: bytes.length }, MODEL_GRAPH);
  const inputs = new Set(within(graph, GRAPH_INPUT).map((input) => text(within(input, INPUT_NAME)[0])));
  const defaults = {};
  for (const tensor of within(graph, GRAPH_INITIALIZER)) {
    const [name] = within(tensor, TENSOR_NAME);
    if (!inputs.has(text(name))) continue;
    const setting = text(name);
    bytes[name.start] ^= 0x20; // beam_size becomes Beam_size, which has the same length
    if (setting === "prefix_ids") continue; // not a scalar
    const view = new DataView(bytes.buffer, bytes.byteOffset + within(tensor, TENSOR_DATA)[0].start);
    const isFloat = within(tensor, TENSOR_TYPE)[0].value === FLOAT;
    const value = isFloat ? Number(view.getFloat32(0, true).toPrecision(7)) : view.getInt32(0, true);
    defaults[setting] = { type: isFloat ? "float32" : "int32", value };
  }
  return defaults;
}

/**
 * Open generate.onnx or translate.onnx.
 * @param ort onnxruntime-node or onnxruntime-web.
 * @param {Uint8Array} file its content.
 * @param {object} options of the session.
 * @returns {{defaults, generate, textInputs}} the {type, value} of each setting by name; a
 *   function; and the tokenizers of translate.onnx, see `withoutTextOperators`. The arguments of the
 *   function are rows of source ids (each with the end token), settings, and ids that all
 *   translations begin with. It returns [{ids, score}, …] for each row, best first.
 */
export async function openSearch(ort, file, options = {}) {
  // The methods of a Uint8Array copy, unlike those of Node's Buffer.
  const { bytes, textInputs } = withoutTextOperators(new Uint8Array(file.buffer, file.byteOffset, file.length));
  const defaults = takeDefaults(bytes);
  const session = await ort.InferenceSession.create(bytes, { logSeverityLevel: 3, ...options });
  const int32 = (values, shape) => new ort.Tensor("int32", Int32Array.from(values), shape);

  /** Return ids as a tensor (N, S), padded. */
  function padded(rows) {
    const length = Math.max(0, ...rows.map((row) => row.length));
    const values = rows.flatMap((row) => [...row, ...Array(length - row.length).fill(PADDING_ID)]);
    return int32(values, [rows.length, length]);
  }

  /** Return rows of ids, by the name of their input of texts, as the inputs that replace these. */
  function tokenized(rowsByName) {
    const int64 = (values) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [values.length]);
    const feeds = {};
    for (const { tokens, starts } of Object.values(textInputs)) {
      const names = Object.keys(textInputs).filter((name) => textInputs[name].tokens === tokens);
      const rows = names.flatMap((name) => rowsByName[name]);
      const ends = rows.reduce((sums, row) => [...sums, sums.at(-1) + row.length], [0]);
      feeds[tokens] = int32(rows.flat(), [ends.at(-1)]);
      feeds[starts] = int64(ends);
    }
    for (const [name, { count }] of Object.entries(textInputs)) if (count) feeds[count] = int64([rowsByName[name].length]);
    return feeds;
  }

  async function generate(rows, settings = {}, prefix = []) {
    const unknown = Object.keys(settings).filter((name) => !(name in defaults));
    if (unknown.length) throw new Error(`settings: expected some of ${Object.keys(defaults).join(", ")}, got ${unknown.join(", ")}.`);
    const wrong = rows.flat().concat(prefix, Object.values(settings)).filter((value) => !Number.isFinite(value));
    if (wrong.length) throw new Error(`ids and settings: expected numbers, got ${wrong[0]}.`);
    const feeds = textInputs.text
      ? tokenized({ text: rows, prefix: [[...prefix, END_ID]] })
      : { source_ids: padded(rows), prefix_ids: padded([[...prefix, PADDING_ID]]) }; // padding forces nothing
    for (const [name, { type, value }] of Object.entries(defaults)) {
      const values = [settings[name] ?? value];
      feeds[name] = new ort.Tensor(type, type === "int32" ? Int32Array.from(values) : Float32Array.from(values), []);
    }
    return unpack(await session.run(feeds));
  }
  return { defaults, generate, textInputs };
}

function unpack({ ids, scores }) {
  const [count, best, length] = ids.dims;
  const row = (index) => Array.from(ids.data.subarray(index * length, (index + 1) * length)).filter((id) => id > 0);
  const ranks = Array.from({ length: best }, (_, rank) => rank);
  return Array.from({ length: count }, (_, i) => ranks.map((rank) => ({ ids: row(i * best + rank), score: scores.data[i * best + rank] })));
}
