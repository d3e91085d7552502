"""The files of an export: their purposes, and the command that runs them."""

from pathlib import Path
from typing import Any

from tfk_transformer.export import file_names

PURPOSES = {
    file_names.TRANSLATE_FILE: (
        "text to text: onnxruntime with onnxruntime-extensions, `tfk-transformer translate`"
    ),
    file_names.GENERATE_FILE: (
        "token ids to token ids: every onnxruntime, also in browsers and Node"
    ),
    file_names.SCORE_FILE: "log-probabilities of given translations: `tfk-transformer score`",
    file_names.TOKENIZER_FILE: "text to token ids, for streaming",
    file_names.ENCODER_FILE: "encoder, for streaming",
    file_names.DECODER_STEP_FILE: "one decoding step, for streaming",
    file_names.CLASSIFY_FILE: (
        "text to label: onnxruntime with onnxruntime-extensions, `tfk-transformer classify`"
    ),
    file_names.PROBABILITIES_FILE: "token ids to probabilities: every onnxruntime",
    file_names.SAVED_MODEL_FOLDER: (
        "text to text: TensorFlow, TensorFlow Serving, `tfk-transformer translate`"
    ),
    file_names.CTRANSLATE2_FOLDER: "folder for ctranslate2.Translator",
    file_names.HUGGINGFACE_FOLDER: "folder for transformers",
    file_names.WEB_FOLDER: "page that translates in the browser; also for Node: `npx`",
    file_names.WEB_INT8_FOLDER: "the same page; smaller and faster, with 8-bit weights",
    file_names.PARITY_FILE: "how closely the files agree with the Keras model",
}
RUNNABLE = (  # files for `translate` or `classify`, in order of preference
    file_names.TRANSLATE_FILE,
    file_names.with_profile(file_names.TRANSLATE_FILE, "int8"),
    file_names.CLASSIFY_FILE,
    file_names.SAVED_MODEL_FOLDER,
)


def describe_files(out: Path) -> dict[str, dict[str, Any]]:
    """Return the size in bytes and the purpose of each file and folder of an export, by name."""
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(out.iterdir()):
        size = sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
        files[path.name] = {"bytes": size, "purpose": _purpose(path.name)}
    return files


def run_line(out: Path, command: str, text: str | None) -> list[str] | None:
    """Return the words of a command line that runs a file of an export, or None.

    None means that no command runs any of the files.

    Args:
        out: the folder of the export.
        command: "translate" or "classify".
        text: an input text, or None.
    """
    name = next((name for name in RUNNABLE if (out / name).exists()), None)
    if name is None:
        return None
    return ["tfk-transformer", command, str(out / name), *([text] if text else [])]


def _purpose(name: str) -> str:
    """Return the purpose of a file.

    `translate.int8.onnx` is a smaller `translate.onnx`, and NAME.data contains weights of NAME.
    """
    if name.endswith(".data"):
        return f"weights of {name.removesuffix('.data')}; keep both in one folder"
    if (portable := name.replace(".int8.onnx", ".onnx")) != name:
        return f"{PURPOSES.get(portable, portable)}; smaller, with 8-bit weights"
    return PURPOSES.get(name, "")
