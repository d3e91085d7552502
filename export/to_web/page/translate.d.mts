/** Search settings, as `translate` in Python has them. The defaults are in `Model.settings`. */
export interface Settings {
  /** Open hypotheses during the search; 1 is greedy search. */
  beam_size?: number;
  /** Number of hypotheses to return, best first; at most `beam_size`. */
  n_best?: number;
  length_penalty?: number;
  coverage_penalty?: number;
  /** In tokens, including the end token. */
  min_length?: number;
  /** In tokens, including the end token. */
  max_length?: number;
  max_length_factor?: number;
  /** 0: beam search; above 0: tokens are drawn. */
  temperature?: number;
  top_k?: number;
  top_p?: number;
  seed?: number;
  repetition_penalty?: number;
  no_repeat_ngram_size?: number;
  /** What divides log-probabilities: ((5 + length) / 6), length, or (1 + length), to the power of `length_penalty`. */
  length_penalty_form?: "gnmt" | "length" | "length_with_start";
  /** As `early_stopping` of transformers. */
  early_stopping?: boolean | "never";
  /** Whether only the end token may follow at the maximum length. */
  forced_eos?: boolean;
  renormalize_logits?: boolean;
}

/** Search settings, and how a text is read. */
export interface TranslateOptions extends Settings {
  /** Default: the model's `config.split_sentences`. If false, the model reads the text as one sentence, exactly as it is. */
  splitSentences?: boolean;
  /** The code of the text's language, for the ends of sentences. Default: `Translator.language`. */
  language?: string;
}

/** The rules of a setting, with the keys of JSON schema. */
export interface SettingRule {
  /** None with `enum`. */
  type?: "integer" | "number" | "boolean";
  /** The possible values. */
  enum?: (string | boolean)[];
  default: number | boolean | string;
  minimum?: number;
  exclusiveMinimum?: number;
  /** The smallest value other than 0. */
  minimumAboveZero?: number;
  maximum?: number;
  description: string;
}

/** The description of the model that the export wrote: model/model.json, or metadata of the file. */
export interface Model {
  /** Version of tfk-transformer. */
  version: string;
  config: Record<string, unknown> & {
    architecture: string;
    max_length: number;
    /** The codes of the languages, or null if they are unknown. */
    source_language: string | null;
    target_language: string | null;
  };
  settings: Record<keyof Settings, SettingRule>;
  /** The mean number of sentences in a text of the validation data, or null if it is unknown. */
  sentences_per_text: number | null;
  /** How closely the files agree with the Keras model. */
  parity: Record<string, unknown>;
  /** The sizes of the shortlist, if the model has one. */
  shortlist?: { for_every_text: number; for_a_source_token: number; learned_from_pairs: number };
  /** The calibration of `Translation.confidence`, if the model has one. */
  confidence?: { intercept: number; score: number; length: number; ratio: number; chrf: number; pairs: number; right: number };
}

/** The description of the model of a web folder. */
export interface FolderModel extends Model {
  /** Whether the weights have 8 bits. */
  int8: boolean;
  parameters: number;
  /** The source of an imported model; otherwise empty. */
  origin: Record<string, unknown>;
  /** Figures of the training run, by name. */
  metrics: Record<string, unknown>;
  /** Paths in the folder. */
  files: { search: string; score: string; source: string; target: string };
  /** Size of each file. */
  bytes: Record<string, number>;
}

export interface Hypothesis {
  text: string;
  /** Log-probability / length penalty + coverage penalty. For several sentences, their sum. */
  score: number;
  /**
   * Tokens, and the end token unless the length limit cut the hypothesis. The hypotheses of a text
   * of several sentences have no ids: those of `sentences` have them.
   */
  ids?: number[];
}

/** The best hypothesis, and all of them. */
export interface Translation extends Hypothesis {
  source: string;
  /** Best first, at least one. Hypothesis k of a text joins hypothesis k of each sentence. */
  hypotheses: Hypothesis[];
  /**
   * The estimated probability that the text is right, from 0 to 1; with several sentences, the
   * lowest of theirs. Missing if the model has no calibration, or a setting changes the scores.
   */
  confidence?: number;
  /** The results of the sentences, if the text has several. */
  sentences?: Translation[];
  /** The number of characters that the vocabulary lacks, which stay as they are, if any. */
  keptCharacters?: number;
  milliseconds: number;
}

/** Attention of the decoder to the source. */
export interface Attention {
  layers: number;
  heads: number;
  /** The pieces of the translation, one for each row. */
  tokens: string[];
  /** The pieces that are attended to, one for each column. */
  sourceTokens: string[];
  /** [rows, columns]: the sizes of the last two axes of `weights`. */
  shape: [number, number];
  /** Of shape [layers, heads, rows, columns]; each row sums to 1. */
  weights: Float32Array;
}

export interface Translator {
  /** The description of the model: a `FolderModel` if it is from a web folder. */
  model: Model | FolderModel;
  threads: number;
  /** The code of the source language: the model's if it is known, otherwise "en". */
  language: string;
  /**
   * Translate a text of any number of sentences and any length. The sentences are translated
   * separately, and joined with the blanks and line breaks of the text. Characters that the
   * vocabulary lacks, and sentences without letters and numbers, stay as they are. A decoder-only
   * model continues the text, which is not split.
   * @throws Error if the text contains NUL, if a setting is unknown or out of range, or if the text
   *   is not split and too long for the model.
   */
  translate(text: string, options?: TranslateOptions): Promise<Translation>;
  /**
   * Return the attention of the translation of a sentence. The first call loads score.onnx, which
   * must be in the folder of translate.onnx.
   */
  attention(sentence: string, ids: number[], options?: Pick<TranslateOptions, "splitSentences">): Promise<Attention>;
}

export interface Options {
  /**
   * translate.onnx or translate.int8.onnx: its address, in Node also its path, or its content. A
   * relative address begins at the page.
   */
  file?: string | URL | Uint8Array;
  /**
   * A folder of `tfk-transformer export --format web`. Default without `file`: the folder of this
   * module. The npm package has no default.
   */
  folder?: string | URL;
  /**
   * The address of onnxruntime's `ort-wasm-simd-threaded.wasm`. Needed with bundlers that do not
   * copy this file (esbuild) or do not give onnxruntime its own address (Parcel). Default: where the bundler or the folder has it.
   */
  wasm?: string | URL;
  /**
   * Threads of WebAssembly. Default: in a web folder the number of cores, at most 4, if the page is
   * cross-origin isolated; otherwise 1. In a bundled page, use more than 1 only in a worker.
   */
  threads?: number;
  /** Called with the number of bytes read so far and the bytes of all files, if it is known. */
  onProgress?: (progress: { loaded: number; total?: number }) => void;
}

/** Open translate.onnx, or a folder that `tfk-transformer export --format web` wrote. */
export function openTranslator(options?: Options): Promise<Translator>;
