// The page: request translations from the worker while the user types, and show them.
import { showAttention } from "./attention-view.mjs";
import { showCard } from "./card.mjs";
import { keepForOffline, serviceWorkerReady } from "./offline.mjs";

const PAUSE = 200; // milliseconds after the last input before the text is translated
const MAIN_SETTINGS = { beam_size: "Beam size", n_best: "Translations" };
const find = (id) => document.getElementById(id);

find("not-running").remove();
find("loading").hidden = false;
await serviceWorkerReady();
const worker = new Worker("worker.mjs", { type: "module" });
const waiting = new Map(); // the promises of calls, by number
let [calls, wanted, chosen, timer] = [0, 0, undefined, undefined];

worker.onmessage = ({ data: { id, result, error, progress } }) => {
  if (progress) return showProgress(progress);
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (error === undefined) resolve(result);
  else reject(new Error(error));
};
worker.onerror = ({ message }) => fail(`The translator does not start in this browser: ${message ?? "it does not load modules in workers"}.`);

/** Call a function of the worker. */
function ask(call, ...given) {
  const id = ++calls;
  worker.postMessage({ id, call, given });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

function fail(message) {
  find("loading").hidden = true;
  find("failure").textContent = message;
  find("failure").hidden = !message;
}

function showProgress({ loaded, total }) {
  const megabytes = (bytes) => (bytes / 1e6).toFixed(1);
  find("progress").value = loaded / total;
  find("loading-label").textContent = loaded < total
    ? `Loading the model: ${megabytes(loaded)} of ${megabytes(total)} MB`
    : "Starting the model …";
}

const element = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};

function showSettings(rules) {
  for (const [name, rule] of Object.entries(rules)) {
    const step = rule.type === "integer" ? 1 : "any";
    // The attribute `min` would allow an exclusive minimum, so the worker checks that.
    const input = element("input", { type: "number", name, step, min: rule.minimum ?? "", max: rule.maximum, required: true });
    input.setAttribute("value", rule.default); // the value after a reset
    const label = element("label", { title: rule.description }, MAIN_SETTINGS[name] ?? name.replaceAll("_", " "), input);
    find(name in MAIN_SETTINGS ? "main-settings" : "more-settings").append(label);
  }
}

const settings = () => Object.fromEntries([...find("form").querySelectorAll("input")].map((input) => [input.name, input.valueAsNumber]));

/** Translate all lines; stop when the text or a setting changes. */
async function translate() {
  const current = ++wanted;
  const lines = find("text").value.split("\n").filter((line) => line.trim());
  const found = [];
  try {
    for (const line of lines) {
      if (lines.length > 1) find("time").textContent = `Sentence ${found.length + 1} of ${lines.length} …`;
      found.push(await ask("translate", line, settings()));
      if (current !== wanted) return;
    }
    fail("");
  } catch (error) {
    if (current === wanted) fail(error.message);
  }
  if (current === wanted) showTranslations(found);
}

function showTranslations(found) {
  find("translations").replaceChildren(...found.map(showTranslation));
  find("results").hidden = find("attention").hidden = !found.length;
  const time = found.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
  const threads = loaded.threads === 1 ? "one thread" : `${loaded.threads} threads`;
  find("time").textContent = `${Math.round(time)} ms for ${found.length === 1 ? "one sentence" : `${found.length} sentences`}, on ${threads}`;
  // For programs that wait for the translations.
  document.documentElement.dataset.translated = found.map(({ source }) => source).join("\n");
  choose(found.length ? { source: found[0].source, hypothesis: found[0].hypotheses[0] } : undefined);
}

function showTranslation({ source, hypotheses }, line) {
  const legend = element("legend", { dir: "auto" }, source);
  return element("fieldset", {}, legend, ...hypotheses.map((hypothesis, place) => {
    const radio = element("input", { type: "radio", name: "hypothesis", checked: line === 0 && place === 0 });
    radio.onchange = () => choose({ source, hypothesis });
    const score = element("output", { title: "score: log-probability / length penalty + coverage penalty" }, hypothesis.score.toFixed(4));
    return element("label", { className: "hypothesis" }, radio, element("span", { dir: "auto" }, hypothesis.text), score);
  }));
}

/** Choose the hypothesis whose attention is shown. */
async function choose(hypothesis) {
  chosen = hypothesis;
  if (!chosen || !find("attention").open) return;
  const status = find("attention-status");
  status.textContent = "Computing …";
  try {
    const attention = await ask("attention", hypothesis.source, hypothesis.hypothesis.ids);
    if (hypothesis !== chosen) return;
    showAttention(attention);
    keepForOffline(loaded.model, true);
    status.textContent = "";
  } catch (error) {
    status.textContent = error.message;
  }
}

find("attention").addEventListener("toggle", () => choose(chosen));
find("form").addEventListener("submit", (event) => event.preventDefault());
for (const event of ["input", "reset"]) {
  find("form").addEventListener(event, () => {
    clearTimeout(timer);
    timer = setTimeout(translate, PAUSE);
  });
}

const loaded = await ask("open").catch((error) => { fail(error.message); throw error; });
showSettings(loaded.model.settings);
showCard(loaded);
find("loading").hidden = true;
find("form").hidden = false;
find("text").focus();
keepForOffline(loaded.model, false);
