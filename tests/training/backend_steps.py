"""Train with the backend that `KERAS_BACKEND` names, and print what was computed as JSON.

    python tests/training/backend_steps.py few

The argument is `few` for the steps of the short tests, or `all`.

`losses`: the losses of 8 steps on number words. `weighted`: for each way to weigh tokens and each
way to compute a step, the loss, the metrics and the gradient of the output weights. `outputs` and
`logits`: the decoder outputs and predictions, equal in all of these steps, from which
`test_backends.py` computes the same in float64.
"""

import itertools
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import tfk_transformer as tfk
from tfk_transformer.datasets.numbers import spell
from tfk_transformer.training.towers import fit_in_towers

STEPS = 8
ROWS, LENGTH, VOCAB_SIZE = 6, 7, 11
# A trace of two towers takes seconds. In few steps, each reduction and each loss has one.
TOWER_STEPS = {
    ("mean_with_sample_weight", "tokens", "towers"),
    ("sum_over_batch_size", "rows and classes", "joined towers"),
}
MORE_TOWER_STEPS = {("mean_with_sample_weight", "tokens", "joined towers")}
# The reductions and weights of the short tests.
FEW = [("sum_over_batch_size", "rows and classes"), ("mean_with_sample_weight", "tokens")]
# JAX compiles a step sooner than its operations one by one.
EAGER = keras.backend.backend() != "jax"
CLASS_WEIGHT = {4: 3.0, 7: 0.25, 10: 0.0}


def set_weights(model, seed=0):
    """Give a model the same weights under every backend."""
    random = np.random.default_rng(seed)
    for name, weight in sorted(model.named_weights.items()):
        mean = 1.0 if name.endswith("gamma") else 0.0
        weight.assign(random.normal(mean, 0.1, weight.shape))


def number_losses():
    """Return the losses of steps on number words, from the same weights and batches."""
    pairs = [(spell(number, "en"), spell(number, "de")) for number in range(300)]
    texts = [text for pair in pairs for text in pair]
    tokenizer = tfk.SubwordTokenizer.train(texts, vocab_size=200, model_type="bpe")
    options = {"batch_tokens": 1024, "max_length": 48, "few_shapes": True}
    batches = tfk.TokenBatches(pairs, "train", tokenizer, tokenizer, **options, shuffle=True)
    sizes = {"source_vocab_size": tokenizer.vocab_size, "target_vocab_size": tokenizer.vocab_size}
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    config = tfk.TransformerConfig.preset("tiny", **sizes, **layers, model_dim=32, dropout=0.0)
    model = tfk.Transformer(config)
    model.build()
    set_weights(model)
    model.compile(
        keras.optimizers.Adam(tfk.schedules.InverseSquareRoot(1e-2, warmup_steps=30)),
        tfk.losses.LabelSmoothedCrossentropy(0.1),
    )
    model.optimizer.build(model.trainable_variables)  # otherwise the step is traced twice
    # Batches of one shape, so that one step is traced.
    first, *others = batches.batches(0)
    equal = [first, *(batch for batch in others if batch[1].shape == first[1].shape)]
    steps = itertools.islice(itertools.cycle(equal), STEPS)
    return [model.fit(x, y, len(y), shuffle=False, verbose=0).history["loss"][0] for x, y in steps]


def batch():
    """Return inputs, labels with padding, and weights of rows and of tokens."""
    random = np.random.default_rng(1)
    labels = random.integers(3, VOCAB_SIZE, (ROWS, LENGTH)).astype("int32")
    labels[np.arange(LENGTH) >= random.integers(2, LENGTH + 1, (ROWS, 1))] = 0
    target = np.where(labels, np.pad(labels, [(0, 0), (1, 0)], constant_values=1)[:, :-1], 0)
    rows = np.array([1.0, 0.0, 0.0, 0.5, 2.0, 1.5], "float32")
    tokens = random.uniform(0, 2, (ROWS, LENGTH)).astype("float32")
    return {"source": labels, "target": target}, labels, {"rows": rows, "tokens": tokens}


