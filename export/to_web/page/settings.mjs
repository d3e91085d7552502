// Search settings, by the rules in model.json.

/** Return the values of a setting that is a choice; undefined for a number. */
export const choicesOf = (rule) => (rule.type === "boolean" ? [false, true] : rule.enum);

// The settings that change the meaning of scores, as in Python.
const SCORE_SETTINGS = ["length_penalty", "length_penalty_form", "coverage_penalty", "temperature", "repetition_penalty", "renormalize_logits"];

/** Return whether scores with settings, as numbers, mean the same as with the model's defaults. */
export function keepsScores(settings, rules) {
  const defaults = toNumbers(checkedSettings({}, rules), rules);
  return SCORE_SETTINGS.every((name) => settings[name] === defaults[name]);
}

/** Return settings as generate.onnx takes them: the index of each choice, and numbers. */
export function toNumbers(settings, rules) {
  const number = ([name, value]) => [name, choicesOf(rules[name])?.indexOf(value) ?? value];
  return Object.fromEntries(Object.entries(settings).map(number));
}

/** Check search settings by the rules in model.json, and add the defaults of missing settings. */
export function checkedSettings(settings, rules) {
  for (const [name, value] of Object.entries(settings)) {
    const rule = rules[name];
    if (!rule) throw new Error(`settings: expected some of ${Object.keys(rules).join(", ")}, got ${name}.`);
    const choices = choicesOf(rule);
    if (choices) {
      if (choices.includes(value)) continue;
      throw new Error(`${name}: expected one of ${choices.join(", ")}, got ${value}.`);
    }
    const least = rule.exclusiveMinimum ?? rule.minimum;
    const fits = (rule.type === "integer" ? Number.isInteger(value) : Number.isFinite(value))
      && value <= rule.maximum && (value > least || value === rule.minimum)
      && (value <= 0 || value >= (rule.minimumAboveZero ?? 0));
    if (!fits) {
      const range = `${rule.exclusiveMinimum === undefined ? "from" : "above"} ${least} to ${rule.maximum}`
        + (rule.minimumAboveZero ? ` and at least ${rule.minimumAboveZero} if not 0` : "");
      throw new Error(`${name}: expected ${rule.type === "integer" ? "an integer" : "a number"} ${range}, got ${value}.`);
    }
  }
  const defaults = Object.fromEntries(Object.entries(rules).map(([name, rule]) => [name, rule.default]));
  const chosen = { ...defaults, ...settings };
  for (const [name, limit] of [["n_best", "beam_size"], ["min_length", "max_length"]]) {
    if (chosen[name] > chosen[limit]) {
      throw new Error(`${name}: expected at most ${limit}, got ${name} ${chosen[name]} and ${limit} ${chosen[limit]}.`);
    }
  }
  return chosen;
}
