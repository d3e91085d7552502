"""SentencePiece tokenizers: encode texts as ids and decode ids, in Python and in TensorFlow."""

import functools
import hashlib
import io
import itertools
import re
import string
import textwrap
import unicodedata
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import sentencepiece

from tfk_transformer.array_types import Tensor
from tfk_transformer.config.small_files import one_line_error, read_small_file
from tfk_transformer.constants import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.runtime_environment import has_tensorflow_text
from tfk_transformer.tokenizers import token_vocabulary
from tfk_transformer.tokenizers.subword_regularization import SubwordSampler

if TYPE_CHECKING:
    import tensorflow_text
    from sentencepiece.sentencepiece_model_pb2 import TrainerSpec

MODEL_TYPES = ("unigram", "bpe", "char", "word")
MAX_TRAINING_TEXTS = 2_000_000
MAX_TRAINING_BYTES = 4192  # of a text; the default of SentencePiece
# A model of a million pieces has 20 MB, and one of 256,000 has 5 MB.
MAX_SENTENCEPIECE_BYTES = 3 * 2**23
MAX_LINE_FEEDS = 2**22  # a piece has two bytes of this value, the tags of its fields, or a few more
UNASSIGNED = ("Cn", "Co", "Cs")
# Rules of normalization that change nothing: the bytes of a trie, which are its root and zeros, so
# that no character is found in it, and the replacements of characters.
NO_NORMALIZATION = b"".join(
    ((1024).to_bytes(4, "little"), (1 << 10).to_bytes(4, "little"), bytes(1020), b"\0")
)


def _parts(text: str) -> list[str]:
    """Return the parts of a text that are short enough for SentencePiece, which skips longer ones.

    Texts are cut at blanks, where no piece crosses them.
    """
    width = MAX_TRAINING_BYTES // 4  # characters; each has at most 4 bytes of UTF-8
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_on_hyphens=False)


