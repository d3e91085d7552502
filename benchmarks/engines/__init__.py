"""Engines that translate, as `worker` describes them.

The engines of ids (`ctranslate2_model`, `onnx_file`) get `rows`, lists of source ids with the end
token, sorted by length, and the search: `beam_size`, `batch_size` and `max_length` in tokens, end
token included. They return the best hypothesis of each row without length penalty, as ids without
end token. The modules of peers need only NumPy and the peer.
"""
