// The blanks, words and characters of a text. Blanks are what Python counts as whitespace.

const BLANKS = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const BLANK = new RegExp(`[${BLANKS}]`);
const NO_BLANKS = new RegExp(`[^${BLANKS}]+`, "g");

export const isBlank = (character = "") => BLANK.test(character);

/** Return a text without the blanks at its start. */
export function trimStart(text) {
  let start = 0;
  while (isBlank(text[start])) start += 1;
  return text.slice(start);
}

/** Return a text without the blanks at both ends. */
export function trimBlanks(text) {
  let end = text.length;
  while (isBlank(text[end - 1])) end -= 1;
  return trimStart(text.slice(0, end));
}

/** Return the positions after the words of a text, which blanks separate. */
export const wordEnds = (text) => Array.from(text.matchAll(NO_BLANKS), ({ 0: word, index }) => index + word.length);

/** Return the first character of a text that is not empty. */
export const firstOf = (text) => String.fromCodePoint(text.codePointAt(0));

/** Return the last character of a text that is not empty. */
export const lastOf = (text) => [...text.slice(-2)].at(-1);
