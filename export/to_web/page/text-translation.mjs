// Translate texts of any number of sentences with a search that translates one sentence.
import { hasWords, putBack, takeOut } from "./kept-characters.mjs";
import { halves, joined, splitText } from "./sentences.mjs";

// Pieces are rarely longer. A sentence with more characters per token is cut before it is tokenized.
const LONG_PIECE = 16;

/**
 * Translate a text sentence by sentence. A sentence that is too long is translated in parts.
 * @param {string} text
 * @param {object} model
 * @param {string} model.language the code of the language of texts.
 * @param {number} model.maxLength the longest sentence in tokens.
 * @param {(character: string) => boolean} model.lacks whether the vocabulary lacks a character.
 * @param {(sentence: string) => Promise<Translation | undefined>} model.search translates a
 *   sentence, or returns undefined if it is too long.
 * @returns {Promise<Translation | undefined>} undefined if a single character is too long.
 */
export async function translateText(text, model) {
  const split = splitText(text, model.language);
  const { sentences, blanks } = split;
  if (!sentences.length) return model.search(text);
  const results = [];
  while (results.length < sentences.length) {
    const index = results.length;
    const result = await translateSentence(sentences[index], model);
    const parts = result ?? halves(sentences[index]);
    if (!parts) return undefined;
    if (result) results.push(result);
    else {
      sentences.splice(index, 1, ...parts.sentences);
      blanks.splice(index + 1, 0, parts.blanks[1]);
    }
  }
  return joinedResult(text, results, split);
}

/** Translate a sentence. Characters that the vocabulary lacks stay as they are. */
async function translateSentence(sentence, { lacks, maxLength, search }) {
  if ([...sentence].length > LONG_PIECE * maxLength) return undefined;
  const readable = takeOut(sentence, lacks);
  const kept = readable.units.reduce((sum, { content }) => sum + [...content].length, 0);
  const keptCharacters = kept && { keptCharacters: kept };
  if (!hasWords(readable.text)) {
    const unchanged = { text: sentence, score: 0, ids: [] };
    return { source: sentence, ...unchanged, hypotheses: [unchanged], ...keptCharacters, milliseconds: 0 };
  }
  const result = await search(readable.text);
  return result && { ...withTexts(result, (text) => putBack(text, readable)), source: sentence, ...keptCharacters };
}

/** Return a result whose texts are changed. */
function withTexts(result, change) {
  const hypotheses = result.hypotheses.map((hypothesis) => ({ ...hypothesis, text: change(hypothesis.text) }));
  return { ...result, ...hypotheses[0], hypotheses };
}

/** Return the result of a text from the results of its sentences. */
function joinedResult(source, results, split) {
  if (results.length === 1) return { ...withTexts(results[0], (text) => joined([text], split)), source };
  const sum = (name) => results.reduce((total, result) => total + (result[name] ?? 0), 0);
  const count = Math.max(...results.map(({ hypotheses }) => hypotheses.length));
  const hypotheses = Array.from({ length: count }, (_, rank) => {
    // A sentence with fewer hypotheses repeats its last one.
    const ranked = results.map((result) => result.hypotheses[rank] ?? result.hypotheses.at(-1));
    return { text: joined(ranked.map(({ text }) => text), split), score: ranked.reduce((total, { score }) => total + score, 0) };
  });
  const kept = sum("keptCharacters");
  const confidences = results.map(({ confidence }) => confidence).filter((value) => value !== undefined);
  const lowest = confidences.length && { confidence: Math.min(...confidences) };
  return { source, ...hypotheses[0], hypotheses, ...lowest, sentences: results, ...(kept && { keptCharacters: kept }), milliseconds: sum("milliseconds") };
}
