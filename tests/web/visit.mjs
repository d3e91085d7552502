// Visits the page of a web folder with Chromium as a person does, and prints what it saw as JSON: node visit.mjs < task.json
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(new URL("../../scripts/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const FLAGS = "--no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking --disable-component-update --disable-sync --no-first-run";
const PATIENCE = 60_000;
const { program, profile, address, isolated, held, file, explorer, texts, shown, paragraph, down, pictures } = JSON.parse(readFileSync(0, "utf8"));

const context = await chromium.launchPersistentContext(profile, { executablePath: program, args: FLAGS.split(" "), viewport: { width: 1200, height: 900 } });
context.setDefaultTimeout(PATIENCE);
await context.grantPermissions(["clipboard-read", "clipboard-write"]);
const [requests, complaints] = [[], []];
context.on("request", (request) => requests.push(request.url()));

async function opened(url) {
  const page = await context.newPage();
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(url);
  return page;
}

const ready = (page) => page.locator("#panes").waitFor({ state: "visible" });

/** Type lines, and return the hypotheses of each as [text, score]. */
async function translated(page, lines) {
  await page.fill("#text", lines.join("\n"));
  await page.waitForFunction((wanted) => document.documentElement.dataset.translated === wanted, lines.join("\n"));
  return page.evaluate(() => [...document.querySelectorAll("#translations fieldset")].map((line) =>
    [...line.querySelectorAll(".hypothesis")].map((found) => [found.querySelector("span").textContent, Number(found.querySelector("output").value)])));
}

/** Type a text, and return its translation as a whole and by sentence. */
async function translatedText(page, text) {
  const sentences = await translated(page, [text]);
  return { whole: await page.locator("#whole").textContent(), sentences, time: await page.locator("#time").textContent() };
}

async function choose(page, name, value) {
  await page.fill(`input[name=${name}]`, String(value));
}

/** Return the heat map as it is read out: {rows, columns, weights in percent}, and the weights that colour it. */
const heatMap = (page) => page.evaluate(() => {
  const texts = (selector) => [...document.querySelectorAll(`#heat-map ${selector}`)].map((cell) => cell.textContent);
  const cells = [...document.querySelectorAll("#heat-map tbody tr")].map((row) => [...row.querySelectorAll("td")]);
  const weights = cells.map((row) => row.map((cell) => Number(cell.style.getPropertyValue("--weight"))));
  return { rows: texts("tbody th"), columns: texts("thead th"), spoken: cells.map((row) => row.map((cell) => cell.textContent)), weights };
});

/** Show the attention of the first hypothesis, of every layer and head. */
async function attention(page) {
  await page.locator("#attention > summary").click();
  await page.locator("#attention-view").waitFor({ state: "visible" });
  const found = {};
  for (const layer of await page.locator("#layer option").evaluateAll((options) => options.map(({ value }) => value))) {
    for (const head of await page.locator("#head option").evaluateAll((options) => options.map(({ value }) => value))) {
      await page.selectOption("#layer", { value: layer }); // a word alone would also be looked for among the labels
      await page.selectOption("#head", { value: head });
      found[`${layer} ${head}`] = await heatMap(page);
    }
  }
  return found;
}

const alignment = (page) => page.locator("#target-words li").evaluateAll((items) => items.map((item) => [...item.children].map(({ textContent }) => textContent)));

/** Return what axe-core finds, in a scheme of colours. */
async function accessibility(page, colorScheme, name = "web-page") {
  await page.emulateMedia({ colorScheme });
  // By the debugger, which the page's own rules for scripts do not bind.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }));
  if (pictures) await page.screenshot({ path: join(pictures, `${name}-${colorScheme}.png`), fullPage: true });
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`);
}

async function widths(page, width) {
  await page.setViewportSize({ width, height: 740 });
  if (pictures) await page.screenshot({ path: join(pictures, "web-page-phone.png"), fullPage: true });
  return page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
}

/** Return the boxes of both panes in a window of this width. */
async function panes(page, width) {
  await page.setViewportSize({ width, height: 900 });
  return page.locator(".pane").evaluateAll((sections) => sections.map((section) => section.getBoundingClientRect().toJSON()));
}

/** Return the names and the codes of the languages of both panes. */
const languages = (page) => page.evaluate(() => [
  document.querySelector("#source-name").textContent, document.querySelector("#text").lang,
  document.querySelector("#target-name").textContent, document.querySelector("#whole").lang,
]);

/** Press the button, and return its text and the content of the clipboard. */
async function copied(page) {
  await page.locator("#copy").click();
  await page.locator("#copy", { hasText: "Copied" }).waitFor();
  await page.locator("#copy", { hasText: /^Copy$/ }).waitFor();
  return page.evaluate(() => navigator.clipboard.readText());
}

/** Return the help text of each setting. */
const help = (page) => page.locator("#form input, #form select").evaluateAll((inputs) => Object.fromEntries(inputs.map((input) =>
  [input.name, document.getElementById(input.getAttribute("aria-describedby")).textContent])));

/** Show what a visitor sees first: the panes, and everything else folded. */
async function firstView(page) {
  const opened = await page.locator("details[open]").evaluateAll((all) => all.map((details) => { details.open = false; return details.id; }));
  for (const [name, width] of [["first", 1200], ["first-phone", 360]]) {
    await page.setViewportSize({ width, height: 740 });
    for (const colorScheme of ["light", "dark"]) await accessibility(page, colorScheme, `web-page-${name}`);
  }
  await page.evaluate((ids) => ids.forEach((id) => { document.getElementById(id).open = true; }), opened);
}

const seen = {};
const page = await opened(address);
seen.loading = await page.locator("#loading-label").textContent();
await ready(page);
seen.title = await page.title();
seen.languages = await languages(page);
seen.focused = await page.evaluate(() => document.activeElement.id);
await page.locator("#settings > summary").click();
seen.settings = Object.fromEntries(await page.locator("#form input, #form select").evaluateAll((inputs) => inputs.map(({ name, value }) => [name, JSON.parse(value)])));
seen.help = await help(page);
seen.greedy = (await choose(page, "beam_size", 1), await translated(page, texts));
await choose(page, "beam_size", 4);
await choose(page, "n_best", 3);
seen.best = await translated(page, shown);
seen.time = await page.locator("#time").textContent();
seen.attention = await attention(page);
seen.alignment = await alignment(page);
await page.keyboard.press("Tab");
await page.locator("#target-words button").first().press("Enter");
seen.pressed = await page.locator("#target-words button[aria-pressed=true]").allTextContents();
await page.locator("#card > summary").click();
seen.card = Object.fromEntries(await page.locator("#facts dt").evaluateAll((names) => names.map((name) => [name.textContent, name.nextElementSibling.textContent])));
seen.axe = { light: await accessibility(page, "light"), dark: await accessibility(page, "dark") };
seen.widths = await widths(page, 360);

await choose(page, "n_best", 1);
seen.paragraph = await translatedText(page, paragraph);
seen.copied = await copied(page);
seen.panes = { desktop: await panes(page, 1200), phone: await panes(page, 360) };
if (pictures) await firstView(page);
await page.setViewportSize({ width: 1200, height: 900 });
seen.paragraph.axe = await accessibility(page, "light", "web-page-paragraph");
await choose(page, "n_best", 9); // more than the beam
await page.locator("#failure").waitFor({ state: "visible" });
seen.failure = await page.locator("#failure").textContent();
await page.locator("button[type=reset]").click();
await page.locator("#failure").waitFor({ state: "hidden" });

await page.locator("#offline", { hasText: "without a network" }).waitFor();
await context.setOffline(true);
await fetch(`${address}${down}`); // a server that gives no answers: no request can have been answered but by the page itself
await page.reload();
await ready(page);
seen.offline = await translated(page, shown);
await page.locator("#attention > summary").click();
await page.locator("#attention-view").waitFor({ state: "visible" });
await page.close();
await context.setOffline(false);

const threaded = await opened(isolated);
await ready(threaded);
seen.threaded = await translated(threaded, shown);
seen.threads = await threaded.locator("#time").textContent();

const waiting = await opened(held);
await ready(waiting);
seen.held = await translated(waiting, shown);
await waiting.close();

const explored = await opened(explorer);
seen.explorer = { light: await accessibility(explored, "light", "explorer"), dark: await accessibility(explored, "dark", "explorer") };
seen.complaints = [...complaints];
await threaded.close();
await explored.close();

const closed = await opened(file);
await closed.locator("#not-running").waitFor({ state: "visible" });
seen.file = await closed.locator("#not-running").innerText();
if (pictures) await closed.screenshot({ path: join(pictures, "web-page-file.png") });
await context.close();
console.log(JSON.stringify({ ...seen, requests }));
