// Show the attention of a translation: words with the source words that they attend to, and a heat
// map of one layer and head.

const WORD_MARK = "\u2581"; // SentencePiece's, at the beginning of a word
const END = "</s>";
const MEAN = "mean";
const find = (id) => document.getElementById(id);
let shown;

/**
 * Show the attention of a translation, for the selected layer and head. By default, these are the
 * middle layer and the mean of its heads.
 */
export function showAttention(attention) {
  const isOther = attention.layers !== shown?.layers || attention.heads !== shown?.heads;
  shown = attention;
  if (isOther) offerLayersAndHeads(attention);
  find("attention-view").hidden = false;
  draw();
}

function offerLayersAndHeads({ layers, heads }) {
  const numbers = (count) => Array.from({ length: count }, (_, place) => new Option(place + 1, place));
  find("layer").replaceChildren(...numbers(layers));
  find("head").replaceChildren(new Option(`mean of all ${heads}`, MEAN), ...numbers(heads));
  find("layer").value = Math.floor(layers / 2);
  find("layer").onchange = find("head").onchange = draw;
}

function draw() {
  const weights = rowsOf(shown, Number(find("layer").value), find("head").value);
  drawHeatMap(shown, weights);
  drawWords(shown, weights);
}

/** Return the rows of one layer, for one head or for the mean of all heads. */
export function rowsOf({ heads, shape: [rows, columns], weights }, layer, head) {
  const chosen = head === MEAN ? Array.from({ length: heads }, (_, place) => place) : [Number(head)];
  const at = (place, row, column) => weights[((layer * heads + place) * rows + row) * columns + column];
  const mean = (row, column) => chosen.reduce((sum, place) => sum + at(place, row, column), 0) / chosen.length;
  return Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => mean(row, column)));
}

function tag(name, text = "", properties = {}) {
  return Object.assign(document.createElement(name), { textContent: text, ...properties });
}

function drawHeatMap({ tokens, sourceTokens }, weights) {
  const columns = tag("tr");
  columns.append(tag("td"), ...sourceTokens.map((token) => tag("th", readable(token), { scope: "col" })));
  const rows = tokens.map((token, row) => {
    const line = tag("tr");
    line.append(tag("th", readable(token), { scope: "row" }), ...weights[row].map((weight, column) => cell(weight, token, sourceTokens[column])));
    return line;
  });
  const [head, body] = [tag("thead"), tag("tbody")];
  head.append(columns);
  body.append(...rows);
  find("heat-map").replaceChildren(head, body);
}

function cell(weight, token, source) {
  const made = tag("td", "", { title: `${readable(token)} ← ${readable(source)}: ${percent(weight)}` });
  made.style.setProperty("--weight", weight.toFixed(4));
  // For screen readers, which do not read colors.
  made.append(tag("span", percent(weight), { className: "unseen" }));
  return made;
}

const percent = (weight) => `${Math.round(weight * 100)} %`;
const readable = (token) => (token === END ? "end" : token.replaceAll(WORD_MARK, "") || "␣");

/** Return words, without the end token, as {text, places}: places are the indices of the pieces. */
export function wordsOf(tokens) {
  const words = [];
  tokens.forEach((token, place) => {
    if (token === END) return;
    if (token.startsWith(WORD_MARK) || !words.length) words.push({ text: "", places: [] });
    words.at(-1).text += token.replaceAll(WORD_MARK, "");
    words.at(-1).places.push(place);
  });
  return words.filter(({ text }) => text);
}

function drawWords({ tokens, sourceTokens }, weights) {
  const sources = wordsOf(sourceTokens);
  const shades = sources.map(({ text }) => tag("span", text));
  find("source-words").replaceChildren(...shades.flatMap((shade) => [shade, " "]));
  const buttons = [];
  const items = wordsOf(tokens).map((word) => {
    const shares = sources.map((source) => share(weights, word, source));
    const best = shares.indexOf(Math.max(...shares));
    const button = tag("button", word.text, { type: "button", ariaPressed: "false" });
    button.onclick = () => {
      buttons.forEach((other) => { other.ariaPressed = String(other === button); });
      shades.forEach((shade, place) => {
        shade.style.setProperty("--weight", shares[place].toFixed(4));
        shade.title = percent(shares[place]);
      });
    };
    buttons.push(button);
    const item = tag("li");
    item.append(button, tag("small", best < 0 ? "" : `${sources[best].text} ${percent(shares[best])}`));
    return item;
  });
  find("target-words").replaceChildren(...items);
}

/**
 * Return the share of a word's attention that goes to a source word: the sum over the pieces of the
 * source word, averaged over the pieces of the word.
 */
function share(weights, word, source) {
  const of = (row) => source.places.reduce((sum, column) => sum + weights[row][column], 0);
  return word.places.reduce((sum, row) => sum + of(row), 0) / word.places.length;
}
