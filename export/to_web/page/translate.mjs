// Translate texts in a browser, in a worker, and in Node. translate.d.mts has the types.
import * as ort from "./runtime/onnxruntime.mjs";
import { takeOut } from "./kept-characters.mjs";
import { readFile, readFolder } from "./model-files.mjs";
import { addressOf, read } from "./reading.mjs";
import { openSearch } from "./search.mjs";
import { isLanguage } from "./sentences.mjs";
import { checkedSettings, keepsScores, toNumbers } from "./settings.mjs";
import { translateText } from "./text-translation.mjs";
import { START_ID, openTokenizer } from "./tokenizer.mjs";

// The files are already optimized: optimizing again would take half of the time of opening a file,
// without a gain.
const SESSION = { graphOptimizationLevel: "disabled", logSeverityLevel: 3 };
const MOST_THREADS = 4; // a decoding step has small products: more threads wait for each other
const NO_HYPOTHESIS = -5e8; // missing hypotheses have a score of -1e9
const NOT_TEXT = /[\0\p{Surrogate}]/u; // NUL or half a surrogate pair, as in Python's translators

/** Open translate.onnx, or the model of a folder that `tfk-transformer export --format web` wrote. */
export async function openTranslator({ file, folder, wasm, threads = usableThreads(), onProgress = () => {} } = {}) {
  const { model, search, score, ...files } = await (file ? readFile(file, onProgress) : readFolder(folder, onProgress));
  const wasmBinary = wasm ? await read(await addressOf(wasm)) : files.wasmBinary;
  Object.assign(ort.env.wasm, { numThreads: threads, ...(wasmBinary && { wasmBinary }) });
  const { generate, textInputs } = await openSearch(ort, search, SESSION).catch(explain);
  const { source, target } = file ? tokenizerModels(textInputs) : files;
  const sourceTokenizer = await openTokenizer(source);
  const targetTokenizer = source === target ? sourceTokenizer : await openTokenizer(target);
  const isDecoderOnly = model.config.architecture === "decoder";
  const maxLength = model.config.max_length;
  const sourceLanguage = isLanguage(model.config.source_language) ? model.config.source_language : "en";
  const splitsByDefault = model.config.split_sentences ?? true;
  const inTurn = oneAfterTheOther();
  let scorer; // opened on the first call of `attention`

  /** Return the {confidence} of a translation; {} if it has none. */
  function confidenceOf(sentence, { text, score }, settings) {
    if (!model.confidence || !sentence.trim() || !keepsScores(settings, model.settings)) return {};
    const weights = model.confidence;
    const [length, sourceLength] = [text, sentence].map((characters) => Math.log(1 + [...characters].length));
    const logOdds = weights.intercept + weights.score * score + weights.length * length + weights.ratio * (length - sourceLength);
    return { confidence: 0.5 + 0.5 * Math.tanh(logOdds / 2) };
  }

  /** Translate a sentence exactly as it is; return undefined if it is too long. */
  async function searchOne(sentence, settings) {
    const start = performance.now();
    const ids = sourceTokenizer.encode(sentence);
    if (ids.length > maxLength) return undefined;
    const [results] = await generate([ids], settings);
    if (Number.isNaN(results[0].score)) return undefined;
    const possible = results.filter(({ score }, rank) => rank === 0 || score > NO_HYPOTHESIS);
    const hypotheses = possible.map(({ ids, score }) => ({ text: targetTokenizer.decode(ids), score, ids }));
    const confidence = confidenceOf(sentence, hypotheses[0], settings);
    return { source: sentence, ...hypotheses[0], hypotheses, ...confidence, milliseconds: performance.now() - start };
  }

  async function translateOne(text, settings, splits, language) {
    checkText(text);
    const search = (sentence) => searchOne(sentence, settings);
    const sentenceModel = { language, maxLength, lacks: sourceTokenizer.lacks, search };
    const result = await (splits ? translateText(text, sentenceModel) : search(text));
    if (!result) throw new Error(`text: expected at most ${maxLength} tokens, got more; split it into sentences.`);
    return result;
  }

  /** Return whether texts are split: never those that the model continues. */
  function isSplit(splitSentences) {
    if (typeof splitSentences !== "boolean") throw new Error(`splitSentences: expected true or false, got ${splitSentences}.`);
    return splitSentences && !isDecoderOnly;
  }

  async function attend(text, ids, splits) {
    checkText(text);
    if (!score) throw new Error("attention: expected score.onnx next to the file, got the content of a file; give its address.");
    scorer ??= read(score).then((file) => ort.InferenceSession.create(file, SESSION));
    scorer.catch(() => { scorer = undefined; }); // the next call tries again
    const sourceIds = sourceTokenizer.encode(splits ? takeOut(text, sourceTokenizer.lacks).text : text);
    const row = (values) => new ort.Tensor("int32", Int32Array.from(values), [1, values.length]);
    const { attention } = await (await scorer).run({ source_ids: row(sourceIds), target_ids: row(ids) }, ["attention"]);
    const [, layers, heads, rows, columns] = attention.dims;
    if (!heads) throw new Error("attention: expected a model with attention, got a decoder-only model of SSRUs.");
    const [tokens, sourceTokens] = [targetTokenizer.pieces(ids), sourceTokenizer.pieces(sourceIds)];
    // A decoder-only model attends to the start token, the prompt, and earlier target tokens.
    const attended = [...sourceTokenizer.pieces([START_ID]), ...sourceTokens.slice(0, -1), ...tokens.slice(0, -1)];
    return { layers, heads, tokens, sourceTokens: isDecoderOnly ? attended : sourceTokens, shape: [rows, columns], weights: attention.data };
  }

  return {
    model,
    threads,
    language: sourceLanguage,
    translate: async (text, { splitSentences = splitsByDefault, language = sourceLanguage, ...settings } = {}) => {
      const resolved = toNumbers(checkedSettings(settings, model.settings), model.settings);
      const splits = isSplit(splitSentences);
      if (!isLanguage(language)) throw new Error(`language: expected a language code such as "de", got ${JSON.stringify(language)}.`);
      return inTurn(() => translateOne(text, resolved, splits, language));
    },
    attention: async (text, ids, { splitSentences = splitsByDefault } = {}) => {
      const splits = isSplit(splitSentences);
      return inTurn(() => attend(text, ids, splits));
    },
  };
}

