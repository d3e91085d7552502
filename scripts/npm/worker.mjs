// The module "tfk-transformer/worker". Parcel finds it by this name, since it does not read "exports".
export * from "./in-worker.mjs";
