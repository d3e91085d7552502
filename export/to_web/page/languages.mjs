// The languages of a model, and their names.
import { localeOf } from "./sentences.mjs";

/** Return the English name of a language code such as "de" or "deu_Latn", or the code itself. */
export function languageName(code) {
  if (!code) return "";
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(localeOf(code));
  } catch {
    return code;
  }
}

/** Name the languages in the title, below it, and in the panes, where browsers check the spelling. */
export function showLanguages({ config }) {
  const codes = { source: config.source_language, target: config.target_language };
  for (const [side, id] of [["source", "text"], ["target", "whole"]]) {
    if (!codes[side]) continue;
    document.getElementById(`${side}-name`).textContent = languageName(codes[side]);
    document.getElementById(id).lang = langOf(codes[side]);
  }
  if (!codes.source || !codes.target) return;
  const direction = `${languageName(codes.source)} to ${languageName(codes.target)}`;
  document.title = `Translator from ${direction}`;
  document.getElementById("about").prepend(`From ${direction}. `);
}

/** Return the value of the attribute `lang` for a language code; empty if it is not one. */
function langOf(code) {
  try {
    return localeOf(code);
  } catch {
    return "";
  }
}
