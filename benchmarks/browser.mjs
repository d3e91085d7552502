// Times a web folder in Chromium: node benchmarks/browser.mjs ADDRESS CAPTIONS [ROUNDS], with the folder served at ADDRESS.
//
// Each round visits the page with an empty cache, and then again, each time to the first translation, and then types 50 captions.
// Prints medians: milliseconds of the clock, and of the processor (Linux), which a busy machine does not stretch as much.
import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { loadavg } from "node:os";

const { chromium } = createRequire(new URL("../scripts/package.json", import.meta.url))("playwright-core");
const [address, captions, rounds = 5] = process.argv.slice(2);
const texts = readFileSync(captions, "utf8").split("\n").filter(Boolean).slice(0, 50);
const executablePath = execFileSync("which", ["chromium"], { encoding: "utf8" }).trim();
const server = await chromium.launchServer({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const browser = await chromium.connect(server.wsEndpoint());
const TICK = 10; // milliseconds of the counters in /proc

/** Return the milliseconds that all processes of the browser have taken of the processors. */
function processorTime() {
  let ticks = 0;
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /, "").split(" "); // from the state on
      if (Number(fields[2]) === server.process().pid) ticks += Number(fields[11]) + Number(fields[12]);
    } catch { /* the process has ended */ }
  }
  return ticks * TICK;
}

/** Run work, and return the milliseconds that it took: {clock, processor}. */
async function timed(work) {
  const [clock, processor] = [performance.now(), processorTime()];
  await work();
  return { clock: performance.now() - clock, processor: processorTime() - processor };
}

async function translated(page, text) {
  await page.fill("#text", text);
  await page.waitForFunction((source) => document.documentElement.dataset.translated === source, text);
}

async function visited(page) {
  await page.goto(address);
  await page.locator("#panes").waitFor();
  await translated(page, texts[0]);
}

const found = { "first visit, to the first translation": [], "second visit, to the first translation": [], "a caption": [] };
const add = (name, times) => found[name].push(times);
for (let round = 0; round < Number(rounds); round++) {
  const context = await browser.newContext(); // an empty cache
  const page = await context.newPage();
  add("first visit, to the first translation", await timed(() => visited(page)));
  await page.locator("#offline", { hasText: "without a network" }).waitFor();
  add("second visit, to the first translation", await timed(() => visited(page)));
  // All at once, as lines: the pause after the last key is no part of a translation.
  const { clock, processor } = await timed(() => translated(page, texts.join("\n")));
  add("a caption", { clock: clock / texts.length, processor: processor / texts.length });
  await context.close();
}
await browser.close();
await server.close();

const median = (numbers) => Math.round(numbers.sort((a, b) => a - b)[numbers.length >> 1]);
for (const [name, times] of Object.entries(found)) {
  const [clock, processor] = ["clock", "processor"].map((kind) => median(times.map((time) => time[kind])));
  console.log(`${name}: ${clock} ms, ${processor} ms of the processors (median of ${times.length})`);
}
console.log(`load of the machine: ${loadavg()[0].toFixed(1)}`);
