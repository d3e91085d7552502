import type { Options, Translator } from "./translate.mjs";

export interface WorkerTranslator extends Translator {
  /** Stop the worker, and free its memory. */
  close(): void;
}

/** Open a translator in a new worker of the browser. */
export function openTranslator(options?: Options): Promise<WorkerTranslator>;
