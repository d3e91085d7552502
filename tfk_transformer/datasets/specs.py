"""From a data spec, one line of text, to a source of text pairs."""

from collections.abc import Callable

from tfk_transformer.config.record import nearest
from tfk_transformer.datasets.addition import addition_source
from tfk_transformer.datasets.number_source import number_source
from tfk_transformer.datasets.pairs import Source
from tfk_transformer.datasets.parallel_text import files_source, folder_source
from tfk_transformer.datasets.spelling import malformed


def load(spec: str) -> Source:
    """Return the source of text pairs that a spec names.

    - `numbers:en-de`: built-in number words, 60,000 pairs to train on; any two languages num2words knows.
    - `addition:2`: built-in sums of two numbers of so many digits, 2 to 9, for a decoder alone.
    - `files:SOURCE,TARGET`: two parallel UTF-8 files, plain or .gz, a sentence a line. They are one set of pairs, so each
      of the split names train, validation and test gives that set.
    - `folder:DIR:de-en`: `de.train.txt`, `en.train.txt` and so on, plain or .gz, the layout of TFDS' TranslateFolder.
    - `tfds:NAME:pt-en`: a TFDS dataset whose features are a Translation; NAME may hold a config and a version, such as
      `ted_hrlr_translate/pt_to_en:1.0.0`. TFDS downloads it into TFDS_DATA_DIR when the splits or pairs are first asked for.

    Raises:
        ValueError: for a spec that is malformed, or names languages, folders or datasets that do not exist.
        ImportError: if the spec needs a package that is not installed.
    """
    kind, colon, rest = spec.partition(":")
    if kind not in _KINDS:
        raise malformed(spec, f"unknown kind '{kind}'.{nearest(kind, _KINDS)}")
    if not rest:
        raise malformed(spec, f"nothing follows '{kind}{colon}'.")
    return _KINDS[kind](spec, rest)


def _tfds_source(spec: str, rest: str) -> Source:
    # Imported late: every other source must work where TFDS and TensorFlow are not installed.
    from tfk_transformer.datasets.tfds_source import TfdsSource

    return TfdsSource(spec, rest)


_KINDS: dict[str, Callable[[str, str], Source]] = {
    "numbers": number_source,
    "addition": addition_source,
    "files": files_source,
    "folder": folder_source,
    "tfds": _tfds_source,
}
