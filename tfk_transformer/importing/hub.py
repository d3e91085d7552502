"""Folders of models, downloaded from the Hugging Face hub where a name is given instead."""

import re
from os import PathLike
from pathlib import Path

NAME = re.compile(r"[\w.-]+/[\w.-]+")  # OWNER/MODEL
FILES = ("*.json", "*.spm", "*.model", "README.md")  # of a model, besides its weights
# The first that there are.
WEIGHT_PATTERNS = (
    "model.safetensors",
    "model-*.safetensors",
    "pytorch_model.bin",
    "pytorch_model-*.bin",
)


def is_name(model: str | PathLike[str]) -> bool:
    """Return whether a model is named as on the hub, and no file or folder is there."""
    return NAME.fullmatch(str(model)) is not None and not Path(model).exists()


def located(model: str | PathLike[str]) -> Path:
    """Return the path of a model: the given one, or, if nothing is there and it is a name of the
    hub, the downloaded folder.

    Only the files that an import reads are downloaded, once; `huggingface_hub` keeps them in its
    cache, whose place and whether the network may be used are its own settings (`HF_HOME`,
    `HF_HUB_OFFLINE`).

    Raises:
        ValueError: if the hub does not give the model.
        ImportError: if huggingface_hub is not installed.
    """
    if not is_name(model):
        return Path(model)
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    try:
        for weights in WEIGHT_PATTERNS:
            folder = Path(
                huggingface_hub.snapshot_download(str(model), allow_patterns=[*FILES, weights])
            )
            if any(folder.glob(weights)):
                break
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise ValueError(
            f"model: {model} is no folder, and the hub does not give a model of that name: {reason}"
        ) from None
    return folder
