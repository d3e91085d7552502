"""The files, folders and names on the hub that can be imported, and errors for others."""

import contextlib
import re
import zipfile
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from tfk_transformer.config.array_files import open_archive
from tfk_transformer.config.small_files import first_line

HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")  # OWNER/MODEL; ./MODEL is a path
# The files of a model other than its weights.
FILES = ("*.json", "*.spm", "*.model", "*_vocabulary.txt", "README.md")
# In order of preference: only the first pattern with files is used.
WEIGHT_PATTERNS = (
    "model.safetensors",
    "model-*.safetensors",
    "pytorch_model.bin",
    "pytorch_model-*.bin",
    "model.bin",  # of CTranslate2
)
NPZ = ".npz"
BINARY = ".bin"
MARIAN_VERSION = 1  # of .bin files, in their first eight bytes
CONFIG = "config.json"
GZIP = ".gz"
ARGOS_SUFFIX = ".argosmodel"
ARGOS_MODEL_FOLDER = "model"  # of a package of Argos Translate: a folder of CTranslate2
CTRANSLATE2_BINARY = "model.bin"
EXPECTED = (
    "a folder in Hugging Face's layout or of CTranslate2, "
    f"an {ARGOS_SUFFIX} file, or a folder or an {NPZ} or {BINARY} file of Marian"
)
MODEL_PART = "one file of a model; pass the folder with config.json, weights and tokenizers"
CHECKPOINT = (
    "a checkpoint of PyTorch; if it is of your own module, name the layout of its weights: "
    "--layout torch, annotated or seq2seq (docs/pytorch.md; other modules: "
    "Transformer.from_weights); else convert it to a folder of transformers with the script of its "
    "family, or to one of CTranslate2 with ct2-fairseq-converter or ct2-opennmt-py-converter, and "
    "pass that"
)
TENSORFLOW_CHECKPOINT = (
    "a checkpoint of TensorFlow; convert it with transformers' script of its family, "
    "convert_…_to_pytorch.py, and pass the folder that it writes"
)
# By the suffix of a file: the type and the remedy.
FILE_TYPES = {
    **dict.fromkeys((".json", ".model", ".safetensors", ".spm"), MODEL_PART),
    BINARY: MODEL_PART,
    **dict.fromkeys((".ckpt", ".pt", ".pth"), CHECKPOINT),
    **dict.fromkeys((".index", ".meta"), TENSORFLOW_CHECKPOINT),
    ".gguf": "weights for llama.cpp; pass the folder of the model that they were converted from",
    ".onnx": "an exported file; pass the folder of the model that it was exported from",
    **dict.fromkeys(
        (".7z", ".bz2", GZIP, ".tar", ".tgz", ".xz", ".zip"),
        f"an archive; unpack it, and pass the folder, or the {NPZ} file in it",
    ),
    **dict.fromkeys(
        (".h5", ".keras", ".msgpack", ".tflite"),
        "weights that are not of PyTorch; pass a folder with model.safetensors",
    ),
    **dict.fromkeys(
        (".yaml", ".yml"),
        f"settings or a vocabulary of Marian; pass the {NPZ} file of its model, and its "
        "SentencePiece models (vocab)",
    ),
}
# By texts in a pickle, of which one is enough: the type and the remedy.
CHECKPOINT_TYPES = {
    (b"fairseq", b"optimizer_history"): (
        "a checkpoint of fairseq; run ct2-fairseq-converter --model_path {path} --data_dir FOLDER "
        "--output_dir OUT, and pass OUT"
    ),
    (b"onmt", b"src_vocab"): (
        "a checkpoint of OpenNMT-py; run ct2-opennmt-py-converter --model_path {path} "
        "--output_dir OUT, and pass OUT"
    ),
}
OPUS_RELEASE = (
    "a release of OPUS-MT, whose ids are those of its vocab.yml; pass the folder of transformers "
    "that was converted from it, such as Helsinki-NLP/opus-mt-de-en"
)
MAX_PICKLE_BYTES = 2**22  # in which these texts are
# By a pattern of files in a folder that lacks others: the type and the remedy.
FOLDER_TYPES = {
    "source.model": "a bundle of this library, which needs no import",
    "saved_model.pb": "a SavedModel; import the model that it was exported from",
    f"*{NPZ}": "files of Marian; pass {path} and its SentencePiece models (vocab)",
    f"model*{BINARY}{GZIP}": "compressed files of Marian; run gunzip {folder}/*.gz",
    "target.*/.zarray": (
        "a checkpoint of T5X; convert it with convert_t5x_checkpoint_to_pytorch.py of "
        "transformers, and pass the folder that it writes"
    ),
    **dict.fromkeys(
        ("*.gguf", "*.index", "*.onnx", "*.pt", "*.zip"), "a folder with {path}, {type}"
    ),
    "adapter_config.json": "an adapter; merge it into its base model, and save the result",
    "tf_model.h5": "weights of TensorFlow only; save the model with PyTorch",
    "flax_model.msgpack": "weights of Flax only; save the model with PyTorch",
    "snapshots/*/config.json": "a folder of the hub's cache; pass {folder}",
    "*/config.json": "a folder of folders; pass {folder}",
}
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
BYTE_LEVEL = (
    "whose tokenizer merges bytes by the rules of GPT-2, which a SentencePiece model cannot; "
    "import a Pegasus, mBART or T5 model"
)
WORD_PIECES = (
    "whose tokenizer splits words by rules that a SentencePiece model cannot express; import a "
    "model of another family"
)
LONG_SOURCES = "which attends to parts of long sources; import a Pegasus or T5 model"
EXPERTS = "whose layers are mixtures of experts; import a dense model, such as NLLB-200 or T5"
ROTARY = "whose attention has rotary positions; import a T5 model"
# Encoder-decoders that are not imported, by model_type: the reason and the nearest way.
MODEL_TYPES = {
    **dict.fromkeys(("bart", "blenderbot", "led", "mvp"), BYTE_LEVEL),
    **dict.fromkeys(("blenderbot-small", "fsmt", "prophetnet", "xlm-prophetnet"), WORD_PIECES),
    **dict.fromkeys(("bigbird_pegasus", "longt5", "pegasus_x"), LONG_SOURCES),
    **dict.fromkeys(("nllb-moe", "switch_transformers"), EXPERTS),
    **dict.fromkeys(("t5gemma", "t5gemma2"), ROTARY),
    "encoder-decoder": "which joins models of two families; import a model of one family",
    "plbart": "which has BART's norms and mBART's languages; import an mBART or T5 model",
}
# Other models, by a pattern of model_type and architectures.
MODEL_PATTERNS = {
    "whisper|speech|audio|flamingo|transcribe|voxtral|wav|hubert|moonshine|ctc|asr|seamless": (
        "a model of speech; use an engine for speech, such as whisper.cpp"
    ),
    "vision|image|vit|clip|pix2struct|donut|florence": (
        "a model of pictures; use the library that it was made for"
    ),
    "causallm|lmhead|gpt": (
        "a decoder-only model; use an engine for these, such as llama.cpp, or import an "
        "encoder-decoder"
    ),
    "maskedlm|classification|questionanswering|pretraining|bert|electra|mpnet": (
        "an encoder-only model, which writes no text; import an encoder-decoder"
    ),
}


