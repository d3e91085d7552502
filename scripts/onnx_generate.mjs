// Translate ids with generate.onnx in Node. Requires onnxruntime-node (run npm ci --ignore-scripts
// in this folder).
//
// node scripts/onnx_generate.mjs generate.onnx 10,11,2 12,2 beam_size=4 n_best=2
import { readFile } from "node:fs/promises";
import * as ort from "onnxruntime-node";
import { openSearch } from "../export/to_web/page/search.mjs";

const [path, ...rest] = process.argv.slice(2);
const rows = rest.filter((word) => !word.includes("=")).map((word) => word.split(",").map(Number));
const settings = rest.filter((word) => word.includes("=")).map((word) => word.split("="));
try {
  const { generate } = await openSearch(ort, await readFile(path));
  const numbers = Object.fromEntries(settings.map(([name, value]) => [name, Number(value)]));
  for (const hypotheses of await generate(rows, numbers)) console.log(JSON.stringify(hypotheses));
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
