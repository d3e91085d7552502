"""Run SavedModels with TensorFlow and TensorFlow Text, without Keras."""

import functools
import json
from collections.abc import Container, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.search_settings import Rules, setting_rules
from tfk_transformer.config.small_files import one_line_error
from tfk_transformer.inference.base_classifier import BaseClassifier
from tfk_transformer.inference.base_translator import BaseTranslator
from tfk_transformer.inference.runtime import ONE_BATCH, UNCACHED, Outputs, Workload, has_encoder
from tfk_transformer.runtime_environment import check_process, check_tensorflow_text, install_line
from tfk_transformer.text.calibration import CONFIDENCE, Calibration
from tfk_transformer.text.languages import Languages

if TYPE_CHECKING:
    from tfk_transformer.inference.token_scoring import Tokenizers


class SavedModelRuntime:
    """The signatures of an exported SavedModel in a folder, and the constants that it returns."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = path
        self.model = read_saved_model(path)

    @functools.cached_property
    def max_length(self) -> int:
        """The model's limit in tokens."""
        return int(self.model.max_length())

    def run(self, name: str, inputs: Mapping[str, Any], workload: Workload = ONE_BATCH) -> Outputs:
        """Run a function; see `Runtime.run`."""
        import tensorflow as tf

        check_process()
        if name == "score_and_attend":
            return {**self.run("score_ids", inputs), **self.run("attention", inputs)}
        tensors = {key: tf.convert_to_tensor(values) for key, values in inputs.items()}
        outputs: Outputs = self.model.signatures[name](**tensors)
        return outputs

    def require(self, argument: str, *names: str) -> None:
        """Check that the SavedModel has signatures; see `Runtime.require`."""
        for name in names:
            if name not in self.model.signatures:
                raise ValueError(
                    f"{argument}: expected the signature '{name}', got "
                    f"{sorted(self.model.signatures)}; export the bundle again."
                )

    def preload(self) -> None:
        """Do nothing: a loaded SavedModel is in memory."""

    def concurrency(self, texts: int) -> int:
        """Return 1, because TensorFlow divides each batch among the processors."""
        return 1

    @functools.cached_property
    def _config(self) -> dict[str, Any]:
        return json.loads(self.model.config().numpy())

    @property
    def has_encoder(self) -> bool:
        """Whether the model has an encoder; see `TranslatorRuntime`."""
        return has_encoder(self._config["architecture"])

    @property
    def languages(self) -> Languages:
        """The languages of the model's configuration."""
        return Languages.of(self._config)

    @property
    def split_sentences(self) -> bool:
        """The option `split_sentences` of the model's configuration; earlier versions had none."""
        return self._config.get("split_sentences", True) is not False

    @functools.cached_property
    def rules(self) -> Rules:
        """The rules of the search settings."""
        if hasattr(self.model, "search"):
            return json.loads(self.model.search().numpy())
        # A SavedModel of an earlier version has only the settings of that version.
        vocab_size = self._config.get("target_vocab_size", self._config.get("vocab_size"))
        _, inputs = self.model.signatures["translate"].structured_input_signature
        rules = setting_rules(self.max_length, vocab_size)
        return {name: rule for name, rule in rules.items() if name in inputs}

    @functools.cached_property
    def calibration(self) -> Calibration | None:
        """The calibration of confidences."""
        if not hasattr(self.model, CONFIDENCE):
            return None
        return Calibration.from_json(json.loads(self.model.confidence().numpy()))

    @functools.cached_property
    def labels(self) -> list[str]:
        """The names of the classes."""
        return [label.decode("utf-8") for label in self.model.labels().numpy()]

    @functools.cached_property
    def characters(self) -> Container[str] | None:
        """The characters that the source vocabulary represents."""
        return self.tokenizers.source_tokenizer.characters()

    @functools.cached_property
    def pieces(self) -> Sequence[str]:
        """The text of each target token."""
        return [piece.decode("utf-8", "surrogateescape") for piece in self.model.pieces().numpy()]

    @functools.cached_property
    def tokenizers(self) -> "Tokenizers":
        """The tokenizers of both sides."""
        from tfk_transformer.inference.token_scoring import Tokenizers
        from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

        source = SubwordTokenizer(self.model.source_tokenizer().numpy())
        target = SubwordTokenizer(self.model.target_tokenizer().numpy())
        return Tokenizers(source, target, self.has_encoder)

    @property
    def cache_shapes(self) -> dict[str, Sequence[int | None]]:
        """The shapes of the KV cache that a decoding step reads, by name."""
        _, inputs = self.model.signatures["decoder_step"].structured_input_signature
        return {
            name: spec.shape.as_list() for name, spec in inputs.items() if name.startswith("cache_")
        }

    def without_cache(self) -> "SavedModelRuntime":
        """Raise an error: exported files have only cached decoding steps."""
        raise ValueError(UNCACHED)


def read_saved_model(path: str | PathLike[str]) -> Tensor:
    """Load a SavedModel, with TensorFlow Text's operators."""
    try:
        import tensorflow as tf
    except ImportError:
        raise ImportError(f"a SavedModel needs TensorFlow: {install_line('tensorflow')}") from None
    check_tensorflow_text()
    import tensorflow_text  # noqa: F401 (registers the operators)

    if not (Path(path) / "saved_model.pb").is_file():
        raise ValueError(f"SavedModel: expected a folder with saved_model.pb, got {path}.")
    check_process()
    with one_line_error(f"SavedModel: {path} does not load: "):
        return tf.saved_model.load(str(path))


class SavedModelTranslator(BaseTranslator):
    """Translate with an exported SavedModel; see `BaseTranslator` for methods.

    Args:
        path: its folder, or an open `SavedModelRuntime`.

    Raises:
        ValueError: if the folder is not the SavedModel of a translator that this project exported.
        ImportError: if TensorFlow or TensorFlow Text is not installed.
    """

    def __init__(self, path: str | PathLike[str] | SavedModelRuntime) -> None:
        super().__init__(_open(path, "translate"))


class SavedModelClassifier(BaseClassifier):
    """Classify with an exported SavedModel; arguments as of `SavedModelTranslator`."""

    def __init__(self, path: str | PathLike[str] | SavedModelRuntime) -> None:
        super().__init__(_open(path, "classify"))


def _open(path: str | PathLike[str] | SavedModelRuntime, required: str) -> SavedModelRuntime:
    runtime = path if isinstance(path, SavedModelRuntime) else SavedModelRuntime(path)
    signatures = runtime.model.signatures
    if required in signatures:
        return runtime
    advice = "export it again"
    if "translate" in signatures:
        advice = "it is a translator; open it with SavedModelTranslator"
    elif "classify" in signatures:
        advice = "it is a classifier; open it with SavedModelClassifier"
    raise ValueError(
        f"SavedModel: expected the signature '{required}', got {sorted(signatures)} in "
        f"{runtime.path}; {advice}."
    )