def is_hub_name(model: str | PathLike[str]) -> bool:
    """Return whether a model is a name on the hub and not a path."""
    return HUB_NAME.fullmatch(str(model)) is not None and not Path(model).exists()


def resolve_model_path(model: str | PathLike[str]) -> Path:
    """Return the local path of a model, whose files are downloaded if it is a name on the hub.

    `huggingface_hub` caches them; its settings `HF_HOME` and `HF_HUB_OFFLINE` apply.
    """
    if not is_hub_name(model):
        return Path(model)
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        for weights in WEIGHT_PATTERNS:
            folder = Path(
                huggingface_hub.snapshot_download(str(model), allow_patterns=[*FILES, weights])
            )
            if any(folder.glob(weights)):
                break
    except LocalEntryNotFoundError as error:  # offline, and not in the cache
        raise _unreachable_hub(model, error.__cause__ or error) from None
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise ValueError(
            f"model: {model} is not a folder, and the hub does not provide a model of that name: "
            f"{first_line(error)}"
        ) from None
    except Exception as error:  # of the HTTP client, such as the refusal of a proxy
        raise _unreachable_hub(model, error) from None
    return folder


def _unreachable_hub(model: str | PathLike[str], error: BaseException) -> ValueError:
    return ValueError(
        f"model: {model} is not a folder here, and the Hugging Face hub cannot be reached "
        f"({first_line(error).rstrip('.')}); check the connection, or pass a local folder."
    )