class Apart(tfk.losses.LabelSmoothedCrossentropy):
    """The same loss, which is not joined with the projection."""


def small_model():
    """Return the model that every weighted step begins with."""
    sizes = {"source_vocab_size": VOCAB_SIZE, "target_vocab_size": VOCAB_SIZE}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "tie_embeddings": "none", "dropout": 0.0}
    config = tfk.TransformerConfig(**sizes, **layers, model_dim=8, ff_dim=8, num_heads=2)
    model = tfk.Transformer(config)
    model.build()
    set_weights(model)
    return model


def forward():
    """Return the decoder outputs and the predictions that a step begins with."""
    model, (inputs, *_) = small_model(), batch()
    arrays = {"outputs": model.decode(inputs).output, "logits": model(inputs)}
    return {name: keras.ops.convert_to_numpy(array).tolist() for name, array in arrays.items()}


def step(loss, fitting, towers, run_eagerly):
    """Run one step of gradient descent by `fit`, and return what it computed."""
    model, (inputs, labels, _) = small_model(), batch()
    model.compile(
        keras.optimizers.SGD(1.0),
        loss,
        metrics=[tfk.metrics.Perplexity()],
        weighted_metrics=[
            tfk.metrics.TokenAccuracy(),
            tfk.metrics.Perplexity(name="weighted_perplexity"),
        ],
        run_eagerly=EAGER,
    )
    fit_in_towers(model, towers)
    weights = {name: fitting[name] for name in fitting if name == "sample_weight"}
    evaluated = model.evaluate(
        inputs, labels, batch_size=ROWS, verbose=0, return_dict=True, **weights
    )
    before = np.array(model.projection.kernel)
    model.run_eagerly = run_eagerly  # only JAX also traces the evaluation
    history = model.fit(inputs, labels, batch_size=ROWS, verbose=0, **fitting).history
    return {
        "gradient": (before - keras.ops.convert_to_numpy(model.projection.kernel)).tolist(),
        "fitted": {name: float(values[0]) for name, values in history.items()},
        "evaluated": {name: float(value) for name, value in evaluated.items()},
    }


def weighted_steps(few):
    """Return the results of `step` by its name: the weights, the reduction and the way."""
    _, _, weights = batch()
    fittings = {
        "none": {},
        "rows": {"sample_weight": weights["rows"]},
        "tokens": {"sample_weight": weights["tokens"]},
        "classes": {"class_weight": CLASS_WEIGHT},
        "rows and classes": {"sample_weight": weights["rows"], "class_weight": CLASS_WEIGHT},
    }
    averages = ["sum_over_batch_size", "mean_with_sample_weight"]
    cases = [*itertools.product(averages[:1], fittings), (averages[1], "tokens"), ("sum", "tokens")]
    ways = {"apart": (Apart, 1)}
    traced = "apart"
    if keras.backend.backend() == "tensorflow":
        ways |= {"joined": (tfk.losses.LabelSmoothedCrossentropy, 1), "towers": (Apart, 2)}
        ways |= {"joined towers": (tfk.losses.LabelSmoothedCrossentropy, 2)}
        traced = "joined"
    if few:
        cases, tower_steps = FEW, TOWER_STEPS
    else:
        tower_steps = TOWER_STEPS | MORE_TOWER_STEPS
    return {
        f"{name}, {reduction}, {way}": step(
            loss(0.1, reduction=reduction),
            fittings[name],
            towers,
            # A trace takes seconds.
            run_eagerly=EAGER and towers == 1 and (name, way) != ("rows and classes", traced),
        )
        for (reduction, name), (way, (loss, towers)) in itertools.product(cases, ways.items())
        if towers == 1 or (reduction, name, way) in tower_steps
    }


if __name__ == "__main__":
    few = sys.argv[1] == "few"
    computed = {"losses": number_losses(), "weighted": weighted_steps(few), **forward()}
    print(json.dumps(computed))
