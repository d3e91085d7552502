// The model card: origin, size and figures of the model.

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const NAMES = { val_bleu: "validation BLEU", license: "license", name: "origin", bleu_with_the_model: "BLEU with the model" };
// Figures of the training run that do not describe the translations. The card omits them.
const OF_TRAINING = ["parameters", "epoch", "learning_rate", "seconds", "tokens_per_second", "training_seconds", "loss", "accuracy", "perplexity"];

/** Fill the card, the title, and the line below it. */
export function showCard({ model, threads }) {
  const { config, origin, metrics, parity, bytes } = model;
  const languages = [config.source_language, config.target_language].map(languageOf);
  if (languages.every(Boolean)) {
    const direction = languages.join(" to ");
    document.title = `Translator from ${direction}`;
    document.getElementById("about").prepend(`From ${direction}. `);
  }

  const layers = [config.encoder_layers && `${config.encoder_layers} encoder`, config.decoder_layers && `${config.decoder_layers} decoder`];
  const facts = {
    languages: languages.filter(Boolean).join(" → "),
    ...plain(origin, ["source_language", "target_language"]),
    parameters: model.parameters.toLocaleString("en"),
    weights: model.int8 ? "8-bit integers" : "32-bit floats",
    shortlist: model.shortlist && shortlistOf(model.shortlist),
    layers: layers.filter(Boolean).join(", "),
    "width of the model": config.model_dim,
    "one input": inputOf(config),
    "sentences per text in training": model.sentences_per_text,
    "longest sentence": `${config.max_length} tokens`,
    ...plain(metrics, OF_TRAINING),
    "agreement with the Keras model": readable(parity),
    files: Object.entries(bytes).map(([name, size]) => `${name.split("/").pop()} ${(size / 1e6).toFixed(1)} MB`).join(", "),
    "written by": `tfk-transformer ${model.version}`,
    threads,
  };
  const shown = Object.entries(facts).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  document.getElementById("facts").append(...shown.flatMap(([name, value]) => [tag("dt", NAMES[name] ?? name), tag("dd", value)]));
  document.getElementById("card").hidden = false;
}

const inputOf = ({ architecture, split_sentences: splits = true }) => {
  if (architecture === "decoder") return "a prompt, which is not split";
  if (!splits) return "a text, which is read as a whole";
  return "a text of any length; its sentences are translated separately, unless splitSentences is false";
};

const shortlistOf = (sizes) => `${sizes.for_every_text} tokens, and ${sizes.for_a_source_token} for each token of the source`;

function tag(name, text) {
  return Object.assign(document.createElement(name), { textContent: text });
}

/** Return the scalar values of a record, formatted, by readable names. */
function plain(record, without) {
  const shown = Object.entries(record).filter(([name, value]) => !without.includes(name) && value !== null && typeof value !== "object");
  return Object.fromEntries(shown.map(([name, value]) => [NAMES[name] ?? name.replace(/^val_/, "validation ").replaceAll("_", " "), written(value)]));
}

const written = (value) => (typeof value === "number" ? NUMBER.format(value) : String(value));

const readable = (record) => Object.entries(plain(record, [])).map(([name, value]) => `${name}: ${value}`).join("; ");

/** Return the English name of a language code such as "de" or "deu_Latn", or the code itself. */
function languageOf(code) {
  if (!code) return "";
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(code.replace("_", "-"));
  } catch {
    return code;
  }
}
