"""Open whatever translates, and either kind of bundle, told apart by what they are."""

from pathlib import Path

from tfk_transformer.export.to_saved_model.serving import newest_version


def open_bundle(path):
    """Open a bundle: a `Translator` or a `TextClassifier`, by what its configuration says.

    Raises:
        ValueError: if it is no bundle, or files are missing or broken.
    """
    from tfk_transformer.pipelines.bundle import CLASSIFIER, kind_of
    from tfk_transformer.pipelines.text_classifier import TextClassifier
    from tfk_transformer.pipelines.translator import Translator

    return (TextClassifier if kind_of(path) == CLASSIFIER else Translator).load(path)


def open_scorer(path):
    """Open a bundle, a SavedModel folder or `score.onnx`; only the first two load TensorFlow.

    Returns:
        A scorer with `score(sources, targets)` and `score_tokens(sources, targets)`.

    Raises:
        ValueError: if there is nothing at `path`, or nothing of this project that scores.
    """
    path = Path(path)
    if path.suffix == ".onnx" or path.is_file():
        from tfk_transformer.export.runtime.onnx_scorer import OnnxScorer

        return OnnxScorer(path)
    return open_translator(path)


def open_translator(path):
    """Open a bundle, a SavedModel folder or an ONNX file; only the first two load TensorFlow.

    Of a folder of versions, as TensorFlow Serving takes it, the newest is opened.

    Returns:
        A translator with `translate(texts, **settings)`.

    Raises:
        ValueError: if there is nothing at `path`, or nothing of this project.
    """
    path = Path(path)
    if path.suffix == ".onnx" or path.is_file():
        from tfk_transformer.export.runtime.onnx_translator import OnnxTranslator

        return OnnxTranslator(path)
    path = newest_version(path) or path
    if (path / "saved_model.pb").is_file():
        from tfk_transformer.export.runtime.saved_model_translator import SavedModelTranslator

        return SavedModelTranslator(path)
    if (path / "config.json").is_file():
        from tfk_transformer.pipelines.translator import Translator

        return Translator.load(path)
    got = f"a folder without any of these files ({path})" if path.is_dir() else f"{path}, which is not there"
    raise ValueError(f"MODEL: expected a bundle (with config.json), a SavedModel folder (with saved_model.pb) or an .onnx file, got {got}.")
