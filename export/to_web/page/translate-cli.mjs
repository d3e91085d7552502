#!/usr/bin/env node
// Translate texts in Node with the model of this folder: node translate-cli.mjs "ein Satz", or lines
// of standard input.
import { run } from "./command-line.mjs";
import { openTranslator } from "./translate.mjs";

await run("node translate-cli.mjs [options] [TEXT ...]", openTranslator);