class RepresentedCharacters(Container[str]):
    """The characters that a vocabulary represents, checked when they are asked for."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        self._processor = processor
        self._encode = functools.cache(processor.encode)

    def __contains__(self, character: object) -> bool:
        return UNKNOWN_ID not in self._encode(str(character))

    def as_text(self) -> str:
        """Return the represented characters in the order of their code points."""
        pieces = map(self._processor.id_to_piece, range(self._processor.vocab_size()))
        in_pieces = set(itertools.chain.from_iterable(pieces))
        characters = [
            character
            for character in map(chr, range(0x20, 0x110000))
            if character in in_pieces or unicodedata.category(character) not in UNASSIGNED
        ]
        rows = zip(characters, self._processor.encode(characters), strict=True)
        return "".join(character for character, ids in rows if UNKNOWN_ID not in ids)


def load_sentencepiece(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """Return the processor of a SentencePiece model; wrap it into `one_line_error`."""
    if len(model) > MAX_SENTENCEPIECE_BYTES or model.count(b"\n") > MAX_LINE_FEEDS:
        raise ValueError("too many pieces or bytes")
    return sentencepiece.SentencePieceProcessor(model_proto=model)


class SubwordTokenizer:
    """A SentencePiece model.

    Its special ids are 0 for padding, 1 for start, 2 for end and 3 for unknown.

    Args:
        model: a serialized SentencePiece model.

    Raises:
        ValueError: if the bytes are not a SentencePiece model, or if its special ids differ.
    """

    def __init__(self, model: bytes):
        self.model = model
        with one_line_error(
            f"tokenizer model: expected a SentencePiece model, got {len(model)} bytes that are not "
            "one (",
            ").",
        ):
            self._processor = load_sentencepiece(model)
        processor = self._processor
        ids = (processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id())
        if ids != (PAD_ID, START_ID, END_ID, UNKNOWN_ID):
            raise ValueError(
                "tokenizer model: expected ids 0, 1, 2, 3 for pad, start, end, unknown, got "
                f"{ids}; train it with SubwordTokenizer.train."
            )

    @functools.cached_property
    def _sampler(self) -> Callable[[float], SubwordSampler]:
        """Function (power) -> the sampler, which caches the segmentations of words."""
        return functools.cache(functools.partial(SubwordSampler, self._processor))

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int = 8000,
        model_type: str = "unigram",
        byte_fallback: bool = False,
        tokens: str | None = None,
    ) -> "SubwordTokenizer":
        """Learn a vocabulary from texts.

        Pass both sides of a parallel corpus for a joint vocabulary.

        Args:
            texts: sentences; the first two million are used, or parts of long texts.
            vocab_size: number of pieces, including the special pieces. Small texts give fewer
                pieces.
            model_type: "unigram" (arXiv:1804.10959), "bpe" (arXiv:1508.07909), "char", which has
                a piece for each character, or "word".
            byte_fallback: whether characters that are not in `texts` are encoded as bytes, with 256
                additional pieces. If False, they become the unknown piece.
            tokens: the rule of whole tokens instead of pieces; see `from_tokens`. The other
                arguments except `vocab_size` are not used.

        Raises:
            ValueError: for an unknown `model_type`, if there are no texts, or if `vocab_size` has
                too few pieces for their characters.
        """
        if model_type not in MODEL_TYPES:
            raise ValueError(
                f"model_type: expected one of {', '.join(MODEL_TYPES)}, got '{model_type}'."
            )
        texts = filter(str.strip, texts)
        if tokens is not None:
            used = itertools.islice(texts, MAX_TRAINING_TEXTS)
            learned, samples = token_vocabulary.learn_tokens(used, tokens, vocab_size)
            return cls.from_tokens(learned, tokens, samples=samples)
        first = next(texts, None)
        if first is None:
            raise ValueError("texts: expected sentences to learn a vocabulary from, got none.")
        parts = itertools.chain.from_iterable(map(_parts, itertools.chain([first], texts)))
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=itertools.islice(parts, MAX_TRAINING_TEXTS),
                model_writer=model,
                vocab_size=vocab_size,
                model_type=model_type,
                hard_vocab_limit=False,
                character_coverage=1.0,
                byte_fallback=byte_fallback,
                pad_id=PAD_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                unk_id=UNKNOWN_ID,
                num_threads=2,  # fixed, since the vocabulary can depend on the number of threads
                minloglevel=2,
            )
        except RuntimeError as error:
            if sizes := re.search(r"smaller than required_chars. \d+ vs (\d+)", str(error)):
                raise ValueError(
                    f"vocab_size: expected at least {sizes[1]}, the special pieces and one for "
                    f"each character of the texts, got {vocab_size}."
                ) from None
            raise ValueError(
                f"vocab_size: {vocab_size} does not suit these texts; SentencePiece reports: "
                f"{error}"
            ) from None
        return cls(model.getvalue())

    @classmethod
    def from_tokens(
        cls,
        tokens: Sequence[str],
        rule: str = token_vocabulary.CHARACTERS,
        special: Sequence[str] = (),
        samples: Iterable[str] = (),
    ) -> "SubwordTokenizer":
        """Return the tokenizer of a list of whole tokens, such as a trained model's vocabulary.

        Args:
            tokens: all tokens. Their ids are 4, 5, … in this order, without the special ones.
            rule: how texts are split: "characters"; "words", which spaces separate; a regular
                expression, whose matches are the tokens; or "longest", the longest token that the
                rest of the text begins with. Only the texts of words are joined with spaces.
            special: the names in `tokens` of padding, start, end and unknown, in this order. Their
                ids are 0 to 3; see `token_order`. Default: `tokens` has none of them.
            samples: texts to check. A file has no regular expression: a vocabulary that lacks
                tokens of a text splits it into shorter ones.

        Raises:
            ValueError: if a token occurs twice or is not one by the rule, or a sample would be
                split otherwise than by the rule.
        """
        if special:
            order = cls.token_order(tokens, special)[len(special) :]
            tokens = [tokens[number] for number in order]
        names = special or token_vocabulary.SPECIAL
        tokenizer = cls(token_vocabulary.token_model(tokens, rule, names))
        token_vocabulary.check_split(tokenizer._processor, rule, samples)
        return tokenizer

    @classmethod
    def of_ids(cls, vocab_size: int) -> "SubwordTokenizer":
        """Return the tokenizer whose texts are ids: "17 4 9"."""
        return cls.from_tokens([str(token) for token in range(UNKNOWN_ID + 1, vocab_size)], "words")

    @staticmethod
    def token_order(tokens: Sequence[str], special: Sequence[str]) -> list[int]:
        """Return the index in `tokens` of each id of `from_tokens(tokens, special=special)`.

        With it, the tables (V, D) of a model whose ids are these indices become ours:
        `table[order]`.
        """
        index = {token: number for number, token in enumerate(tokens)}
        missing = [name for name in special if name not in index]
        if missing or len(set(special)) != len(token_vocabulary.SPECIAL):
            raise ValueError(
                "special: expected the names of the tokens for padding, start, end and unknown, "
                f"all of them in tokens, got {', '.join(special)}"
                f"{f', without {missing[0]} in tokens' if missing else ''}; add what is missing to "
                "tokens, and a row to the tables of the model."
            )
        others = (number for number, token in enumerate(tokens) if token not in special)
        return [*(index[name] for name in special), *others]

    @classmethod
    def load(cls, path: str | Path) -> "SubwordTokenizer":
        """Read a model file."""
        return cls(read_small_file(path, MAX_SENTENCEPIECE_BYTES))

    def save(self, path: str | Path) -> None:
        """Write the model file."""
        Path(path).write_bytes(self.model)

    @property
    def vocab_size(self) -> int:
        """The number of pieces, including the special pieces."""
        return int(self._processor.vocab_size())

    @property
    def model_type(self) -> str:
        """The type of the SentencePiece model: one of `MODEL_TYPES`."""
        return self._trainer.ModelType.Name(self._trainer.model_type).lower()

    @functools.cached_property
    def _trainer(self) -> "TrainerSpec":
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        return ModelProto.FromString(self.model).trainer_spec

    @functools.cached_property
    def graph_model(self) -> bytes:
        """The model for graphs.

        TensorFlow Text and onnxruntime-extensions print a line whenever they load a model that has
        no rules of normalization. Here, such a model has rules, which change nothing.
        """
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        proto = ModelProto.FromString(self.model)
        if proto.normalizer_spec.precompiled_charsmap:
            return self.model
        proto.normalizer_spec.precompiled_charsmap = NO_NORMALIZATION
        return bytes(proto.SerializeToString())

    @property
    def byte_fallback(self) -> bool:
        """Whether characters that are in no piece are encoded as bytes."""
        return any(map(self._processor.is_byte, range(self.vocab_size)))

    def characters(self) -> RepresentedCharacters | None:
        """Return the characters that the vocabulary represents. None: all, or tokens of several."""
        has_tokens = self.model_type == "char" and self._trainer.user_defined_symbols
        if self.byte_fallback or has_tokens or self.model_type == "word":
            return None
        return RepresentedCharacters(self._processor)

    def encode(self, texts: Sequence[str], sampling: float = 0.0, seed: int = 0) -> list[list[int]]:
        """Return the ids of each text, without start and end tokens.

        Args:
            texts: sentences.
            sampling: if above 0, the segmentation of each text is drawn (subword regularization,
                only for "unigram"). Probabilities are raised to this power: 0.3 varies
                segmentations mildly, lower values vary them more. 0: the most probable
                segmentation.
            seed: seed of the draws.

        Raises:
            ValueError: if `sampling` is above 0 and the model is not of type "unigram".
        """
        if not sampling:
            ids: list[list[int]] = self._processor.encode(list(texts))
            return ids
        try:
            return self._sampler(sampling).encode(texts, seed)
        except RuntimeError:  # the message of SentencePiece is about its source code
            raise ValueError(
                f"sampling: expected a model of type 'unigram', got '{self.model_type}' and "
                f"sampling {sampling}; set sampling to 0."
            ) from None

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of ids, up to the first end token or padding.

        Only ASCII whitespace around a text is stripped, as in `graph_decode`; Python would also
        strip U+0085 and others.
        """
        rows = (itertools.takewhile(lambda token: token > END_ID, row) for row in ids)
        texts = (self._processor.decode([int(token) for token in row]) for row in rows)
        return [text.strip(string.whitespace) for text in texts]

    def text_ids(self) -> list[int]:
        """Return the ids whose pieces are text: no special tokens, bytes, control or unused pieces.

        Texts are segmented into these.
        """
        processor = self._processor
        others = (processor.is_byte, processor.is_control, processor.is_unused)
        ids = range(UNKNOWN_ID + 1, self.vocab_size)
        return [token for token in ids if not any(is_other(token) for is_other in others)]

    def pieces_of(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each token except padding.

        Pieces are as in SentencePiece, with "▁" for blanks and "</s>" for the end.
        """
        return [self._processor.id_to_piece(int(i)) for i in ids if i != PAD_ID]

    def ids_of(self, pieces: Iterable[str]) -> list[int]:
        """Return the id of each piece, in the form of `pieces_of`.

        A text that is not a piece has the unknown id.
        """
        return [int(self._processor.piece_to_id(piece)) for piece in pieces]

    def pieces(self) -> list[str]:
        """Return the text of every piece as in `decode`.

        The word mark "▁" is a blank. Control pieces are empty. The text of a single byte (of a
        model with `byte_fallback`) is that byte with the error handler "surrogateescape" (PEP 383).
        """
        texts = []
        for token in range(self.vocab_size):
            text: str = self._processor.id_to_piece(token).replace("\u2581", " ")
            if self._processor.is_byte(token):  # "<0xE4>"
                text = bytes.fromhex(text[3:5]).decode("utf-8", "surrogateescape")
            texts.append("" if self._processor.is_control(token) else text)
        texts[UNKNOWN_ID] = self._processor.decode([UNKNOWN_ID])
        return texts

    def graph_encode(self, texts: Tensor) -> Tensor:
        """Encode texts, string (B,), as ids, int32 (B, S), in TensorFlow.

        A row has the tokens of a text, the end token and padding. Without TensorFlow Text, this and
        `graph_decode` call Python, and cannot be saved.
        """
        import tensorflow as tf

        return self._encode_function(tf.convert_to_tensor(texts))

    def graph_pieces(self, ids: Tensor) -> Tensor:
        """Return the pieces, string (B, T), of ids, int32 (B, T), in TensorFlow.

        They are the same as in `pieces_of`, with "" for padding.
        """
        import tensorflow as tf

        pieces = self.pieces_of(range(PAD_ID + 1, self.vocab_size))
        return tf.gather(tf.constant(["", *pieces]), ids)

    def graph_decode(self, ids: Tensor) -> Tensor:
        """Decode ids, int32 (B, T), as texts, string (B,), in TensorFlow.

        A text ends at the first end token or padding. Whitespace around it is stripped.
        """
        import tensorflow as tf

        return self._decode_function(tf.convert_to_tensor(ids))

    # These are separate TensorFlow functions so that a SavedModel contains each of them, and its
    # tokenizer, only once, even if it has several signatures. They create the tokenizer themselves:
    # a tokenizer created outside would belong to an eager kernel, which
    # `keras.utils.set_random_seed` discards.

    @functools.cached_property
    def _encode_function(self) -> Callable[[Tensor], Tensor]:
        import tensorflow as tf

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
        def encode(texts: Tensor) -> Tensor:
            if has_tensorflow_text():
                return self._text_tokenizer().tokenize(texts).to_tensor(PAD_ID)
            ids = tf.numpy_function(self._encode_padded, [texts], tf.int32, stateful=False)
            return tf.ensure_shape(ids, [None, None])

        return encode

    def _encode_padded(self, texts: np.ndarray) -> np.ndarray:
        """Encode UTF-8 texts (B,) as ids, int32 (B, S), as in `graph_encode`."""
        rows = [[*row, END_ID] for row in self.encode([text.decode() for text in texts])]
        ids = np.full((len(rows), max(map(len, rows), default=0)), PAD_ID, np.int32)
        for row, tokens in zip(ids, rows, strict=True):
            row[: len(tokens)] = tokens
        return ids

    @functools.cached_property
    def _decode_function(self) -> Callable[[Tensor], Tensor]:
        import tensorflow as tf

        def decode_utf8(ids: np.ndarray) -> np.ndarray:
            return np.array([text.encode() for text in self.decode(ids.tolist())], object)

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)])
        def decode(ids: Tensor) -> Tensor:
            if not has_tensorflow_text():
                texts = tf.numpy_function(decode_utf8, [ids], tf.string, stateful=False)
                return tf.ensure_shape(texts, [None])
            ended = tf.cumsum(tf.cast(tf.less_equal(ids, END_ID), tf.int32), axis=1)
            rows = tf.ragged.boolean_mask(ids, tf.equal(ended, 0))
            return tf.strings.strip(self._text_tokenizer().detokenize(rows))

        return decode

    def _text_tokenizer(self) -> "tensorflow_text.SentencepieceTokenizer":
        """Return the model as a TensorFlow Text tokenizer. Its int32 ids include the end token."""
        import tensorflow as tf
        import tensorflow_text

        # Kernels with the same name share one model in a process: without a unique name, a target
        # tokenizer would decode with the source's model.
        name = f"sentencepiece_{hashlib.sha256(self.model).hexdigest()[:16]}"
        return tensorflow_text.SentencepieceTokenizer(
            self.graph_model, out_type=tf.int32, add_eos=True, name=name
        )


def check_protocol(tokenizer: object, argument: str) -> None:
    """Refuse an object without the methods and properties of `SubwordTokenizer` and its model."""
    if isinstance(tokenizer, SubwordTokenizer):
        return  # some properties read the whole vocabulary
    members = vars(SubwordTokenizer).items()
    names = [name for name, value in members if not isinstance(value, (classmethod, staticmethod))]
    needed = ["model", *(name for name in names if not name.startswith("_"))]
    if missing := [name for name in needed if not hasattr(tokenizer, name)]:
        more = f" and {len(missing) - 2} more" if len(missing) > 2 else ""
        raise ValueError(
            f"{argument}: expected a SubwordTokenizer or an object with its methods, got "
            f"{type(tokenizer).__name__} without {', '.join(missing[:2])}{more}; make one of its "
            "tokens with SubwordTokenizer.from_tokens, or keep it and pass ids, to a "
            "Translator(model) without tokenizers."
        )
