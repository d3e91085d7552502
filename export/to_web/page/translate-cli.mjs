#!/usr/bin/env node
// Texts to translations in Node: node translate-cli.mjs "ein Satz", or lines of standard input.
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { openTranslator } from "./translate.mjs";

const HELP = `node translate-cli.mjs [options] [TEXT ...]

Translate texts, or the lines of standard input if there are none. One translation is written a line.

  --n-best N         translations of each text, with their scores: TEXT<tab>SCORE; default 1
  --SETTING VALUE    any other setting of the search: --beam-size 4, --length-penalty 0.6, ...
  --json             one JSON object a text: source, text, score, ids, hypotheses, milliseconds
  --help             this text`;

/** Return {values, positionals} of the command line. Every setting of the search is an option with a number. */
function parsed(settings) {
  const numbers = Object.keys(settings).map((name) => [name.replaceAll("_", "-"), { type: "string" }]);
  const options = { ...Object.fromEntries(numbers), json: { type: "boolean" }, help: { type: "boolean" } };
  return parseArgs({ options, allowPositionals: true });
}

function shown({ source, hypotheses, ...found }, { json, "n-best": nBest }) {
  if (json) return JSON.stringify({ source, ...found, hypotheses });
  return hypotheses.map(({ text, score }) => (nBest ? `${text}\t${score.toFixed(6)}` : text)).join("\n");
}

try {
  if (process.argv.includes("--help")) {
    console.log(HELP);
  } else {
    const translator = await openTranslator();
    const { values, positionals } = parsed(translator.model.settings);
    const chosen = Object.entries(values).filter(([name]) => name !== "json");
    const settings = Object.fromEntries(chosen.map(([name, value]) => [name.replaceAll("-", "_"), Number(value)]));
    for await (const text of positionals.length ? positionals : createInterface({ input: process.stdin })) {
      console.log(shown(await translator.translate(text, settings), values));
    }
  }
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
