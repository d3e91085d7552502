"""Folders of models, downloaded from the Hugging Face hub if the user passes a name."""

import re
from os import PathLike
from pathlib import Path

from tfk_transformer.importing.hugging_face.model_folder import first_line

NAME = re.compile(r"[\w.-]+/[\w.-]+")  # OWNER/MODEL
FILES = (
    "*.json",
    "*.spm",
    "*.model",
    "*_vocabulary.txt",
    "README.md",
)  # files of a model other than its weights
# In order of preference: only the first pattern with files is used.
WEIGHT_PATTERNS = (
    "model.safetensors",
    "model-*.safetensors",
    "pytorch_model.bin",
    "pytorch_model-*.bin",
    "model.bin",  # of CTranslate2
)


def is_name(model: str | PathLike[str]) -> bool:
    """Return whether a model is a name on the hub and not the path of a file or folder."""
    return NAME.fullmatch(str(model)) is not None and not Path(model).exists()


def resolve_model_path(model: str | PathLike[str]) -> Path:
    """Return the local path of a model: its own path, or the folder downloaded from the hub.

    Only the files that an import reads are downloaded, and only once. `huggingface_hub` caches
    them; its settings `HF_HOME` and `HF_HUB_OFFLINE` apply.

    Raises:
        ValueError: if the model is a name of the hub and cannot be downloaded.
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
        raise ValueError(
            f"model: {model} is not a folder, and the hub does not provide a model of that name: "
            f"{first_line(error)}"
        ) from None
    return folder
