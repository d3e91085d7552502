// Run the translator of in-worker.mjs in a separate thread. Each message is a call, and each answer
// is the result of a call.
import { openTranslator } from "./translate.mjs";

const calls = {
  async open(options) {
    translator = await openTranslator({ ...options, onProgress: (progress) => postMessage({ progress }) });
    const { model, threads, language } = translator;
    return { model, threads, language };
  },
  translate: (text, options) => translator.translate(text, options),
  attention: (...values) => translator.attention(...values),
};
let translator;

addEventListener("message", async ({ data: { id, call, values } }) => {
  try {
    postMessage({ id, result: await calls[call](...values) });
  } catch (error) {
    postMessage({ id, error: error.message });
  }
});
