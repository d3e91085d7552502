// Run the translator in a separate thread, so that it never blocks the page. Each message is a
// call, and each answer is the result of a call.
import { openTranslator } from "./translate.mjs";

const calls = {
  async open() {
    translator = await openTranslator({ onProgress: (progress) => postMessage({ progress }) });
    const { model, threads, language } = translator;
    return { model, threads, language };
  },
  translate: (text, options) => translator.translate(text, options),
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
