#!/usr/bin/env node
// Translate texts in Node: node translate-cli.mjs "ein Satz", or lines of standard input.
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { choicesOf } from "./settings.mjs";
import { openTranslator } from "./translate.mjs";

const HELP = `node translate-cli.mjs [options] [TEXT ...]

Translate the texts, or without texts the lines of standard input. Write one translation per line.
The sentences of a text are translated separately.

  --n-best N             write N translations of each text with scores: TEXT<tab>SCORE; default 1
  --SETTING VALUE        any other search setting: --beam-size 4, --length-penalty 0.6, ...
  --language CODE        the language of the texts, for the ends of sentences; default: the model's
  --no-split-sentences   the model reads each text as one sentence, exactly as it is
  --json                 write one JSON object per text: source, text, score, ids, hypotheses,
                         milliseconds, and if there are any confidence, sentences and
                         keptCharacters
  --help                 this text`;
const OTHER_OPTIONS = {
  language: { type: "string" },
  "no-split-sentences": { type: "boolean" },
  json: { type: "boolean" },
  help: { type: "boolean" },
};

/** Return {values, positionals} of the command line. Each search setting is an option. */
function parsed(settings) {
  const numbers = Object.keys(settings).map((name) => [name.replaceAll("_", "-"), { type: "string" }]);
  return parseArgs({ options: { ...Object.fromEntries(numbers), ...OTHER_OPTIONS }, allowPositionals: true });
}

/** Return the value of a setting: a choice with this text, or a number. */
function read(text, rule) {
  const choices = choicesOf(rule);
  return choices ? choices.find((value) => String(value) === text) ?? text : Number(text);
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
    const rules = translator.model.settings;
    const texts = Object.entries(values).filter(([name]) => !(name in OTHER_OPTIONS));
    const named = texts.map(([name, text]) => [name.replaceAll("-", "_"), text]);
    const settings = Object.fromEntries(named.map(([name, text]) => [name, read(text, rules[name])]));
    const options = { ...settings, language: values.language, ...(values["no-split-sentences"] && { splitSentences: false }) };
    for await (const text of positionals.length ? positionals : createInterface({ input: process.stdin })) {
      console.log(shown(await translator.translate(text, options), values));
    }
  }
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