/** Return the tokenizers of translate.onnx. */
function tokenizerModels({ text, prefix }) {
  if (!text) throw new Error("file: expected translate.onnx, got an ONNX file without a tokenizer, such as generate.onnx.");
  return { source: text.model, target: prefix.model };
}

/** Refuse values that are not texts. */
function checkText(text) {
  if (typeof text !== "string") throw new Error(`text: expected a string, got ${typeof text}.`);
  const match = NOT_TEXT.exec(text);
  if (match) {
    const position = [...text.slice(0, match.index)].length + 1;
    const code = match[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
    throw new Error(`text: expected text, got the character U+${code} at position ${position}; remove it.`);
  }
}

/** Name the cure if onnxruntime does not find its WebAssembly, which some bundlers do not copy. */
function explain(error) {
  if (!error.message.startsWith("no available backend")) throw error;
  throw new Error(`wasm: expected the address of ort-wasm-simd-threaded.wasm, got none that works: ${error.message}`);
}

/** Return a function that runs one task at a time: onnxruntime runs one session at a time. */
function oneAfterTheOther() {
  let last = Promise.resolve();
  return (work) => {
    const done = last.then(work);
    last = done.catch(() => {});
    return done;
  };
}

/**
 * Return the number of threads for WebAssembly: one unless the page is cross-origin isolated. With
 * more, onnxruntime starts its module again in each thread, which may be the whole page in the file
 * of a bundler.
 */
function usableThreads() {
  return ort.webAssembly && globalThis.crossOriginIsolated ? Math.min(MOST_THREADS, navigator.hardwareConcurrency) : 1;
}
