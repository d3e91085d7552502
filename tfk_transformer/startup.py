"""Start TensorFlow without its notes on the terminal, for programs whose output people read."""

import os
import sys


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
