"""A small classifier that tells English from German number words, as files."""

from pathlib import Path

from run_wide import made_once


def classifier_folder() -> Path:
    """Return a folder with its bundle, `languages`, and its exported files, `languages-files`."""
    return made_once("classifier", write_classifier)


def classifier_paths() -> dict[str, Path]:
    """Return the paths that `classify` takes, by kind."""
    folder = classifier_folder()
    return {
        "bundle": folder / "languages",
        "saved_model": folder / "languages-files" / "saved_model",
        "onnx": folder / "languages-files" / "classify.onnx",
    }


def write_classifier(folder: Path) -> None:
    """Train the classifier for seconds, save it and export it."""
    import keras
    import numpy as np

    import tfk_transformer as tfk
    from tfk_transformer.datasets.numbers import spell

    keras.utils.set_random_seed(0)
    texts = [spell(number, language) for language in ("en", "de") for number in range(200)]
    tokenizer = tfk.SubwordTokenizer.train(texts, vocab_size=80)
    sizes = {"vocab_size": tokenizer.vocab_size, "num_classes": 2, "max_length": 32}
    sizes |= {"encoder_layers": 1, "ff_dim": 64}
    model = tfk.EncoderClassifier(tfk.ClassifierConfig.preset("tiny", **sizes))
    model.compile(
        keras.optimizers.Adam(3e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    model.fit(tokenizer.graph_encode(texts), np.repeat([0, 1], 200), epochs=4, verbose=0)
    classifier = tfk.TextClassifier(model, tokenizer, ["en", "de"], probes=texts)
    folder.mkdir()
    classifier.save(folder / "languages")
    tfk.export(classifier, folder / "languages-files", ["saved_model", "onnx"])
