"""A program that translates with the library that a model is from.

It reads JSON from standard input, and writes to the file that its argument names. In a process of
its own, it needs no memory for the other model, and the library's messages do not matter.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TRANSFORMERS = "transformers"
CTRANSLATE2 = "ctranslate2"
MAX_BATCH = 8  # texts, of which each may have many beams


def main() -> None:
    """Run the program."""
    request = json.load(sys.stdin)
    translate = _transformers if request["library"] == TRANSFORMERS else _ctranslate2
    Path(sys.argv[1]).write_text(json.dumps(translate(request)), encoding="utf-8")


def _transformers(request: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the `texts` of a request with transformers.

    `tokenizer` is the name of its class. For a model of several languages, `languages` are
    arguments of the tokenizer, and `generate` takes the target's as `language_setting`.
    """
    import torch
    import transformers

    options = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = getattr(transformers, request["tokenizer"]).from_pretrained(
        request["folder"], **request["languages"], **options
    )
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        request["folder"], dtype=torch.float32, **options
    ).eval()
    settings: dict[str, Any] = {"do_sample": False, "return_dict_in_generate": True}
    language = None
    if setting := request["language_setting"]:
        # Its token is the language, such as "de_DE", or "__de__" in M2M100.
        target = request["languages"]["tgt_lang"]
        candidates = map(tokenizer.convert_tokens_to_ids, (target, f"__{target}__"))
        language = next(row for row in candidates if row not in (None, tokenizer.unk_token_id))
        settings[setting] = language
    translations = []
    scores = []
    for text in request["texts"]:
        with torch.no_grad():
            inputs = tokenizer(text, return_tensors="pt")
            inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
            result = model.generate(**inputs, output_scores=True, **settings)
        # Not every tokenizer's class leaves out the language.
        rows = [row for row in result.sequences[0].tolist() if row != language]
        translations.append(tokenizer.decode(rows, skip_special_tokens=True))
        best = result.get("sequences_scores")
        scores.append(None if best is None else float(best[0]))
    special = tokenizer.all_special_tokens
    return {
        "version": transformers.__version__,
        "tokens": [
            [token for token in tokenizer.tokenize(text) if token not in special]
            for text in request["texts"]
        ],
        "translations": translations,
        "scores": scores,
    }


def _ctranslate2(request: Mapping[str, Any]) -> dict[str, Any]:
    """Translate the `tokens` of a request with CTranslate2."""
    import ctranslate2

    engine = ctranslate2.Translator(request["folder"], compute_type="float32")
    prefix = request["target_prefix"]
    results = engine.translate_batch(
        request["tokens"],
        target_prefix=[prefix] * len(request["tokens"]) if prefix else None,
        max_batch_size=MAX_BATCH,
        return_scores=True,
        **request["settings"],
    )
    return {
        "version": ctranslate2.__version__,
        "hypotheses": [result.hypotheses[0][len(prefix) :] for result in results],
        "scores": [result.scores[0] for result in results],
    }


if __name__ == "__main__":
    main()
