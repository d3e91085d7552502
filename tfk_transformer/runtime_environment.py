"""The processors that a program may use, and TensorFlow started without its notes, for programs whose output people read."""

import os
import sys


def usable_processors() -> int:
    """Return how many processors this process may run on, which job schedulers limit; quotas of time, as of containers, do not count."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def load_tensorflow() -> None:
    """Import TensorFlow with standard error closed: notes written before its log starts ignore every log level."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        import tensorflow  # noqa: F401
        import tensorflow_text  # noqa: F401
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def load_backend() -> None:
    """Do so unless another backend of Keras is asked for."""
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        load_tensorflow()
