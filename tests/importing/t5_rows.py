"""The rows of an imported vocabulary of the T5 family."""

from tfk_transformer.importing.hugging_face.model_folder import read_optional_json
from tfk_transformer.importing.hugging_face.t5 import T5Config, _vocabulary
from tfk_transformer.importing.hugging_face.t5_tokens import read_t5_tokens


def rows_of(folder):
    """The row of each id in the tables of a folder."""
    values = read_optional_json(folder / "config.json")
    pieces, model, _ = read_t5_tokens(folder, values)
    return _vocabulary(pieces, model, T5Config(**values)).rows
