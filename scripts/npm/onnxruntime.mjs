// onnxruntime of the npm package onnxruntime-web, which finds its WebAssembly itself.
export * from "onnxruntime-web/wasm";
export const webAssembly = undefined;
