"""For Keras users: build, compile and fit a model on number words in plain Keras, and save the
translator as a bundle.

python scripts/keras_fit.py OUT [EPOCHS]
"""

import sys

import keras

from tfk_transformer import (
    SubwordTokenizer,
    TokenBatches,
    Transformer,
    TransformerConfig,
    Translator,
    datasets,
)
from tfk_transformer.losses import LabelSmoothedCrossentropy
from tfk_transformer.metrics import Perplexity, TokenAccuracy
from tfk_transformer.schedules import InverseSquareRoot

out, epochs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 6

data = datasets.load("numbers:en-de")
texts = (text for pair in data.pairs("train") for text in (pair.source, pair.target))
tokenizer = SubwordTokenizer.train(texts, vocab_size=200, model_type="bpe")
training = TokenBatches(data, "train", tokenizer, tokenizer, batch_tokens=2048, shuffle=True)
validation = TokenBatches(data, "validation", tokenizer, tokenizer, batch_tokens=2048)

sizes = {"source_vocab_size": tokenizer.vocab_size, "target_vocab_size": tokenizer.vocab_size}
model = Transformer(TransformerConfig.preset("tiny", tie_embeddings="all", **sizes))
model.compile(
    optimizer=keras.optimizers.Adam(InverseSquareRoot(2e-3, warmup_steps=300), beta_2=0.98),
    loss=LabelSmoothedCrossentropy(0.0),
    metrics=[TokenAccuracy(), Perplexity()],
)
model.fit(training, validation_data=validation, epochs=epochs)

translator = Translator(model, tokenizer, probes=[pair.source for pair in data.pairs("validation")])
translator.save(out)
print(translator.translate(["three hundred twenty-one"])[0].text)
