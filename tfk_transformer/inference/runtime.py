"""Runtimes: objects that run the functions of Keras models, SavedModels and ONNX files by name.

A translator or a classifier runs on any of them, so each feature is written only once.
"""

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tfk_transformer.config.search_settings import Rules
from tfk_transformer.text.calibration import Calibration
from tfk_transformer.text.languages import Languages

if TYPE_CHECKING:
    from tfk_transformer.inference.token_scoring import Tokenizers  # needs sentencepiece

Outputs = Mapping[str, Any]  # arrays by name, of NumPy or of the runtime

# The ValueError of `without_cache`.
UNCACHED = (
    "use_cache: expected True, got False; exported files hold only the cached decoding step. Open "
    "the bundle to decode without a cache."
)
MAX_SMALL_BATCH = 64  # maximum number of hypotheses in a small batch; see `Workload`


class Workload(NamedTuple):
    """The batches of a call. A runtime uses them to choose the threads and the memory of a run."""

    concurrency: int = 1  # the number of batches that run at the same time
    small: bool = False  # whether no batch has more than `MAX_SMALL_BATCH` hypotheses


ONE_BATCH = Workload()


def are_small(texts: int, batch_size: int, beam_size: int) -> bool:
    """Return whether the batches of a search over a number of texts are small; see `Workload`."""
    return min(texts, batch_size) * beam_size <= MAX_SMALL_BATCH


def has_encoder(architecture: str) -> bool:
    """Return whether a model of an architecture that a file names has an encoder."""
    return architecture != "decoder"


class Runtime(Protocol):
    """The functions of a model, with the names, inputs and outputs of `signatures`."""

    @property
    def max_length(self) -> int:
        """The model's limit in tokens, of a source and of a target."""

    def run(self, name: str, inputs: Mapping[str, Any], workload: Workload = ONE_BATCH) -> Outputs:
        """Run a function on arrays by name. NumPy and another run can read its outputs."""

    def require(self, argument: str, *names: str) -> None:
        """Raise a ValueError if an argument needs functions that the model lacks."""

    def preload(self) -> None:
        """Read the files of all functions, which may then change or be removed."""

    def concurrency(self, texts: int) -> int:
        """Return the number of batches that should run at the same time, for a number of texts."""


class TranslatorRuntime(Runtime, Protocol):
    """A runtime that translates or scores."""

    @property
    def has_encoder(self) -> bool:
        """Whether the model has an encoder; a decoder-only model reads a prompt."""

    @property
    def languages(self) -> Languages:
        """The languages of the model's configuration."""

    @property
    def split_sentences(self) -> bool:
        """The option `split_sentences` of the model's configuration."""

    @property
    def rules(self) -> Rules:
        """The rules of the search settings."""

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of confidences. None: translations have no confidence."""

    @property
    def tokenizers(self) -> "Tokenizers":
        """The tokenizers of both sides."""

    @property
    def characters(self) -> Container[str] | None:
        """The characters that the source vocabulary represents. None: all."""

    @property
    def pieces(self) -> Sequence[str]:
        """The text of each target token, see `SubwordTokenizer.pieces`."""

    @property
    def cache_shapes(self) -> Mapping[str, Sequence[Any]]:
        """The shapes of the KV cache that a decoding step reads, by name."""

    def without_cache(self) -> "TranslatorRuntime":
        """Return a runtime without a KV cache, or raise a ValueError with `UNCACHED`."""


class ClassifierRuntime(Runtime, Protocol):
    """A runtime that classifies."""

    @property
    def labels(self) -> list[str]:
        """The names of the classes, in the model's order."""
