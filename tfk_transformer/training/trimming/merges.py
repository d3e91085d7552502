"""The merges of byte pair encoding (arXiv:1508.07909) that lead to a piece."""

import itertools

from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

Piece = ModelProto.SentencePiece
MERGED = (Piece.NORMAL, Piece.USER_DEFINED, Piece.UNUSED)  # SentencePiece merges to unused pieces


class Merges:
    """The merges of a SentencePiece model.

    Args:
        model: the model. Only a model of type "bpe" has merges.
    """

    def __init__(self, model: ModelProto) -> None:
        is_bpe = model.trainer_spec.model_type == TrainerSpec.BPE
        pieces = model.pieces if is_bpe else ()
        self._texts = {
            token: piece.piece for token, piece in enumerate(pieces) if piece.type in MERGED
        }
        self._ids = {text: token for token, text in self._texts.items()}
        self._scores = {text: pieces[token].score for text, token in self._ids.items()}

    def ids_before(self, token: int) -> set[int]:
        """Return the ids of the pieces that are merged on the way to a piece.

        A text is segmented by the same merges as long as it has the pieces of all of them. No merge
        crosses the ends of a piece of the result, so the merges inside it are the merges of the
        piece as a text of its own.
        """
        symbols = list(self._texts.get(token, ""))
        merged = set()
        while len(symbols) > 1:
            pairs = ["".join(pair) for pair in itertools.pairwise(symbols)]
            scores = [self._scores.get(pair, float("-inf")) for pair in pairs]
            position = max(range(len(pairs)), key=scores.__getitem__)  # the first of the best
            if pairs[position] not in self._ids:
                break
            merged.add(self._ids[pairs[position]])
            symbols[position : position + 2] = [pairs[position]]
        return merged - {token}
