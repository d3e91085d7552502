"""ONNX files with the metadata that tells where they come from."""

import json
from pathlib import Path

import onnx_ir as ir

import tfk_transformer
from tfk_transformer.config import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from tfk_transformer.export.conversion import OPSET, quietly
from tfk_transformer.export.runtime import METADATA


def save_onnx(models: dict[str, ir.Model], folder: Path, config, **more) -> None:
    """Write ONNX files.

    Args:
        models: by file name.
        folder: where to.
        config: of the Keras model.
        **more: metadata, such as the parity figures.
    """
    ids = {"pad": PAD_ID, "start": START_ID, "end": END_ID, "unknown": UNKNOWN_ID}
    metadata = {"version": tfk_transformer.__version__, "config": config.model_dump(), "ids": ids, "opset": OPSET, **more}
    for name, model in models.items():
        model.metadata_props[METADATA] = json.dumps(metadata, sort_keys=True)
        with quietly("onnx_ir.serde"):  # which warns that a SentencePiece model is no UTF-8; the operator wants it so
            ir.save(model, folder / name)
