// Times a web folder in Chromium: node benchmarks/browser.mjs ADDRESS CAPTIONS [ROUNDS], with the folder served at ADDRESS.
//
// Each round is a visit with an empty cache: from the request of the page to the first translation, and then a caption at a time.
// A second visit loads everything from the device. Prints medians in milliseconds, and the load of the machine beside them.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { loadavg } from "node:os";

const { chromium } = createRequire(new URL("../scripts/package.json", import.meta.url))("playwright-core");
const [address, captions, rounds = 5] = process.argv.slice(2);
const texts = readFileSync(captions, "utf8").split("\n").filter(Boolean).slice(0, 50);
const median = (numbers) => numbers.sort((a, b) => a - b)[numbers.length >> 1];
const executablePath = execFileSync("which", ["chromium"], { encoding: "utf8" }).trim();
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });

/** Type a text into the page, and return the milliseconds of its translation when it is shown. */
async function translated(page, text) {
  await page.fill("#text", text);
  await page.waitForFunction((wanted) => document.documentElement.dataset.translated === wanted, text);
  return Number.parseInt(await page.locator("#time").textContent(), 10);
}

/** Visit the page; return the milliseconds until it is ready, and until it shows the first translation. */
async function visit(page) {
  const start = performance.now();
  await page.goto(address);
  await page.locator("#form").waitFor();
  const ready = performance.now() - start;
  await translated(page, texts[0]);
  return { ready, first: performance.now() - start };
}

const found = { "ready, first visit": [], "first translation, first visit": [], "ready, second visit": [], "first translation, second visit": [], "a caption": [] };
for (let round = 0; round < Number(rounds); round++) {
  const context = await browser.newContext(); // an empty cache
  const page = await context.newPage();
  for (const number of ["first", "second"]) {
    const { ready, first } = await visit(page);
    found[`ready, ${number} visit`].push(ready);
    found[`first translation, ${number} visit`].push(first);
    await page.locator("#offline", { hasText: "without a network" }).waitFor();
  }
  for (const text of texts) found["a caption"].push(await translated(page, text));
  await context.close();
}
await browser.close();
for (const [name, times] of Object.entries(found)) console.log(`${name}: ${Math.round(median(times))} ms (median of ${times.length})`);
console.log(`load of the machine: ${loadavg()[0].toFixed(1)}`);
