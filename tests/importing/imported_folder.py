"""The weights of an imported folder, the rows of its texts, and the message of a refusal."""

import json

import numpy as np
import pytest
import sentencepiece

from tfk_transformer.importing.ctranslate2_folder.binary_file import open_binary
from tfk_transformer.importing.model_import import import_model


def weights_of(translator):
    return {name: np.asarray(array) for name, array in translator.model.named_weights.items()}


def refused(path, **options):
    """The message of a refusal, which is one line."""
    with pytest.raises(ValueError) as error:
        import_model(path, **options)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 2000
    return str(error.value)


def rows_of_texts(translator, folder, model, vocabulary, table, texts):
    """The rows that CTranslate2 reads of the pieces of texts, and those of the translator's ids."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / model))
    tokens = json.loads((folder / vocabulary).read_text())
    rows = {token: row for row, token in reversed(list(enumerate(tokens)))}
    expected = open_binary(folder / "model.bin").read(table)
    pieces = [piece for text in processor.encode(texts, out_type=str) for piece in text]
    ids = [i for row in translator.source_tokenizer.encode(texts) for i in row]
    embeddings = weights_of(translator)["source_embedding/embeddings"]
    return expected[[rows.get(piece, rows["<unk>"]) for piece in pieces]], embeddings[ids]
