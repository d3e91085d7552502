"""The tasks: the sentences of a data set, or forced lengths with random weights."""

import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics import BLEU

from engines.trial import Trial
from tfk_transformer.runtime_environment import load_tensorflow

FIRST_SAID, END_ID, FIRST_PIECE = 2, 2, 4
FORCED_SOURCE, FORCED_TARGET, FORCED_SENTENCES = 15, 30, 256


class Task(NamedTuple):
    """A task to measure."""

    translator: object  # a `Translator`
    export: Path
    trial: Trial
    sources: list[str] | None  # in the order of the trial's rows
    references: list[str] | None  # in this order too
    what: str  # the sentences, in words

    def bleu(self, rows: list[list[int]]) -> float:
        """Return sacreBLEU's corpus BLEU of target ids, one row a sentence."""
        texts = self.translator.target_tokenizer.decode(rows)
        return BLEU().corpus_score(texts, [self.references]).score


def natural_task(options) -> Task:
    """Return the task of translating the data's sentences, each to its own length."""
    if not options.export:
        raise ValueError(
            "EXPORT: expected the folder of the bundle's exported files, got none; see "
            "`tfk-transformer export`."
        )
    pairs, what = _pairs(options)
    load_tensorflow()
    from tfk_transformer.pipelines.translator import Translator

    translator = Translator.load(options.bundle)
    rows = [
        [*ids, END_ID]
        for ids in translator.source_tokenizer.encode([source for source, _ in pairs])
    ]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    trial = Trial([rows[i] for i in order], options.max_length, **_sizes(options))
    sources, references = ([pairs[i][side] for i in order] for side in range(2))
    return Task(
        translator,
        options.export,
        trial,
        sources,
        references,
        f"{len(rows):,} sentences of {what}, of natural lengths",
    )


def student_task(task: Task, bundle: Path, export: Path) -> Task:
    """Return the task of translating the same sentences, in the same order, with another model and
    its tokenizer.
    """
    if task.sources is None:
        raise ValueError("--student: expected sentences to translate, got --forced.")
    from tfk_transformer.pipelines.translator import Translator

    translator = Translator.load(bundle)
    rows = [[*ids, END_ID] for ids in translator.source_tokenizer.encode(task.sources)]
    return task._replace(translator=translator, export=export, trial=task.trial._replace(rows=rows))


def _pairs(options) -> tuple[list[tuple[str, str]], str]:
    if options.source and options.reference:
        sides = [
            path.read_text(encoding="utf-8").splitlines()
            for path in (options.source, options.reference)
        ]
        return list(zip(*sides, strict=True)), options.source.name
    if not options.data:
        raise ValueError("--data: expected data, or --source and --reference, got neither.")
    from tfk_transformer import datasets

    return [
        (pair.source, pair.target) for pair in datasets.load(options.data).pairs("test")
    ], f"the split 'test' of {options.data}"


def forced_task(options, folder: Path) -> Task:
    """Return the task of writing targets of a fixed length with random weights of the bundle's
    shape, exported into `folder`.
    """
    if options.export or options.onnx:
        raise ValueError(
            "--forced: expected a bundle alone, got files too; random weights are exported anew."
        )
    load_tensorflow()
    import keras

    from tfk_transformer.export.exporting import export
    from tfk_transformer.models.registry import make_model
    from tfk_transformer.pipelines.translator import Translator

    fitted = Translator.load(options.bundle)
    keras.utils.set_random_seed(0)
    model = make_model(fitted.model.config, dtype="float32")
    _never_say_start(model)
    translator = Translator(model, fitted.source_tokenizer, fitted.target_tokenizer, fitted.probes)
    export(translator, folder / "export")
    draw = random.Random(0)
    pieces = range(FIRST_PIECE, fitted.source_tokenizer.vocab_size)
    rows = [[*draw.choices(pieces, k=FORCED_SOURCE - 1), END_ID] for _ in range(FORCED_SENTENCES)]
    trial = Trial(rows, FORCED_TARGET, forced=True, **_sizes(options))
    what = (
        f"{len(rows)} random sources of {FORCED_SOURCE} tokens, {FORCED_TARGET} steps forced, "
        "random weights"
    )
    return Task(translator, folder / "export", trial, None, None, what)


def _never_say_start(model) -> None:
    """Give padding and start a logit of 0, which is never among 8,000 random ones' best: this
    project's search strikes them out.
    """
    tied = {"all": "source_embedding", "target": "target_embedding"}.get(
        model.config.tie_embeddings
    )
    weight = model.named_weights[f"{tied}/embeddings" if tied else "output/kernel"]
    values = np.array(weight)
    said = values if tied else values.T  # a row a token; a view
    said[:FIRST_SAID] = 0.0
    weight.assign(values)


def _sizes(options) -> dict:
    return {
        "beams": options.beam or (1, 4),
        "batches": options.batch or (1, 8, 32, 128),
        "single": options.sentences,
    }
