"""Folders that CTranslate2's converter makes of transformers' models with random weights."""

from multilingual_folder import pieces_of, trained

D, H, F, POSITIONS = 24, 4, 29, 47
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
LANGUAGES = {
    "M2M100": ["__cs__", "__de__", "__en__"],
    "NLLB": ["deu_Latn", "eng_Latn", "zho_Hans"],
    "mBART-50": ["cs_CZ", "de_DE", "en_XX"],
    "mBART-25": ["cs_CZ", "de_DE", "en_XX"],
}
# The class of the family's models, and the values of its configuration.
BART_SIZES = {
    "d_model": D,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": H,
    "decoder_attention_heads": H,
    "encoder_ffn_dim": F,
    "decoder_ffn_dim": F,
    "max_position_embeddings": POSITIONS,
    "scale_embedding": True,
}
OLD_MBART = {"normalize_before": True, "normalize_embedding": True, "add_final_layer_norm": True}
T5_SIZES = {
    "d_model": D,
    "d_kv": 5,
    "d_ff": F,
    "num_layers": 1,
    "num_decoder_layers": 2,
    "num_heads": H,
    "relative_attention_num_buckets": 6,
    "relative_attention_max_distance": 9,
    "decoder_start_token_id": 0,
}
FAMILIES = {
    "M2M100": ("M2M100", BART_SIZES),
    "NLLB": ("M2M100", {**BART_SIZES, "activation_function": "relu"}),
    "mBART-50": ("MBart", {**BART_SIZES, **OLD_MBART, "tokenizer_class": "MBart50Tokenizer"}),
    "mBART-25": ("MBart", {**BART_SIZES, **OLD_MBART}),
    "Pegasus": ("Pegasus", {**BART_SIZES, "normalize_before": True, "normalize_embedding": False}),
    "T5": ("T5", {**T5_SIZES, "feed_forward_proj": "relu"}),
    "T5 1.1": ("T5", {**T5_SIZES, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}


SEEDS = {"M2M100": 6, "mBART-25": 7, "mBART-50": 7}


class Tokenizer:
    """What the converter reads of a tokenizer."""

    unk_token, eos_token = "<unk>", "</s>"
    special_tokens_map = {}

    def __init__(self, tokens, pad="<pad>", bos="<s>", madeup=0):
        self.tokens, self.pad_token, self.bos_token = tokens, pad, bos
        self.unk_token_id = tokens.index("<unk>")
        self.num_madeup_words = madeup

    def get_vocab(self):
        return {token: row for row, token in enumerate(self.tokens)}

    def convert_ids_to_tokens(self, row):
        return self.tokens[row]


def tokens_of(family, model):
    """The tokens of a family by row."""
    if family in LANGUAGES:
        return [*SPECIAL, *pieces_of(model), *LANGUAGES[family]]
    if family == "Pegasus":
        masks = ["<mask_1>", "<mask_2>", *(f"<unk_{i}>" for i in range(2, 9))]
        return ["<pad>", "</s>", *masks, "<unk>", *pieces_of(model)]
    return ["<pad>", "</s>", "<unk>", *pieces_of(model)]


def write_converted(folder, family, model=None, quantization=None, spread=0.5):
    """Write a folder, and return it. Its random weights have a standard deviation of `spread`."""
    import torch
    import transformers
    from ctranslate2.converters import TransformersConverter

    class Converter(TransformersConverter):
        def load_model(self, *arguments, **options):
            return network

        def load_tokenizer(self, *arguments, **options):
            return Tokenizer(tokens, madeup=extra)

    model = model or trained("unigram")
    tokens = tokens_of(family, model)
    extra = 3 if family in ("M2M100", "T5", "T5 1.1") else 0
    name, values = FAMILIES[family]
    end = tokens.index("</s>")
    special = {"eos_token_id": end, "pad_token_id": tokens.index("<pad>")}
    special = {"decoder_start_token_id": end, **special} if name != "Pegasus" else special
    special = {**special, **values, "vocab_size": len(tokens) + extra}
    torch.manual_seed(SEEDS.get(family, 4))
    network = getattr(transformers, f"{name}ForConditionalGeneration")(
        getattr(transformers, f"{name}Config")(**special)
    ).eval()
    with torch.no_grad():
        for part, array in network.named_parameters():
            if "embed_positions" not in part or name == "MBart":
                is_table = array.shape[0] == special["vocab_size"]
                deviation = 3 * D**-0.5 * spread if is_table else spread
                array.normal_(float(array.ndim == 1 and part.endswith("weight")), deviation)
        # The end must come often enough, but not after the language token.
        row = network.lm_head.weight[end]
        if family in LANGUAGES:
            row -= network.lm_head.weight[tokens.index(LANGUAGES[family][2])]
        if name == "T5":
            row *= 2
        elif name == "M2M100":
            network.model.decoder.layer_norm.bias += 1.5 * row / row.norm()
        else:
            network.final_logits_bias.normal_(0, 0.3)
            network.final_logits_bias[0, end] += 3 if name == "MBart" else 1
    network.save_pretrained(folder.with_name(f"{folder.name}_original"))
    Converter(str(folder.with_name(f"{folder.name}_original"))).convert(
        str(folder), quantization=quantization
    )
    (folder / "sentencepiece.model").write_bytes(model)
    return folder
