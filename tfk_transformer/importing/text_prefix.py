"""A text before every source, such as "translate English to German: ", as a part of a model."""

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from tfk_transformer.config.words import shorten
from tfk_transformer.importing.imported import Imported
from tfk_transformer.importing.vocabulary import text_pieces
from tfk_transformer.tokenizers.subword_tokenizer import SubwordTokenizer

WORD_MARK = "\u2581"  # of SentencePiece


def with_text_prefix(imported: Imported, prefix: str) -> Imported:
    """Return a model that puts the tokens of a text before every source.

    Results are the same as with the text, and a blank if the tokenizer marks words, typed before
    each source.

    Args:
        imported: the model.
        prefix: the text.

    Raises:
        ValueError: if the prefix has no tokens, or the model cannot have a prefix of this kind.
    """
    config = imported.config
    ids = SubwordTokenizer(imported.source_model).encode([prefix])[0]
    problem = ""
    if not ids:
        problem = "a text with tokens"
    elif config.source_additions:
        problem = f"none for {imported.family}, which puts a language before or after the source"
    elif config.positions == "learned":
        problem = f"none for {imported.family}, whose positions have no row for it"
    elif not _segments_apart(ModelProto.FromString(imported.source_model)):
        problem = "none for a tokenizer whose pieces span words; type it before each source"
    if problem:
        raise ValueError(f"source_text_prefix: expected {problem}, got {shorten(repr(prefix))}.")
    return imported._replace(config=config.replace(source_prefix=tuple(ids)))


def _segments_apart(model: ModelProto) -> bool:
    """Return whether a prefix and a text always have the same tokens, together and apart."""
    normalizer = model.normalizer_spec
    ordinary = [piece for piece in model.pieces if piece.type == ModelProto.SentencePiece.NORMAL]
    if not normalizer.escape_whitespaces:
        return len(ordinary) <= 1  # the spare piece of a model of bytes
    if model.trainer_spec.treat_whitespace_as_suffix or not normalizer.add_dummy_prefix:
        return False
    return all(WORD_MARK not in piece.lstrip(WORD_MARK) for piece in text_pieces(model))
