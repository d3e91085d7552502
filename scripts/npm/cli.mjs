#!/usr/bin/env node
// The program of the npm package: npx tfk-transformer FILE "ein Satz", or lines of standard input.
import { stat } from "node:fs/promises";
import { run } from "./command-line.mjs";
import { openTranslator } from "./translate.mjs";

const USAGE = `npx tfk-transformer FILE [options] [TEXT ...]

FILE is translate.onnx or translate.int8.onnx of tfk-transformer export, or a folder of its format
web.`;

await run(USAGE, async (words) => {
  const file = words.shift();
  if (!file || file.startsWith("-")) throw new Error(`FILE: expected translate.onnx as the first argument, got ${file ?? "none"}.`);
  const isFolder = (await stat(file).catch(() => undefined))?.isDirectory();
  return openTranslator(isFolder ? { folder: file } : { file });
});
