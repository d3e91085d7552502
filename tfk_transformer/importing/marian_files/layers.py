"""The arrays of a Marian model by their names in a `Transformer`."""

from collections.abc import Mapping

import numpy as np

from tfk_transformer.config.model_options import TransformerConfig
from tfk_transformer.importing.hugging_face.bart_layers import Array, layers_of
from tfk_transformer.importing.hugging_face.model_folder import Arrays
from tfk_transformer.importing.marian_files.options import MarianOptions
from tfk_transformer.importing.vocabulary import Vocabulary

MARIAN_TABLE = "Wemb"
MARIAN_OUTPUT = "decoder_ff_logit_out"
# The arrays of a layer by their names in Hugging Face's layout of MarianMT.
MARIAN_NAMES = {
    "self_attn.q_proj.weight": "self_Wq",
    "self_attn.q_proj.bias": "self_bq",
    "self_attn.k_proj.weight": "self_Wk",
    "self_attn.k_proj.bias": "self_bk",
    "self_attn.v_proj.weight": "self_Wv",
    "self_attn.v_proj.bias": "self_bv",
    "self_attn.out_proj.weight": "self_Wo",
    "self_attn.out_proj.bias": "self_bo",
    "self_attn_layer_norm.weight": "self_Wo_ln_scale",
    "self_attn_layer_norm.bias": "self_Wo_ln_bias",
    "encoder_attn.q_proj.weight": "context_Wq",
    "encoder_attn.q_proj.bias": "context_bq",
    "encoder_attn.k_proj.weight": "context_Wk",
    "encoder_attn.k_proj.bias": "context_bk",
    "encoder_attn.v_proj.weight": "context_Wv",
    "encoder_attn.v_proj.bias": "context_bv",
    "encoder_attn.out_proj.weight": "context_Wo",
    "encoder_attn.out_proj.bias": "context_bo",
    "encoder_attn_layer_norm.weight": "context_Wo_ln_scale",
    "encoder_attn_layer_norm.bias": "context_Wo_ln_bias",
    "fc1.weight": "ffn_W1",
    "fc1.bias": "ffn_b1",
    "fc2.weight": "ffn_W2",
    "fc2.bias": "ffn_b2",
    "final_layer_norm.weight": "ffn_ffn_ln_scale",
    "final_layer_norm.bias": "ffn_ffn_ln_bias",
}
# The norm after the recurrent unit of a decoder layer, which has no self-attention.
RECURRENT_NAMES = {
    "self_attn_layer_norm.weight": "rnn_ffn_ln_scale",
    "self_attn_layer_norm.bias": "rnn_ffn_ln_bias",
}
PROJECTIONS = ("_Wo", "_bo")  # suffixes of the output projections of attentions
# The weights of a recurrent unit: kernels (D, D), and a bias (D,).
UNIT_KERNELS = {"kernel": "W", "forget_kernel": "Wf"}
UNIT_BIASES = {"forget_bias": "bf"}


def layer_arrays(
    file: Arrays, options: MarianOptions, config: TransformerConfig
) -> dict[str, Array]:
    """Return the arrays of all layers.

    Raises:
        ValueError: if the configuration has more or larger layers than the file.
    """
    decoder_names = {**MARIAN_NAMES, **(RECURRENT_NAMES if options.is_recurrent else {})}
    names = {"encoder": MARIAN_NAMES, "decoder": decoder_names}
    arrays = {
        ours: _marian_array(array, names)
        for ours, array in layers_of(file, config).items()
        if not (options.is_recurrent and "/self_attention/" in ours)
    }
    if options.is_recurrent:
        for index in range(config.decoder_layers):
            arrays |= _unit_arrays(index, config.model_dim)
    return arrays


def _marian_array(array: Array, names: Mapping[str, Mapping[str, str]]) -> Array:
    """Return the array of a layer in Marian's file, from the array in Hugging Face's layout.

    Marian's kernels have the shape (inputs, outputs) instead of (outputs, inputs), and its vectors
    have the shape (1, width).
    """
    _, stack, _, index, part = array.name.split(".", 4)
    name = f"{stack}_l{int(index) + 1}_{names[stack][part]}"
    if len(array.shape) == 1:
        return Array(name, (1, *array.shape), lambda vector: array.convert(vector[0]))
    return Array(name, array.shape[::-1], lambda kernel: array.convert(kernel.T))


def _unit_arrays(index: int, width: int) -> dict[str, Array]:
    """Return the arrays of the recurrent unit of a decoder layer."""
    ours = f"decoder/layer_{index}/ssru"
    theirs = f"decoder_l{index + 1}_rnn"
    kernels = {
        f"{ours}/{name}": Array(f"{theirs}_{part}", (width, width))
        for name, part in UNIT_KERNELS.items()
    }
    biases = {
        f"{ours}/{name}": Array(f"{theirs}_{part}", (1, width), np.ravel)
        for name, part in UNIT_BIASES.items()
    }
    return {**kernels, **biases}


def with_identity_projections(file: Arrays, arrays: Mapping[str, Array]) -> Arrays:
    """Return a file of a model without output projections of attentions, with identities as these.

    Marian ignores arrays of these names where `transformer-no-projection` is set.

    Args:
        file: the file.
        arrays: the arrays of all layers.
    """
    projections = {
        array.name: array.shape for array in arrays.values() if array.name.endswith(PROJECTIONS)
    }

    def read(name: str) -> np.ndarray:
        if name not in projections:
            return file.read(name)
        if name.endswith(PROJECTIONS[0]):
            return np.eye(projections[name][0], dtype="float32")
        return np.zeros(projections[name], "float32")

    return Arrays(file.path, {**file.shapes, **projections}, read)


def table_arrays(
    file: Arrays, options: MarianOptions, source: Vocabulary, target: Vocabulary
) -> dict[str, Array]:
    """Return the arrays of embeddings and of the output projection."""

    def table_array(vocabulary: Vocabulary, name: str, rows: int) -> Array:
        return Array(
            name,
            (rows, options.dim_emb),
            lambda table: np.append(table, np.zeros_like(table[:1]), axis=0)[vocabulary.rows],
        )

    source_rows, target_rows = options.dim_vocabs
    shared = [MARIAN_TABLE, MARIAN_TABLE]
    names = shared if options.shared_input_table else ["encoder_Wemb", "decoder_Wemb"]
    arrays = {"source_embedding/embeddings": table_array(source, names[0], source_rows)}
    if options.tie_embeddings != "all":
        arrays["target_embedding/embeddings"] = table_array(target, names[1], target_rows)
    if options.tie_embeddings == "none":
        output = table_array(target, f"{MARIAN_OUTPUT}_Wt", target_rows)
        kernel = output._replace(convert=lambda table: output.convert(table).T)
        if f"{MARIAN_OUTPUT}_W" in file.shapes:  # of earlier versions of Marian
            kernel = Array(
                f"{MARIAN_OUTPUT}_W",
                output.shape[::-1],
                lambda transposed: output.convert(transposed.T).T,
            )
        arrays["output/kernel"] = kernel
    return arrays


def output_bias(rows: int) -> Array:
    """Return the array of the output bias, without a row for padding."""
    return Array(f"{MARIAN_OUTPUT}_b", (1, rows), lambda bias: np.append(bias, np.float32(0)))
