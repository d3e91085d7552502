// The page: request translations from the worker while the user types, and show them.
import { showAttention } from "./attention-view.mjs";
import { showCard } from "./card.mjs";
import { openTranslator } from "./in-worker.mjs";
import { showLanguages } from "./languages.mjs";
import { keepForOffline, serviceWorkerReady } from "./offline.mjs";
import { joined, splitText } from "./sentences.mjs";
import { element, settingValues, showSettings } from "./settings-form.mjs";

const PAUSE = 200; // milliseconds after the last input before the text is translated
const COPIED = 2000; // milliseconds that the button shows that the text was copied
const find = (id) => document.getElementById(id);

find("not-running").remove();
find("loading").hidden = false;
await serviceWorkerReady();
let [latest, chosen, timer] = [0, undefined, undefined];

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

const isDecoderOnly = () => loaded.model.config.architecture === "decoder";

/** Translate the text, and show each sentence when it is translated; stop when the text or a setting changes. */
async function translate() {
  const current = ++latest;
  const text = find("text").value;
  const split = isDecoderOnly() ? { sentences: text.split("\n").filter((line) => line.trim()) } : splitText(text, loaded.language);
  const { sentences } = split;
  const results = [];
  try {
    for (const sentence of sentences) {
      const result = await loaded.translate(sentence, settingValues());
      if (current !== latest) return;
      results.push(result);
      showLast(results, split);
      if (results.length < sentences.length) find("time").textContent = `Sentence ${results.length + 1} of ${sentences.length} …`;
    }
    fail("");
  } catch (error) {
    if (current === latest) fail(error.message);
  }
  if (current !== latest) return;
  if (!results.length) showLast(results, split);
  document.documentElement.dataset.translated = text; // for programs that wait for the translations
}

/** Return the results of single sentences: one that is too long for the model has several. */
const parts = (results) => results.flatMap((result) => result.sentences ?? [result]);

/** Show the last result, and the translation of the text so far. */
function showLast(results, split) {
  if (results.length <= 1) clearTranslations();
  find("translations").append(...parts(results.slice(-1)).map(showTranslation));
  const sentences = parts(results);
  const texts = results.map(({ text }) => text);
  find("whole").textContent = isDecoderOnly() ? texts.join("\n") : joined(texts, split).trim();
  find("copy").disabled = !sentences.length;
  find("sentences").hidden = find("attention").hidden = !sentences.length;
  const sum = (name) => sentences.reduce((total, sentence) => total + (sentence[name] ?? 0), 0);
  const count = sentences.length === 1 ? "one sentence" : `${sentences.length} sentences`;
  const threads = loaded.threads === 1 ? "one thread" : `${loaded.threads} threads`;
  const kept = sum("keptCharacters") ? `; ${sum("keptCharacters")} of the characters are unknown to the model and stay as they are` : "";
  find("time").textContent = sentences.length ? `${Math.round(sum("milliseconds"))} ms for ${count}, on ${threads}${kept}` : "";
}

function clearTranslations() {
  chosen = undefined;
  find("translations").replaceChildren();
  find("attention-view").hidden = true;
}

/** Return a sentence with its hypotheses. The first hypothesis of the model is chosen. */
function showTranslation({ source, hypotheses, confidence }) {
  const legend = element("legend", { dir: "auto" }, source);
  return element("fieldset", {}, legend, ...hypotheses.map((hypothesis) => {
    const isFirst = !chosen && hypothesis.ids.length > 0;
    const radio = element("input", { type: "radio", name: "hypothesis", checked: isFirst });
    radio.onchange = () => choose({ source, hypothesis });
    if (isFirst) choose({ source, hypothesis });
    const score = element("output", { title: "score: log-probability / length penalty + coverage penalty" }, hypothesis.score.toFixed(4));
    const numbers = hypothesis === hypotheses[0] && confidence !== undefined ? [confidenceOutput(confidence), score] : [score];
    return element("label", { className: "hypothesis" }, radio, element("span", { dir: "auto" }, hypothesis.text), ...numbers);
  }));
}

/** Return the confidence of a translation in percent. */
function confidenceOutput(confidence) {
  const title = `confidence: estimated probability of a chrF of at least ${loaded.model.confidence.chrf} with a translation by a person`;
  return element("output", { title, className: "confidence" }, `${Math.floor(100 * confidence)} % confident`);
}

/** Choose the hypothesis whose attention is shown. */
async function choose(hypothesis) {
  chosen = hypothesis;
  if (!chosen || !find("attention").open) return;
  const status = find("attention-status");
  if (!chosen.hypothesis.ids.length) {
    find("attention-view").hidden = true;
    status.textContent = "The model does not read this sentence: it stays as it is.";
    return;
  }
  status.textContent = "Computing …";
  try {
    const attention = await loaded.attention(hypothesis.source, hypothesis.hypothesis.ids);
    if (hypothesis !== chosen) return;
    showAttention(attention);
    keepForOffline(loaded.model, true);
    status.textContent = "";
  } catch (error) {
    status.textContent = error.message;
  }
}

/** Copy the translation. Browsers have a clipboard only for https and local addresses. */
async function copy() {
  await navigator.clipboard.writeText(find("whole").textContent).then(
    () => { find("copy").textContent = "Copied"; },
    () => { find("copy").textContent = "Not copied"; },
  );
  setTimeout(() => { find("copy").textContent = "Copy"; }, COPIED);
}

find("copy").hidden = !navigator.clipboard;
find("copy").onclick = copy;
find("attention").addEventListener("toggle", () => choose(chosen));
find("form").addEventListener("submit", (event) => event.preventDefault());
for (const [id, event] of [["text", "input"], ["form", "input"], ["form", "reset"]]) {
  find(id).addEventListener(event, () => {
    clearTimeout(timer);
    timer = setTimeout(translate, PAUSE);
  });
}
find("form").addEventListener("input", ({ target }) => {
  if (target.name === "n_best" && target.valueAsNumber > 1) find("sentences").open = true;
});

const loaded = await openTranslator({ onProgress: showProgress }).catch((error) => { fail(error.message); throw error; });
showSettings(loaded.model.settings);
showLanguages(loaded.model);
if (isDecoderOnly()) find("text-help").textContent = "Each line is a prompt, which the model continues while you type.";
showCard(loaded);
find("loading").hidden = true;
for (const id of ["panes", "settings"]) find(id).hidden = false;
find("text").focus();
keepForOffline(loaded.model, false);
