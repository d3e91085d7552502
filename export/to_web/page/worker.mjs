// The translator in a thread of its own, so that the page never waits for it: each message is a call, each answer its result.
import { openTranslator } from "./translate.mjs";

const calls = {
  async open() {
    translator = await openTranslator({ onProgress: (progress) => postMessage({ progress }) });
    return { model: translator.model, threads: translator.threads };
  },
  translate: (text, settings) => translator.translate(text, settings),
  attention: (text, ids) => translator.attention(text, ids),
};
let translator;

addEventListener("message", async ({ data: { id, call, given } }) => {
  try {
    postMessage({ id, result: await calls[call](...given) });
  } catch (error) {
    postMessage({ id, error: error.message });
  }
});
