/** Search settings, as `translate` in Python has them. The defaults are in `Model.settings`. */
export interface Settings {
  /** Open hypotheses of the search; 1 is greedy search. */
  beam_size?: number;
  /** Hypotheses returned, best first; at most `beam_size`. */
  n_best?: number;
  length_penalty?: number;
  coverage_penalty?: number;
  /** In tokens, the end token included. */
  min_length?: number;
  /** In tokens, the end token included. */
  max_length?: number;
  max_length_factor?: number;
  /** 0: beam search; above 0: tokens are drawn. */
  temperature?: number;
  top_k?: number;
  top_p?: number;
  seed?: number;
  repetition_penalty?: number;
  no_repeat_ngram_size?: number;
}

/** The rules of a setting, as JSON schema has them. */
export interface SettingRule {
  type: "integer" | "number";
  default: number;
  minimum?: number;
  exclusiveMinimum?: number;
  maximum: number;
  description: string;
}

/** What the export wrote about the model, in model/model.json. */
export interface Model {
  /** Version of tfk-transformer. */
  version: string;
  /** Whether the weights have 8 bits. */
  int8: boolean;
  parameters: number;
  config: Record<string, unknown> & { architecture: string; max_length: number };
  settings: Record<keyof Settings, SettingRule>;
  /** Where the model came from; empty if it was not imported. */
  origin: Record<string, unknown>;
  /** Figures of the training run, by name. */
  metrics: Record<string, unknown>;
  /** How closely the files agree with the Keras model. */
  parity: Record<string, unknown>;
  /** The sizes of the shortlist, if translations have only the tokens of one. */
  shortlist?: { for_every_text: number; for_a_source_token: number; learned_from_pairs: number };
  /** Paths in the folder. */
  files: { search: string; score: string; source: string; target: string };
  /** Size of each file. */
  bytes: Record<string, number>;
}

export interface Hypothesis {
  text: string;
  /** Log-probability / length penalty + coverage penalty. */
  score: number;
  /** Tokens, and the end token unless the length limit cut the hypothesis. */
  ids: number[];
}

/** The best hypothesis, and all of them. */
export interface Translation extends Hypothesis {
  source: string;
  /** Best first, at least one. */
  hypotheses: Hypothesis[];
  milliseconds: number;
}

/** Attention of the decoder to the source. */
export interface Attention {
  layers: number;
  heads: number;
  /** The pieces of the translation, one a row. */
  tokens: string[];
  /** The pieces attended to, one a column. */
  sourceTokens: string[];
  /** [rows, columns]: the sizes of the last two axes of `weights`. */
  shape: [number, number];
  /** Of shape [layers, heads, rows, columns]; each row sums to 1. */
  weights: Float32Array;
}

export interface Translator {
  model: Model;
  threads: number;
  /**
   * Translate one sentence.
   * @throws Error if the text is too long for the model or holds NUL, or if a setting is unknown or outside its range.
   */
  translate(text: string, settings?: Settings): Promise<Translation>;
  /** Return the attention of a translation. The first call reads a further file. */
  attention(text: string, ids: number[]): Promise<Attention>;
}

export interface Options {
  /** The folder that the export wrote; default: the one of this module. */
  folder?: URL;
  /** Threads of WebAssembly; default: at most 4 where the page is cross-origin isolated, and 1 otherwise. */
  threads?: number;
  /** Called with the bytes that have been read and with those of all files. */
  onProgress?: (progress: { loaded: number; total: number }) => void;
}

/** Read the model of a folder that `tfk-transformer export --format web` wrote, and open it. */
export function openTranslator(options?: Options): Promise<Translator>;
