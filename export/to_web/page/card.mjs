// The model card: languages, quality, origin, size and figures of the model.
import { languageName } from "./languages.mjs";
import { element } from "./settings-form.mjs";

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const NAMES = { val_bleu: "validation BLEU (0 to 100)", license: "license", name: "origin", bleu_with_the_model: "BLEU with the model" };
// Figures of the training run that do not describe the translations. The card omits them.
const OF_TRAINING = ["parameters", "epoch", "learning_rate", "seconds", "tokens_per_second", "training_seconds", "loss", "accuracy", "perplexity"];

/** Fill the card: first what a reader asks, then technical details. */
export function showCard({ model, threads }) {
  const { config, origin, metrics, parity, bytes } = model;
  const languages = [config.source_language, config.target_language].map(languageName);
  const layers = [config.encoder_layers && `${config.encoder_layers} encoder`, config.decoder_layers && `${config.decoder_layers} decoder`];
  show("reader-facts", {
    languages: languages.filter(Boolean).join(" → "),
    ...plain(metrics, OF_TRAINING),
    "one input": inputOf(config),
    privacy: "no text leaves the device",
    ...plain(origin, ["source_language", "target_language"]),
    "first visit": `loads ${megabytes(firstVisitBytes(model))}`,
  });
  show("technical-facts", {
    parameters: model.parameters.toLocaleString("en"),
    weights: model.int8 ? "8-bit integers" : "32-bit floats",
    layers: layers.filter(Boolean).join(", "),
    "width of the model": config.model_dim,
    shortlist: model.shortlist && shortlistOf(model.shortlist),
    "longest sentence": `${config.max_length} tokens`,
    "sentences per text in training": model.sentences_per_text,
    "agreement with the Keras model": readable(parity),
    files: Object.entries(bytes).map(([name, size]) => `${name.split("/").pop()} ${megabytes(size)}`).join(", "),
    "written by": `tfk-transformer ${model.version}`,
    threads,
  });
  document.getElementById("card").hidden = false;
}

function show(id, facts) {
  const shown = Object.entries(facts).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  document.getElementById(id).append(...shown.flatMap(([name, value]) => [element("dt", {}, NAMES[name] ?? name), element("dd", {}, `${value}`)]));
}

/** Return the bytes of the files that the page loads. The file for attention is loaded on demand. */
const firstVisitBytes = ({ bytes, files }) => Object.entries(bytes).reduce((sum, [name, size]) => (name === files.score ? sum : sum + size), 0);

const megabytes = (size) => `${(size / 1e6).toFixed(1)} MB`;

const inputOf = ({ architecture, split_sentences: splits = true }) => {
  if (architecture === "decoder") return "a prompt, which is not split";
  if (!splits) return "a text, which is read as a whole";
  return "a text of any length; its sentences are translated separately";
};

const shortlistOf = (sizes) => `${sizes.for_every_text} tokens, and ${sizes.for_a_source_token} for each token of the source`;

/** Return the scalar values of a record, formatted, by readable names. */
function plain(record, without) {
  const shown = Object.entries(record).filter(([name, value]) => !without.includes(name) && value !== null && typeof value !== "object");
  return Object.fromEntries(shown.map(([name, value]) => [NAMES[name] ?? name.replace(/^val_/, "validation ").replaceAll("_", " "), written(value)]));
}

const written = (value) => (typeof value === "number" ? NUMBER.format(value) : String(value));

const readable = (record) => Object.entries(plain(record, [])).map(([name, value]) => `${name}: ${value}`).join("; ");
