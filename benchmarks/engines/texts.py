"""A process with an engine that translates texts.

python -m engines.texts MODULE PATH THREADS [OPTION …]

An engine's class `Engine(path, threads, *options)` has `version` and `translate(texts)`. This
module needs only the standard library, so that an engine can have a Python of its own.
"""

import time

from engines.worker import peak_megabytes, serve


def main() -> None:
    """Serve an engine of this package."""
    serve("engines", _run)


def _run(engine, texts: list, one_by_one: bool) -> dict:
    """Translate, and return the processor seconds of all threads."""
    groups = [[text] for text in texts] if one_by_one else [texts]
    started = time.process_time()
    translations = [text for group in groups for text in engine.translate(group)]
    seconds = time.process_time() - started
    return {"seconds": seconds, "peak_megabytes": peak_megabytes(), "texts": translations}


if __name__ == "__main__":
    main()
