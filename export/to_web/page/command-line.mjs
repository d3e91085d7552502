// A program that translates texts with a translator.
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";
import { choicesOf } from "./settings.mjs";

const HELP = `Translate the texts, or without texts the lines of standard input. Write one translation per line.
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
function parsed(words, settings) {
  const numbers = Object.keys(settings).map((name) => [name.replaceAll("_", "-"), { type: "string" }]);
  return parseArgs({ args: words, options: { ...Object.fromEntries(numbers), ...OTHER_OPTIONS }, allowPositionals: true });
}

/** Return the value of a setting: a choice with this text, or a number. */
function read(text, rule) {
  const choices = choicesOf(rule);
  return choices ? choices.find((value) => String(value) === text) ?? text : Number(text);
}

function shown({ source, hypotheses, ...rest }, { json, "n-best": nBest }) {
  if (json) return JSON.stringify({ source, ...rest, hypotheses });
  return hypotheses.map(({ text, score }) => (nBest ? `${text}\t${score.toFixed(6)}` : text)).join("\n");
}

/**
 * Translate the texts of the command line, or the lines of standard input.
 * @param {string} usage the first line of the help text.
 * @param {(arguments: string[]) => Promise<Translator>} open opens the translator. Takes its own
 *   arguments out of those that are not options.
 */
export async function run(usage, open) {
  const words = process.argv.slice(2);
  if (words.includes("--help")) return console.log(`${usage}\n\n${HELP}`);
  try {
    const translator = await open(words);
    const { values, positionals } = parsed(words, translator.model.settings);
    const options = optionsOf(values, translator.model.settings);
    for await (const text of positionals.length ? positionals : createInterface({ input: process.stdin })) {
      console.log(shown(await translator.translate(text, options), values));
    }
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}

/** Return the options of `translate`. */
function optionsOf(values, rules) {
  const settings = Object.entries(values).filter(([option]) => !(option in OTHER_OPTIONS)).map(([option, text]) => {
    const name = option.replaceAll("-", "_");
    return [name, read(text, rules[name])];
  });
  const splitting = values["no-split-sentences"] && { splitSentences: false };
  return { ...Object.fromEntries(settings), language: values.language, ...splitting };
}
