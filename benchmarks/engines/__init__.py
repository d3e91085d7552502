"""The engines that benchmarks/decoding.py compares, each in a process of its own.

A module here is one engine. Its class `Engine(path, threads, *options)` has

    version           what runs, in words
    prepare(rows)     lists of source ids (end token included) -> what the engine reads; not timed
    translate(prepared, search)    what is timed: the engine's own way from such sources to its results
    read(found)       results -> lists of target ids, best hypothesis alone, without end token; not timed

The peers' modules need numpy and the peer, and nothing of this project or TensorFlow.
"""
