"""Write a CTranslate2 model whose tokens are the ids, written out, so that engines are compared
without tokenizers.
"""

from pathlib import Path

from tfk_transformer.data.shortlist import Shortlist
from tfk_transformer.export.to_libraries.ctranslate2_files import write_ctranslate2


def convert(
    model, out: Path, quantization: str = "float32", shortlist: Shortlist | None = None
) -> None:
    """Write a CTranslate2 model as the export does.

    Args:
        model: a built `Transformer`.
        out: of the model; a new folder.
        quantization: of the weights in the file: "float32", "int8" and so on.
        shortlist: is written as a vocabulary map.

    Raises:
        ImportError: if CTranslate2 is not installed.
    """
    sizes = (model.config.source_vocab_size, model.config.target_vocab_size)
    source_tokens, target_tokens = ([str(i) for i in range(size)] for size in sizes)
    write_ctranslate2(
        model,
        source_tokens,
        target_tokens,
        out,
        None if quantization == "float32" else quantization,
        shortlist,
    )
