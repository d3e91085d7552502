// Run translate.onnx without onnxruntime-extensions, which the JavaScript packages do not have.
//
// The operators of the file that need it are tokenizers at its inputs and a detokenizer at its
// output. They are cut off, as in text_session.py, and their SentencePiece models are returned.
import { bytesField, bytesHeader, concatenated, fields, fieldsOf, numberField, textOf } from "./protobuf.mjs";

const DOMAIN = "ai.onnx.contrib"; // of onnxruntime-extensions
const TOKENIZER = "SentencepieceTokenizer";
const [IDS, TRANSLATIONS] = ["ids", "translations"]; // the output before and after the detokenizer
// Fields of onnx.proto.
const GRAPH = 7;
const [NODE, INITIALIZER, INPUT, OUTPUT] = [1, 5, 11, 12];
const [NODE_INPUT, NODE_OUTPUT, NODE_OPERATOR, NODE_ATTRIBUTE, NODE_DOMAIN] = [1, 2, 4, 5, 7];
const [VALUE_NAME, VALUE_TYPE, TENSOR_TYPE, ELEMENT_TYPE] = [1, 2, 1, 1];
const [TENSOR_NAME, ATTRIBUTE_STRING] = [8, 4];
const [INT32, INT64] = [6, 7];

/**
 * Cut the operators of onnxruntime-extensions off an ONNX model.
 * @param {Uint8Array} bytes the model.
 * @returns {{bytes, textInputs}} a copy of the rest of the model, and by name of each input of texts the
 *   inputs that replace it: `tokens` (int32, of all texts) and `starts` (int64, the index of the
 *   first token of each text, and the number of tokens), and `model`, its SentencePiece model. If
 *   several inputs have the same `tokens`, their texts are tokenized one after the other, and
 *   `count` (int64) is the number of texts of each.
 */
export function withoutTextOperators(bytes) {
  const [graph] = fieldsOf(bytes, whole(bytes), GRAPH);
  if (!graph) return { bytes: bytes.slice(), textInputs: {} };
  const textInputs = textInputsOf(bytes, graph);
  const parts = graphParts(bytes, graph, textInputs);
  const header = bytesHeader(GRAPH, parts.reduce((sum, part) => sum + part.length, 0));
  // The parts are copied once: a file may have hundreds of megabytes.
  return { bytes: concatenated([bytes.subarray(0, graph.key), header, ...parts, bytes.subarray(graph.end)]), textInputs };
}

const whole = (bytes) => ({ start: 0, end: bytes.length });
const textsOf = (bytes, part, field) => fieldsOf(bytes, part, field).map((found) => textOf(bytes, found));

function textInputsOf(bytes, graph) {
  const nodes = fieldsOf(bytes, graph, NODE);
  const nodesOf = (operator) => nodes.filter((node) => textsOf(bytes, node, NODE_OPERATOR)[0] === operator);
  const joined = new Map(nodesOf("Concat").map((node) => [textsOf(bytes, node, NODE_OUTPUT)[0], textsOf(bytes, node, NODE_INPUT)]));
  const counts = new Map(nodesOf("Shape").map((node) => [textsOf(bytes, node, NODE_INPUT)[0], textsOf(bytes, node, NODE_OUTPUT)[0]]));
  return Object.fromEntries(nodesOf(TOKENIZER).flatMap((node) => {
    const [texts] = textsOf(bytes, node, NODE_INPUT);
    const [tokens, starts] = textsOf(bytes, node, NODE_OUTPUT);
    const [part] = fieldsOf(bytes, fieldsOf(bytes, node, NODE_ATTRIBUTE)[0], ATTRIBUTE_STRING);
    const model = bytes.slice(part.start, part.end);
    return (joined.get(texts) ?? [texts]).map((name) => [name, { tokens, starts, count: counts.get(name), model }]);
  }));
}

/** Return the fields of a graph without operators of onnxruntime-extensions. */
function graphParts(bytes, graph, textInputs) {
  const parts = [...fields(bytes, graph.start, graph.end)].map((part) => changedField(bytes, part, textInputs));
  const types = new Map(); // of the inputs that replace inputs of texts
  for (const { tokens, starts, count } of Object.values(textInputs)) {
    types.set(tokens, INT32).set(starts, INT64);
    if (count) types.set(count, INT64);
  }
  return [...parts, ...[...types].map(([name, type]) => declaration(INPUT, name, type))];
}

/** Return a field of a graph, or what replaces it. */
function changedField(bytes, part, textInputs) {
  const nameIn = (field) => textsOf(bytes, part, field)[0];
  if (part.field === NODE && nameIn(NODE_DOMAIN) === DOMAIN) return replacedNode(bytes, part);
  // A node that joins or counts texts, an input of texts, and its default.
  if (part.field === NODE && nameIn(NODE_INPUT) in textInputs) return new Uint8Array();
  if (part.field === INPUT && nameIn(VALUE_NAME) in textInputs) return new Uint8Array();
  if (part.field === INITIALIZER && nameIn(TENSOR_NAME) in textInputs) return new Uint8Array();
  if (part.field === OUTPUT && nameIn(VALUE_NAME) === TRANSLATIONS) return declaration(OUTPUT, IDS, INT32);
  return bytes.subarray(part.key, part.end);
}

/** Return nothing for a tokenizer, and Identity for a part of the detokenizer, whose result is not used. */
function replacedNode(bytes, node) {
  if (textsOf(bytes, node, NODE_OPERATOR)[0] === TOKENIZER) return new Uint8Array();
  const [input] = textsOf(bytes, node, NODE_INPUT);
  const [output] = textsOf(bytes, node, NODE_OUTPUT);
  return bytesField(NODE, concatenated([bytesField(NODE_INPUT, input), bytesField(NODE_OUTPUT, output), bytesField(NODE_OPERATOR, "Identity")]));
}

/** Return the field of a graph that declares an input or an output of any shape. */
function declaration(field, name, elementType) {
  const type = bytesField(TENSOR_TYPE, numberField(ELEMENT_TYPE, elementType));
  return bytesField(field, concatenated([bytesField(VALUE_NAME, name), bytesField(VALUE_TYPE, type)]));
}
