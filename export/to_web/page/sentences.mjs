// Split a text into sentences, cut sentences that are too long, and join their translations.
import { firstOf, isBlank, lastOf, trimBlanks, trimStart } from "./characters.mjs";

const LINE_END = /([\n\v\f\r\x85\u2028\u2029]+)/; // in a group, so that `split` keeps it
// A sentence ends only at a mark (";" is the Greek question mark) that more characters follow.
const INNER_MARK = /[\p{Sentence_Terminal}\u2024\ufe52;]./su;
// What Intl.Segmenter takes for two sentences: "Dr. Smith", "`Yes!` is", "“Yes!” he said".
const TITLE = /(?:^|[^\p{L}])(?:Dr|Mr|Mrs|Ms|Prof)\.[^\p{L}\p{N}]*$/u;
const CLOSED = /^[`\p{Pe}\p{Pf}]/u;
const QUOTED = /[`"'\p{Pe}\p{Pf}\p{Pi}][^\p{L}\p{N}]*$/u;
const LOWER_CASE = /^\p{Ll}/u;
// What it takes for one sentence, in English: "It is late. we go. 5 stay."
const LOWER_CASE_START = /([\p{L}\p{M}]{2,})\.\s+(?=[^\p{L}]*\p{Ll})/gu;
const ABBREVIATION = /^(?:al|approx|ca|cf|dept|dr|ed|est|etc|esp|excl|fig|ft|incl|lb|max|min|misc|mr|mrs|ms|no|oz|pp|prof|resp|st|vol|vs)$/i;
const CLAUSE_MARKS = ",;:–—"; // they end a clause if a blank follows
const FULL_WIDTH_MARKS = "、，；：،؛"; // they always end a clause
// Scripts without blanks between sentences, and characters of their width.
const WIDE = /[\u1100-\u115f\u2329\u232a\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c\uac00-\ud7a3\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6b\uff01-\uff60\uffe0-\uffe6\u{16fe0}-\u{1b2ff}\u{20000}-\u{3ffff}\p{Emoji_Presentation}]/u;
const IN_WORD = /^[\p{L}\p{N}]{2}$/u;

const segmenters = new Map(); // by language

/**
 * Split a text into sentences. A line break always ends a sentence.
 * @param {string} text
 * @param {string} language its code, such as "de" or "deu_Latn".
 * @returns {{sentences: string[], blanks: string[]}} the sentences, and the blanks before the
 *   first, between them, and after the last: one blank more than sentences.
 */
export function splitText(text, language) {
  const lines = text.split(LINE_END);
  return trimmed(lines.flatMap((line) => (INNER_MARK.test(line) ? segments(line, language) : [line])));
}

/** Return the sentences of a line, with the blanks around them. */
function segments(line, language) {
  const pieces = Array.from(segmenter(language).segment(line), ({ segment }) => segment);
  const sentences = [];
  const isEnglish = new Intl.Locale(localeOf(language)).language === "en";
  for (const segment of isEnglish ? pieces.flatMap(lowerCaseSentences) : pieces) {
    const continues = sentences.length > 0 && isContinued(sentences.at(-1), segment);
    sentences.push(continues ? sentences.pop() + segment : segment);
  }
  return sentences;
}

/** Return the sentences of a segment, which may begin in lower case. */
function lowerCaseSentences(segment) {
  const starts = Array.from(segment.matchAll(LOWER_CASE_START), ({ 0: match, 1: word, index }) => (ABBREVIATION.test(word) ? 0 : index + match.length));
  const ends = starts.filter(Boolean);
  return [0, ...ends].map((start, index) => segment.slice(start, ends[index]));
}

/** Return whether a sentence continues in the next segment, after a title or a quotation. */
function isContinued(before, after) {
  const isClosed = CLOSED.test(after) && !isBlank(before.at(-1));
  return isClosed || TITLE.test(before) || (QUOTED.test(before) && LOWER_CASE.test(after));
}

function segmenter(language) {
  if (!segmenters.has(language)) segmenters.set(language, new Intl.Segmenter(localeOf(language), { granularity: "sentence" }));
  return segmenters.get(language);
}

/** Return the locale of a language code, such as "de-Latn" of "deu_Latn". */
export const localeOf = (code) => Intl.getCanonicalLocales(code.replaceAll("_", "-"))[0];

/** Return whether a value is the code of a language. */
export function isLanguage(code) {
  try {
    return localeOf(code) !== undefined;
  } catch {
    return false;
  }
}

/** Move the blanks at both ends of the pieces of a text between them; leave out blank pieces. */
function trimmed(pieces) {
  const sentences = [];
  const blanks = [""];
  for (const piece of pieces) {
    const sentence = trimBlanks(piece);
    const start = piece.length - trimStart(piece).length;
    blanks[sentences.length] += piece.slice(0, start);
    if (!sentence) continue;
    sentences.push(sentence);
    blanks.push(piece.slice(start + sentence.length));
  }
  return { sentences, blanks };
}

/**
 * Cut a sentence that is too long in two, near its middle: after a clause mark if there is one, or
 * else at a blank, or else anywhere.
 * @returns {{sentences: string[], blanks: string[]} | undefined} as `splitText` returns them;
 *   undefined for a single character.
 */
export function halves(sentence) {
  const characters = [...sentence];
  const inner = characters.map((_, position) => position).slice(1);
  const endsClause = (position) => FULL_WIDTH_MARKS.includes(characters[position - 1])
    || (CLAUSE_MARKS.includes(characters[position - 1]) && isBlank(characters[position]));
  const candidates = [inner.filter(endsClause), inner.filter((position) => isBlank(characters[position])), inner];
  const positions = candidates.find(({ length }) => length);
  if (!positions) return undefined;
  const distance = (position) => Math.abs(2 * position - characters.length);
  const middle = positions.reduce((best, position) => (distance(position) < distance(best) ? position : best));
  return trimmed([characters.slice(0, middle).join(""), characters.slice(middle).join("")]);
}

/** Join the translations of the first sentences of a text with the text's own blanks. */
export function joined(translations, { sentences, blanks }) {
  const pieces = translations.map((translation, index) => {
    const isCut = index > 0 && !blanks[index]; // there is no blank before this sentence
    const blank = isCut ? newBlank(sentences.slice(index - 1, index + 1), translations.slice(index - 1, index + 1)) : blanks[index];
    return blank + translation;
  });
  return pieces.join("") + blanks[translations.length];
}

/**
 * Return the blank between two translations whose sources have none between them: sentences of a
 * script without blanks need one where their translations are in another script.
 */
function newBlank([before, after], translations) {
  if (!translations.every(Boolean)) return "";
  const border = lastOf(before) + firstOf(after);
  const isInWord = IN_WORD.test(border) && !WIDE.test(border);
  return isInWord || WIDE.test(lastOf(translations[0]) + firstOf(translations[1])) ? "" : " ";
}
