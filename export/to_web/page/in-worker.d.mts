import type { Options, Translator } from "./translate.mjs";

export interface WorkerTranslator extends Translator {
  /** Stop the worker, and free its memory. */
  close(): void;
}

export interface WorkerOptions extends Options {
  /**
   * A new worker that runs `worker-thread.mjs`. Needed if a bundler does not bundle workers, as
   * esbuild. Default: the translator starts it.
   */
  worker?: Worker;
}

/** Open a translator in a new worker of the browser. */
export function openTranslator(options?: WorkerOptions): Promise<WorkerTranslator>;
