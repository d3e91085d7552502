"""SentencePiece subwords: text to ids and back, in Python and inside TensorFlow graphs."""

import functools
import io
import itertools
import string
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.tokenizers.subword_regularization import SubwordSampler

MODEL_TYPES = ("unigram", "bpe", "char")
MAX_TRAINING_TEXTS = 2_000_000


class SubwordTokenizer:
    """A SentencePiece model with this project's ids: pad 0, start 1, end 2, unknown 3.

    Args:
        model: a serialized SentencePiece model.

    Raises:
        ValueError: if the bytes are no SentencePiece model, or its special ids differ.
    """

    def __init__(self, model: bytes):
        self.model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError(f"tokenizer model: expected a SentencePiece model, got {len(model)} bytes that are none ({error}).") from None
        p = self._processor
        ids = (p.pad_id(), p.bos_id(), p.eos_id(), p.unk_id())
        if ids != (PAD_ID, START_ID, END_ID, UNKNOWN_ID):
            raise ValueError(
                f"tokenizer model: expected ids 0, 1, 2, 3 for pad, start, end, unknown, got {ids}; train it with SubwordTokenizer.train."
            )

    @functools.cached_property
    def _sampler(self):
        """(power) -> the sampler, which remembers words."""
        return functools.cache(functools.partial(SubwordSampler, self._processor))

    @classmethod
    def train(
        cls, texts: Iterable[str], vocab_size: int = 8000, model_type: str = "unigram", byte_fallback: bool = False
    ) -> "SubwordTokenizer":
        """Learn a vocabulary from texts; both sides of a parallel corpus give a joint one.

        Args:
            texts: sentences; the first two million are used.
            vocab_size: pieces wanted, special ones included; text too plain for so many gives fewer ("unigram", "char").
            model_type: "unigram" (arXiv:1804.10959), "bpe" (arXiv:1508.07909) or "char", a piece a character.
            byte_fallback: whether characters that the texts lack are spelled as bytes, for which there are 256 pieces more; else
                they are the unknown piece.

        Raises:
            ValueError: for another `model_type`; if there is no text, or too little or too varied text for `vocab_size`.
        """
        if model_type not in MODEL_TYPES:
            raise ValueError(f"model_type: expected one of {', '.join(MODEL_TYPES)}, got '{model_type}'.")
        texts = iter(texts)
        first = next(texts, None)
        if first is None:
            raise ValueError("texts: expected sentences to learn a vocabulary from, got none.")
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=itertools.islice(itertools.chain([first], texts), MAX_TRAINING_TEXTS),
                model_writer=model,
                vocab_size=vocab_size,
                model_type=model_type,
                hard_vocab_limit=model_type == "bpe",
                character_coverage=1.0,
                byte_fallback=byte_fallback,
                pad_id=PAD_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                unk_id=UNKNOWN_ID,
                num_threads=2,  # fixed, since the sums over threads decide ties in the vocabulary
                minloglevel=2,
            )
        except RuntimeError as error:
            raise ValueError(f"vocab_size: {vocab_size} does not suit these texts; SentencePiece says: {error}") from None
        return cls(model.getvalue())

    @classmethod
    def load(cls, path) -> "SubwordTokenizer":
        """Read a model file."""
        return cls(Path(path).read_bytes())

    def save(self, path) -> None:
        """Write the model file."""
        Path(path).write_bytes(self.model)

    @property
    def vocab_size(self) -> int:
        """Number of pieces, special ones included."""
        return self._processor.vocab_size()

    def encode(self, texts: Sequence[str], sampling: float = 0.0, seed: int = 0) -> list[list[int]]:
        """Return the ids of each text, without start and end.

        Args:
            texts: sentences.
            sampling: draw among the ways to cut a text into pieces: the power that their probabilities are raised to
                ("subword regularization"), 0.3 for a mild variation, less for more. 0: the most probable way. Of "unigram" alone.
            seed: of what is drawn.

        Raises:
            ValueError: if pieces are to be drawn from a model of another type.
        """
        if not sampling:
            return self._processor.encode(list(texts))
        try:
            return self._sampler(sampling).encode(texts, seed)
        except RuntimeError:  # SentencePiece tells of its source code
            raise ValueError(f"sampling: expected a model of type 'unigram', got another, and sampling {sampling}; set it to 0.") from None

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of ids, which ends before the first end or padding; see `graph_decode`.

        Blanks of ASCII alone are stripped, as TensorFlow does: to Python, U+0085 is one too.
        """
        return [self._processor.decode([int(i) for i in itertools.takewhile(_is_text, row)]).strip(string.whitespace) for row in ids]

    def pieces_of(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each token of a row, as SentencePiece writes it: the word mark "▁", "</s>" for the end; not of padding."""
        return [self._processor.id_to_piece(int(i)) for i in ids if i != PAD_ID]

    def pieces(self) -> list[str]:
        """Return every piece's text as `decode` writes it: a blank for the word mark, nothing for control pieces.

        The piece of a single byte (of a model trained elsewhere, with `byte_fallback`) is that byte, escaped as PEP 383 has it.
        """
        texts = [self._text_of(i) for i in range(self.vocab_size)]
        texts[UNKNOWN_ID] = self._processor.decode([UNKNOWN_ID])
        return texts

    def _text_of(self, token: int) -> str:
        piece = self._processor.id_to_piece(token)
        if self._processor.is_byte(token):  # "<0xE4>"
            return bytes.fromhex(piece[3:5]).decode("utf-8", "surrogateescape")
        return "" if self._processor.is_control(token) else piece.replace("\u2581", " ")

    def graph_encode(self, texts):
        """Turn string texts (B,) into int32 ids (B, S) in the graph: tokens, end, padding."""
        import tensorflow as tf

        return self._encode_function(tf.convert_to_tensor(texts))

    def graph_pieces(self, ids):
        """Turn int32 ids (B, T) into the string pieces (B, T) of `pieces_of` in the graph, "" for padding."""
        import tensorflow as tf

        return tf.gather(tf.constant(["", *self.pieces_of(range(PAD_ID + 1, self.vocab_size))]), ids)

    def graph_decode(self, ids):
        """Turn int32 ids (B, T) into string texts (B,) in the graph, up to the first end; blanks around are stripped."""
        import tensorflow as tf

        return self._decode_function(tf.convert_to_tensor(ids))

    # Functions of their own, which graphs call: a SavedModel has each once, and with it the tokenizer, however many
    # signatures there are. The tokenizer is made inside: one made outside is owned by an eager kernel, which
    # `keras.utils.set_random_seed` drops.

    @functools.cached_property
    def _encode_function(self):
        import tensorflow as tf

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
        def encode(texts):
            return self._text_tokenizer().tokenize(texts).to_tensor(PAD_ID)

        return encode

    @functools.cached_property
    def _decode_function(self):
        import tensorflow as tf

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)])
        def decode(ids):
            ended = tf.cumsum(tf.cast(tf.less_equal(ids, END_ID), tf.int32), axis=1)
            rows = tf.ragged.boolean_mask(ids, tf.equal(ended, 0))
            return tf.strings.strip(self._text_tokenizer().detokenize(rows))

        return decode

    def _text_tokenizer(self):
        """Return the same model as a TensorFlow Text tokenizer, which gives int32 ids with the end token."""
        import tensorflow as tf
        import tensorflow_text

        return tensorflow_text.SentencepieceTokenizer(self.model, out_type=tf.int32, add_eos=True)


def _is_text(token) -> bool:
    return token > END_ID
