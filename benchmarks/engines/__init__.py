"""The engines that benchmarks compare, each in its own process.

`firefox_engine.py` compares engines of texts (see `texts`), the others engines of ids. A module is
one engine. The class `Engine(path, threads, *options)` of an engine of ids has

    version           name and version of the engine
    prepare(rows)     converts lists of source ids (end token included) to the engine's inputs;
                      not timed
    translate(prepared, search)    converts these inputs to the engine's results; timed
    read(found)       converts the results to lists of target ids: only the best hypothesis, without
                      end token; not timed

The peers' modules need only numpy and the peer, not this project or TensorFlow.
"""
