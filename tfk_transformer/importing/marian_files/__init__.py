"""Models in Marian's own formats, with a SentencePiece model for each side.

The formats and the meaning of options are from Marian's source: src/common/binary.cpp and types.h,
src/models/transformer.h, src/rnn/cells.h, src/layers and src/graph, in marian-nmt/marian-dev and in
its fork browsermt/marian-dev, which made Firefox's students.

Imports `pipelines`, `models`, and the modules of this package's parent other than `model_import`.
"""
