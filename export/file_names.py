"""The names of the files and folders that an export writes, for every runtime."""

PARITY_FILE = "parity.json"
SAVED_MODEL_FOLDER = "saved_model"  # a folder

# Files of a translator. The files over ids run on every onnxruntime; the files over text require
# onnxruntime-extensions.
GENERATE_FILE = "generate.onnx"
GENERATE_INT8_FILE = "generate.int8.onnx"
TRANSLATE_FILE = "translate.onnx"
TRANSLATE_INT8_FILE = "translate.int8.onnx"
SCORE_FILE = "score.onnx"
TOKENIZER_FILE = "tokenizer.onnx"
ENCODER_FILE = "encoder.onnx"
DECODER_STEP_FILE = "decoder_step.onnx"

# Folders of a translator for other libraries. Each has a description of the exported model.
CTRANSLATE2_FOLDER = "ctranslate2"
HUGGINGFACE_FOLDER = "huggingface"
EXPORTED = "tfk_transformer.json"

# Folders of a translator for browsers and Node.
WEB_FOLDER = "web"
WEB_INT8_FOLDER = "web_int8"
PAGE_DESCRIPTION = "model/model.json"  # in these folders: the description of the model

# Files of a classifier.
PROBABILITIES_FILE = "probabilities.onnx"
CLASSIFY_FILE = "classify.onnx"


def external_weights(name: str) -> str:
    """Return the name of the file that holds the weights of an ONNX file of more than 2 GB."""
    return f"{name}.data"
