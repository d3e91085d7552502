// Opens pages in Chromium and prints the text of each as JSON: node open_page.mjs < task.json
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../../scripts/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const FLAGS = "--no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --disable-background-networking --disable-component-update --disable-sync --no-first-run";
const { program, profile, addresses } = JSON.parse(readFileSync(0, "utf8"));

const context = await chromium.launchPersistentContext(profile, { executablePath: program, args: FLAGS.split(" ") });
context.setDefaultTimeout(60_000);
const texts = [];
for (const address of addresses) {
  const page = await context.newPage();
  const failure = new Promise((_, reject) => page.on("pageerror", reject));
  await page.goto(address);
  await Promise.race([failure, page.waitForFunction(() => document.body.innerText.trim())]);
  texts.push(await page.evaluate(() => document.body.innerText.trim()));
}
await context.close();
console.log(JSON.stringify(texts));
