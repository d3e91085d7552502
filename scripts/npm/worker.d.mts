export * from "./in-worker.mjs";