def is_marian_file(path: Path) -> bool:
    """Return whether a path is an .npz file, or a .bin file that begins as Marian's do."""
    if path.suffix != BINARY or not path.is_file():
        return path.suffix == NPZ and path.is_file()
    with path.open("rb") as file:
        return file.read(8) == MARIAN_VERSION.to_bytes(8, "little")


def is_marian_folder(path: Path) -> bool:
    """Return whether a path is a folder with files of Marian, and not in another layout."""
    if not path.is_dir() or (path / CONFIG).exists():
        return False
    candidates = (*path.glob(f"*{NPZ}"), *path.glob(f"*{BINARY}"))
    return any(map(is_marian_file, candidates))


def is_ctranslate2_folder(path: Path) -> bool:
    """Return whether a path is a folder of CTranslate2 or an unpacked package of Argos."""
    if is_marian_folder(path):
        return False
    folders = (path, path / ARGOS_MODEL_FOLDER)
    return any((folder / CTRANSLATE2_BINARY).is_file() for folder in folders)


def check_model_path(path: Path) -> None:
    """Refuse a path that is neither a folder nor a file that is imported."""
    if path.is_dir() or is_marian_file(path) or (path.suffix == ARGOS_SUFFIX and path.is_file()):
        return
    problem = _file_type(path) if path.exists() else "which does not exist; check the path"
    raise ValueError(f"model: expected {EXPECTED}, got {path}, {problem}.")


def folder_type(folder: Path) -> str:
    """Return the type of a folder and the remedy, after a colon, or an empty string."""
    for pattern, description in FOLDER_TYPES.items():
        if paths := sorted(folder.glob(pattern)):
            path = paths[0]
            return f": {description.format(path=path, folder=path.parent, type=_file_type(path))}"
    return ""


def model_type_problem(values: Mapping[str, Any]) -> str:
    """Return why the model of a config.json is not imported, and the nearest way, or ""."""
    model_type = str(values.get("model_type"))
    if model_type in MODEL_TYPES:
        return f", {MODEL_TYPES[model_type]}"
    names = f"{model_type} {values.get('architectures')}".lower()
    for pattern, description in MODEL_PATTERNS.items():
        if re.search(pattern, names):
            return f", {description}"
    return ""


def _file_type(path: Path) -> str:
    """Return the type of a file or folder that is not imported, by its content or suffix."""
    by_suffix = FILE_TYPES.get(path.suffix.lower(), "a file of another type; pass a folder")
    if not path.is_file():
        return by_suffix
    if zipfile.is_zipfile(path):
        return _archive_type(path) or by_suffix
    with path.open("rb") as file:
        start = file.read(MAX_PICKLE_BYTES)
    if start.startswith(b"GGUF"):
        return FILE_TYPES[".gguf"]
    return _checkpoint_type(path, start) if start.startswith(b"\x80") else by_suffix


def _archive_type(path: Path) -> str:
    """Return the type of a zip archive: a checkpoint, a release of OPUS-MT, or ""."""
    names: list[str] = []
    with contextlib.suppress(Exception), open_archive(path) as archive:  # its type is only a hint
        names = archive.namelist()
        for name in names:
            if name.endswith("/data.pkl"):
                with archive.open(name) as file:
                    return _checkpoint_type(path, file.read(MAX_PICKLE_BYTES))
    is_marian = any(name.endswith(NPZ) for name in names)
    if is_marian and any(name.endswith("vocab.yml") for name in names):
        return OPUS_RELEASE
    return f"a model of Marian; run unzip {path}, and pass the folder" if is_marian else ""


def _checkpoint_type(path: Path, pickle: bytes) -> str:
    """Return the type of a checkpoint by texts in its pickle, which is not loaded."""
    for texts, description in CHECKPOINT_TYPES.items():
        if any(text in pickle for text in texts):
            return description.format(path=path)
    return FILE_TYPES.get(path.suffix, CHECKPOINT)


def check_no_pointers(paths: Iterable[Path]) -> None:
    """Refuse files that `git clone` left as pointers of Git LFS."""
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
