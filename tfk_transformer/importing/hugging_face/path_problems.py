"""Errors for files and folders that cannot be imported: their type, and the remedy."""

from collections.abc import Iterable
from pathlib import Path

NPZ = ".npz"
ARGOS_SUFFIX = ".argosmodel"
ARGOS_MODEL_FOLDER = "model"  # of a package of Argos Translate: a folder of CTranslate2
CTRANSLATE2_BINARY = "model.bin"
EXPECTED = (
    "a folder in Hugging Face's layout or of CTranslate2, "
    f"an {ARGOS_SUFFIX} file, or an {NPZ} file of Marian"
)
MODEL_PART = "one file of a model; pass the folder with config.json, weights and tokenizers"
# By the suffix of a file: the type and the remedy.
FILE_TYPES = {
    **dict.fromkeys((".json", ".model", ".safetensors", ".spm"), MODEL_PART),
    ".bin": f"{MODEL_PART}, or, for a binary file of Marian, the {NPZ} file that it was made from",
    **dict.fromkeys(
        (".ckpt", ".pt", ".pth"),
        "a checkpoint of PyTorch; convert it to a folder of transformers with the script of its "
        "family, or to one of CTranslate2 with ct2-fairseq-converter or "
        "ct2-opennmt-py-converter, and pass that",
    ),
    ".gguf": "weights for llama.cpp; pass the folder of the model that they were converted from",
    ".onnx": "an exported file; pass the folder of the model that it was exported from",
    **dict.fromkeys(
        (".7z", ".bz2", ".gz", ".tar", ".tgz", ".xz", ".zip"),
        f"an archive; unpack it, and pass the folder, or the {NPZ} file in it",
    ),
    **dict.fromkeys(
        (".h5", ".keras", ".msgpack", ".tflite"),
        "weights that are not of PyTorch; pass a folder with model.safetensors",
    ),
}
# By a pattern of files in a folder that lacks others: the type and the remedy.
FOLDER_TYPES = {
    "source.model": "a bundle of this library, which needs no import",
    "saved_model.pb": "a SavedModel; import the model that it was exported from",
    f"*{NPZ}": "files of Marian; pass {path} and its SentencePiece models (vocab)",
    "*.gguf": "weights for llama.cpp; import the model that they were converted from",
    "adapter_config.json": "an adapter; merge it into its base model, and save the result",
    "tf_model.h5": "weights of TensorFlow only; save the model with PyTorch",
    "flax_model.msgpack": "weights of Flax only; save the model with PyTorch",
    "snapshots/*/config.json": "a folder of the hub's cache; pass {folder}",
    "*/config.json": "a folder of folders; pass {folder}",
}
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def is_ctranslate2_folder(path: Path) -> bool:
    """Return whether a path is a folder of CTranslate2 or an unpacked package of Argos."""
    folders = (path, path / ARGOS_MODEL_FOLDER)
    return any((folder / CTRANSLATE2_BINARY).is_file() for folder in folders)


def check_model_path(path: Path) -> None:
    """Refuse a path that is neither a folder nor a file that is imported.

    Raises:
        ValueError: with the type of the file, and the remedy.
    """
    if path.is_dir() or (path.is_file() and path.suffix in (NPZ, ARGOS_SUFFIX)):
        return
    if path.exists():
        problem = FILE_TYPES.get(path.suffix.lower(), "a file of another type; pass a folder")
    else:
        problem = "which does not exist; check the path"
    raise ValueError(f"model: expected {EXPECTED}, got {path}, {problem}.")


def missing_files_error(folder: Path, missing: Iterable[str]) -> ValueError:
    """Return the error for a folder without some files, with the type that others indicate."""
    got = f"{folder} without {', '.join(missing)}{folder_type(folder)}"
    return ValueError(f"folder: expected a model in Hugging Face's layout, got {got}.")


def folder_type(folder: Path) -> str:
    """Return the type of a folder and the remedy, after a colon, or an empty string."""
    for pattern, description in FOLDER_TYPES.items():
        if paths := sorted(folder.glob(pattern)):
            return f": {description.format(path=paths[0], folder=paths[0].parent)}"
    return ""


def check_no_pointers(paths: Iterable[Path]) -> None:
    """Refuse files that `git clone` left as pointers of Git LFS.

    Raises:
        ValueError: with the names of these files.
    """
    pointers = []
    for path in paths:
        with path.open("rb") as file:
            if file.read(len(LFS_POINTER)) == LFS_POINTER:
                pointers.append(path)
    if pointers:
        raise ValueError(
            "folder: expected the files themselves, got pointers of Git LFS: "
            f"{', '.join(map(str, pointers))}; run `git lfs pull` in {pointers[0].parent}."
        )
