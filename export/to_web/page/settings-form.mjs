// The form with the search settings, by the rules in model.json.
import { choicesOf } from "./settings.mjs";

const MAIN_SETTINGS = ["beam_size", "n_best"];
const NAMES = { n_best: "Translations" };
const find = (id) => document.getElementById(id);

/** Add an input for each setting, with its name and its description. */
export function showSettings(rules) {
  for (const [name, rule] of Object.entries(rules)) {
    const input = choicesOf(rule) ? choiceInput(name, rule) : numberInput(name, rule);
    const id = `about-${name}`;
    input.setAttribute("aria-describedby", id);
    const label = element("label", {}, NAMES[name] ?? capitalized(name.replaceAll("_", " ")), input);
    const help = element("p", { id, className: "help" }, explanation(rule));
    const box = MAIN_SETTINGS.includes(name) ? "main-settings" : "more-settings";
    find(box).append(element("div", {}, label, help));
  }
}

/** Return the settings in the form; a list has a choice as JSON, an input has a number. */
export const settingValues = () => Object.fromEntries([...find("form").querySelectorAll("input, select")].map((input) => [
  input.name, input.matches("select") ? JSON.parse(input.value) : input.valueAsNumber,
]));

const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function explanation(rule) {
  const sentence = capitalized(rule.description);
  if (choicesOf(rule)) return `${sentence}. Default: ${rule.default}.`;
  const range = rule.minimum === undefined ? `Above ${rule.exclusiveMinimum}, at most` : `From ${rule.minimum} to`;
  return `${sentence}. ${range} ${rule.maximum}. Default: ${rule.default}.`;
}

function numberInput(name, rule) {
  const step = rule.type === "integer" ? 1 : "any";
  // The attribute `min` would allow an exclusive minimum, so the worker checks that.
  const input = element("input", { type: "number", name, step, min: rule.minimum ?? "", max: rule.maximum, required: true });
  input.setAttribute("value", rule.default); // the value after a reset
  return input;
}

/** Return a list whose options have JSON as values: true is not "true". */
function choiceInput(name, rule) {
  const choices = choicesOf(rule).map((value) => {
    const isDefault = value === rule.default; // also after a reset
    return element("option", { value: JSON.stringify(value), textContent: value, defaultSelected: isDefault });
  });
  return element("select", { name }, ...choices);
}

/** Return a new element with properties and children. */
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
