// Characters that a vocabulary lacks, such as emoji: kept out of the search, and put back into the
// translation. Letters that it has only in the other case are read in that case.
import { firstOf, isBlank, lastOf, trimBlanks, trimStart, wordEnds } from "./characters.mjs";

const WORD = /[\p{L}\p{N}]/u;
// A character, and the characters that belong to it, such as accents, joiners and skin tones.
const CLUSTERS = /.[\p{Cf}\p{M}\p{Sk}]*/gsu;
// Tokenizers drop these, or write them with the letter before them.
const IGNORED = /[\p{Cc}\p{Cf}\p{Mc}\p{Mn}\p{Z}]/u;
const OPENING = /[\p{Pi}\p{Ps}]/u;
const CLOSING = /[\p{Pe}\p{Pf}\p{Po}]/u;
// Scripts that are written without blanks between words.
const UNSPACED = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}・ー\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}]/u;
const SPACED_WORDS = new RegExp(`(?:(?!${UNSPACED.source})[\\p{L}\\p{N}\\p{M}])+`, "gu");

/** Return whether a text has a letter or a number. A sentence without is not translated. */
export const hasWords = (text) => WORD.test(text);

/**
 * Take the characters that a vocabulary lacks out of a sentence. A word that contains such a letter
 * is taken out as a whole, except in a script without blanks.
 * @param {string} sentence
 * @param {(character: string) => boolean} lacks whether the vocabulary lacks a character.
 * @returns {{text, units}} the rest of the sentence, and what was taken out: the content of each
 *   unit, its position in the rest, and whether a blank is before and after it in the sentence.
 */
export function takeOut(sentence, lacks) {
  if ([...sentence].every((character) => isBlank(character) || !lacks(character))) return { text: sentence, units: [] };
  const known = inKnownCase(sentence, lacks);
  const units = [];
  let [text, done, endsInBlank] = ["", 0, false];
  for (const [start, end] of [...lackingSpans(known, lacks), [sentence.length, sentence.length]]) {
    const part = known.slice(done, start);
    const words = trimBlanks(part);
    if (words) {
      text += separator(text, words, endsInBlank, isBlank(part[0])) + words;
      endsInBlank = isBlank(part.at(-1));
    }
    if (start < end) {
      units.push({ content: sentence.slice(start, end), position: text.length, blankBefore: isBlank(sentence[start - 1]), blankAfter: isBlank(sentence[end]) });
    }
    done = end;
  }
  return { text: units.length ? text : known, units };
}

/** Return a sentence with letters in their other case where a vocabulary has only that one. */
function inKnownCase(sentence, lacks) {
  const inCase = (character) => {
    const lower = character.toLowerCase();
    const other = lower === character ? character.toUpperCase() : lower;
    const isSameLength = other.length === character.length;
    return isSameLength && lacks(character) && !lacks(other) ? other : character;
  };
  return Array.from(sentence, inCase).join("");
}

/** Return the spans [start, end] of a sentence that a vocabulary cannot represent. */
function lackingSpans(sentence, lacks) {
  const spans = [];
  const words = Array.from(sentence.matchAll(SPACED_WORDS), ({ 0: word, index }) => [index, index + word.length]);
  for (const { 0: cluster, index } of sentence.matchAll(CLUSTERS)) {
    const composed = [...cluster.normalize("NFC")];
    if (composed.every((character) => IGNORED.test(character) || !lacks(character))) continue;
    let [start, end] = [index, index + cluster.length];
    if (composed.some((character) => WORD.test(character) && !UNSPACED.test(character))) {
      const around = words.filter(([first, last]) => first <= end && last >= start).flat();
      [start, end] = [Math.min(start, ...around), Math.max(end, ...around)];
    }
    if (spans.length && start <= spans.at(-1)[1]) [start] = spans.pop();
    spans.push([start, end]);
  }
  return spans;
}

/** Return the blank between the parts of a sentence on both sides of units. */
function separator(left, right, blankBefore, blankAfter) {
  if (!left) return "";
  if (blankBefore && blankAfter) return " ";
  const [last, first] = [lastOf(left), firstOf(right)];
  if (WORD.test(last) && WORD.test(first)) {
    const isJoined = UNSPACED.test(last) && UNSPACED.test(first);
    return isJoined && !blankBefore && !blankAfter ? "" : " ";
  }
  return (blankBefore || blankAfter) && !OPENING.test(last) && !CLOSING.test(first) ? " " : "";
}

/**
 * Return a translation with the units that `takeOut` took out of its source. A unit at the start or
 * at the end of the text is there in the translation, too. For other units, the share of the words
 * before the unit is the same in the text and its translation.
 */
export function putBack(translation, { text, units }) {
  let result = translation;
  let last = translation.length;
  for (const { content, position, blankBefore, blankAfter } of [...units].reverse()) {
    last = Math.min(last, targetPosition(text.slice(0, position), text.slice(position), translation));
    const left = result.slice(0, last);
    const right = trimStart(result.slice(last));
    result = left + (blankBefore && left && !isBlank(left.at(-1)) ? " " : "") + content + (blankAfter && right ? " " : "") + right;
  }
  return result;
}

/** Return the position in a translation of a unit between two parts of the source. */
function targetPosition(left, right, translation) {
  if (!hasWords(left)) return left ? Math.max(0, translation.search(WORD)) : 0;
  if (!hasWords(right)) return right ? lastWordEnd(translation) : translation.length;
  const words = wordEnds(left).length / wordEnds(left + right).length;
  // A text without blanks is one word.
  const share = words < 1 ? words : [...left].length / [...left, ...right].length;
  const ends = wordEnds(translation);
  if (ends.length > 1) {
    const before = Math.floor(share * ends.length + 0.5);
    return ends[Math.min(Math.max(before, 1), ends.length - 1) - 1];
  }
  const characters = [...translation];
  if (!characters.length || !UNSPACED.test(characters.at(-1))) return translation.length;
  return characters.slice(0, Math.floor(share * characters.length + 0.5)).join("").length;
}

/** Return the position after the last letter or number of a text, or its end if it has none. */
function lastWordEnd(text) {
  const characters = [...text];
  while (characters.length && !WORD.test(characters.at(-1))) characters.pop();
  return characters.length ? characters.join("").length : text.length;
}
