// Translate in a worker of the browser, so that the page never waits. in-worker.d.mts has the types.
import { addressOf } from "./reading.mjs";

/** Open a translator in a new worker; see `openTranslator` of translate.mjs. */
export async function openTranslator({ worker = startWorker(), onProgress = () => {}, ...options } = {}) {
  for (const name of ["file", "folder", "wasm"]) {
    // The worker would resolve it against its own address. A message cannot contain a URL.
    const isAddress = options[name] !== undefined && !(options[name] instanceof Uint8Array);
    if (isAddress) options[name] = (await addressOf(options[name])).href;
  }
  const waiting = new Map(); // the promises of calls, by number
  let calls = 0;

  worker.onmessage = ({ data: { id, result, error, progress } }) => {
    if (progress) return onProgress(progress);
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) resolve(result);
    else reject(new Error(error));
  };
  worker.onerror = ({ message }) => stop(`The translator does not start in this browser: ${message ?? "it does not load modules in workers"}.`);

  /** Stop the worker. Calls that wait for it fail with this message. */
  function stop(message) {
    worker.terminate();
    for (const { reject } of waiting.values()) reject(new Error(message));
    waiting.clear();
  }

  /** Call a function of the worker. */
  const ask = (call) => (...values) => new Promise((resolve, reject) => {
    waiting.set(++calls, { resolve, reject });
    worker.postMessage({ id: calls, call, values });
  });

  return {
    ...(await ask("open")(options)),
    translate: ask("translate"),
    attention: ask("attention"),
    close: () => stop("The translator is closed."),
  };
}

function startWorker() {
  return new Worker(new URL("./worker-thread.mjs", import.meta.url), { type: "module" });
}
