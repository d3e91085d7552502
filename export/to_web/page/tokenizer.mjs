// Convert texts to ids and back, as in Python, with SentencePiece compiled to WebAssembly (the npm
// package sentencepiece-js).
import { fieldsOf, textOf } from "./protobuf.mjs";
import { SentencePieceProcessor } from "./runtime/sentencepiece.mjs";

export const START_ID = 1;
const [END_ID, UNKNOWN_ID] = [2, 3];
// Fields of sentencepiece_model.proto, and its types of models of words and of characters.
const [MODEL_PIECES, PIECE_TEXT] = [1, 1];
const [MODEL_TRAINER, TRAINER_TYPE, TRAINER_SYMBOLS] = [2, 3, 31];
const [WORD_TYPE, CHAR_TYPE] = [3, 4];
const AROUND = /^[ \t\n\r\v\f]+|[ \t\n\r\v\f]+$/g; // Python's string.whitespace

/**
 * Open a SentencePiece model.
 * @param {Uint8Array} model the content of source.model or target.model.
 */
export async function openTokenizer(model) {
  const processor = new SentencePieceProcessor();
  await processor.load(model);
  const [trainer] = fieldsOf(model, { start: 0, end: model.length }, MODEL_TRAINER);
  const type = trainer && fieldsOf(model, trainer, TRAINER_TYPE)[0]?.value;
  // Words, or tokens of several characters.
  const symbols = fieldsOf(model, trainer, TRAINER_SYMBOLS);
  const hasTokens = type === WORD_TYPE || (type === CHAR_TYPE && symbols.length > 0);
  const lacking = new Map(); // whether the vocabulary lacks a character, by character
  let table; // the text of each piece, read on first use

  return {
    /** Return the ids of a text: its tokens and the end token. */
    encode: (text) => [...processor.encodeIds(text), END_ID],

    /** Return whether the vocabulary lacks a character. One of tokens may lack all of them. */
    lacks(character) {
      if (!lacking.has(character)) lacking.set(character, !hasTokens && processor.encodeIds(character).includes(UNKNOWN_ID));
      return lacking.get(character);
    },

    /** Return the text of ids, up to the first end token, without whitespace around it. */
    decode(ids) {
      const end = ids.findIndex((id) => id <= END_ID);
      const text = processor.decodeIds(end < 0 ? ids : ids.slice(0, end));
      return text.replace(AROUND, "");
    },

    /** Return the piece of each id in SentencePiece's form: "▁" for blanks, "</s>" for the end. */
    pieces(ids) {
      table ??= fieldsOf(model, { start: 0, end: model.length }, MODEL_PIECES).map((piece) =>
        textOf(model, fieldsOf(model, piece, PIECE_TEXT)[0]));
      return ids.map((id) => table[id]);
    },
  };
}
