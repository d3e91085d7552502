// The files of a model: a web folder, or translate.onnx, which has everything in one file.
import { fieldsOf, textOf } from "./protobuf.mjs";
import { addressOf, read, readAll } from "./reading.mjs";
import { webAssembly } from "./runtime/onnxruntime.mjs";

const HERE = import.meta.url; // `new URL(".", import.meta.url)` would be an asset for bundlers
const METADATA = "tfk_transformer"; // the name of the metadata in ONNX files
const [MODEL_METADATA, ENTRY_KEY, ENTRY_VALUE] = [14, 1, 2]; // fields of onnx.proto

/**
 * Read the files of a folder that `tfk-transformer export --format web` wrote.
 * @returns {{model, search, source, target, wasmBinary, score}} the description; the content of the
 *   ONNX file, of both tokenizers, and of onnxruntime's WebAssembly, if it is in the folder of this
 *   module; and the address of the ONNX file that scores.
 */
export async function readFolder(folder, onProgress) {
  const { href } = await addressOf(folder ?? ownFolder());
  const at = (name) => new URL(name, href.endsWith("/") ? href : `${href}/`);
  const model = JSON.parse(new TextDecoder().decode(await read(at("model/model.json"))));
  const { search, score, source, target } = model.files;
  const names = [...new Set([search, source, target])];
  const addresses = Object.fromEntries(names.map((name) => [name, at(name)]));
  if (webAssembly) addresses[webAssembly.name] = webAssembly.address;
  const total = Object.keys(addresses).reduce((sum, name) => sum + model.bytes[name], 0);
  const content = await readAll(addresses, total, onProgress);
  return {
    model,
    search: content[search],
    source: content[source],
    target: content[target],
    wasmBinary: webAssembly && content[webAssembly.name],
    score: at(score),
  };
}

/** Return the web folder of this module. The npm package has no model. */
function ownFolder() {
  if (!webAssembly) throw new Error("openTranslator: expected the address of translate.onnx as file, or of a web folder as folder, got neither.");
  return new URL(".", HERE);
}

/**
 * Read translate.onnx; see `readFolder` for the result, where the tokenizers are in `search`.
 * @param {string | URL | Uint8Array} file its address, its path in Node, or its content.
 */
export async function readFile(file, onProgress) {
  const isContent = file instanceof Uint8Array;
  const address = isContent ? undefined : await addressOf(file);
  const { search } = isContent ? { search: file } : await readAll({ search: address }, undefined, onProgress);
  return { model: description(search, address), search, score: address && new URL("score.onnx", address) };
}

/** Return what the metadata of translate.onnx says about the model, as model.json has it. */
function description(bytes, address) {
  const name = address ? decodeURI(address.pathname) : "file";
  const metadata = metadataOf(bytes);
  if (!metadata?.search) throw new Error(`${name}: expected translate.onnx of tfk-transformer, got another file.`);
  const { search, ...rest } = metadata;
  return { ...rest, settings: search };
}

function metadataOf(bytes) {
  try {
    const entries = fieldsOf(bytes, { start: 0, end: bytes.length }, MODEL_METADATA);
    const text = (entry, field) => textOf(bytes, fieldsOf(bytes, entry, field)[0]);
    const entry = entries.find((candidate) => text(candidate, ENTRY_KEY) === METADATA);
    return entry && JSON.parse(text(entry, ENTRY_VALUE));
  } catch {
    return undefined; // not an ONNX file
  }
}
