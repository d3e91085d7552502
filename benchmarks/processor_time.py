"""Compare the processor time of an export's searches with CTranslate2's on the same weights, on one
thread each.

python benchmarks/processor_time.py BUNDLE EXPORT… [--map SPEC] [--steps]

Several exports may be those of one bundle with and without a shortlist. With --map, CTranslate2 is
measured with a shortlist too. With --steps, searches of two lengths tell the time of a decoding
step from that of the rest: the encoder, and what is done once. Processor time hardly depends on
what else runs on the machine, where the times of `decoding.py` become worthless.
"""

import argparse
import functools
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path

import ctranslate2
import numpy as np
from engines.ctranslate2_conversion import convert
from engines.report import print_tables, processor

from tfk_transformer.constants import END_ID, UNKNOWN_ID
from tfk_transformer.export.exporting import with_shortlist
from tfk_transformer.export.runtime.sessions import open_session
from tfk_transformer.pipelines.translator import Translator

SOURCE, TARGET, ROUNDS = 15, 24, 3  # tokens, the most tokens of a translation, rounds
LENGTHS = (2, 18)  # the most tokens of a translation, with --steps
# Beam size, batch size, sentences (times --times)
COLUMNS = ((1, 1, 3), (1, 12, 24), (4, 1, 2), (4, 12, 12))
Engine = Callable[[np.ndarray, int], object]  # from source ids (N, S) and a beam size


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument(
        "exports", type=Path, nargs="+", metavar="export", help="exported files of the bundle"
    )
    parser.add_argument(
        "--map",
        metavar="SPEC",
        help="text pairs, whose shortlist is the vocabulary map of another CTranslate2 model",
    )
    parser.add_argument(
        "--times",
        type=int,
        default=1,
        metavar="N",
        help="N times as many sentences, for a small model (1)",
    )
    parser.add_argument(
        "--steps",
        action="store_true",
        help="the time of a step and of the rest, for a batch, in place of that of a sentence",
    )
    options = parser.parse_args()
    translator = Translator.load(options.bundle)
    model = translator.model
    most = options.times * max(sentences for _, _, sentences in COLUMNS)
    ids = (
        np.random.default_rng(0)
        .integers(UNKNOWN_ID + 1, model.config.source_vocab_size, (most, SOURCE))
        .astype("int32")
    )
    ids[:, -1] = END_ID
    with tempfile.TemporaryDirectory() as folder:
        peers = {
            "CTranslate2": None,
            **(
                {"CTranslate2, map,": with_shortlist(translator, options.map).shortlist}
                if options.map
                else {}
            ),
        }
        for name, shortlist in peers.items():
            convert(model, Path(folder) / name, shortlist=shortlist)
        folders = [Path(folder) / name for name in peers]
        lengths = LENGTHS if options.steps else (TARGET,)
        engines = {
            (name, target): engine
            for target in lengths
            for name, engine in opened(folders, options.exports, target)
        }
        if options.steps:
            check_lengths(engines, ids)
        spent = measured(engines, ids, options.times)
    cell = step_and_rest if options.steps else sentence
    rows = [
        [name, *(cell(spent, name, column) for column in COLUMNS)]
        for name in dict.fromkeys(name for name, _ in engines)
    ]
    titles = [
        f"{'greedy' if beam == 1 else f'beam {beam}'}, batch {batch}" for beam, batch, _ in COLUMNS
    ]
    what = "a step of a batch + the rest" if options.steps else "a sentence"
    head = (
        f"Processor milliseconds of {what}, one thread, median of {ROUNDS} interleaved rounds. "
        f"Processor: {processor()}."
    )
    print_tables([head], ([["engine", *titles], *rows],))


def check_lengths(engines: dict[tuple[str, int], Engine], ids: np.ndarray) -> None:
    """Exit with one line if translations end before an engine's most tokens: then the lengths do
    not tell the steps.
    """
    for (name, length), engine in engines.items():
        if (found := longest(engine(ids[:1], 1))) < length:
            sys.exit(
                f"--steps: expected translations of {length} tokens, got {found} from {name}; use "
                "a model whose search does not end."
            )


def sentence(spent: dict[tuple, list[float]], name: str, column: tuple) -> str:
    """Return milliseconds of a sentence."""
    return f"{1000 * statistics.median(spent[(name, TARGET), column]):.3g}"


def step_and_rest(spent: dict[tuple, list[float]], name: str, column: tuple) -> str:
    """Return milliseconds of a decoding step of a batch, and of all else that the batch needs."""
    brief, full = (
        1000 * column[1] * statistics.median(spent[(name, length), column]) for length in LENGTHS
    )
    step = (full - brief) / (LENGTHS[1] - LENGTHS[0])
    return f"{step:.3g} + {brief - LENGTHS[0] * step:.3g}"


def longest(found) -> int:
    """Return the number of tokens of the longest translation that an engine returned."""
    return (
        found[0].shape[-1]
        if isinstance(found[0], np.ndarray)
        else max(len(result.hypotheses[0]) for result in found)
    )


def opened(
    peers: Sequence[Path], exports: Sequence[Path], target: int
) -> Iterator[tuple[str, Engine]]:
    """Yield the engines by name: folders of CTranslate2 in both types, and exports. Translations
    have at most `target` tokens.
    """
    for folder, kind in itertools.product(peers, ("float32", "int8")):
        translator = ctranslate2.Translator(
            str(folder), compute_type=kind, inter_threads=1, intra_threads=1
        )
        search = functools.partial(
            translator.translate_batch,
            length_penalty=0,
            max_decoding_length=target,
            use_vmap=(folder / "vmap.txt").is_file(),
        )
        yield (
            f"{folder.name} {kind}",
            lambda rows, beam, run=search: run(
                [[str(i) for i in row[:-1]] for row in rows], beam_size=beam
            ),
        )
    for path in [
        export / name for export in exports for name in ("generate.onnx", "generate.int8.onnx")
    ]:
        session = open_session(path, threads=1, arena=False)
        settings = {
            "length_penalty": np.array(0, "float32"),
            "max_length": np.array(target, "int32"),
        }
        yield (
            f"{path.parent.name}/{path.name}",
            lambda rows, beam, own=session, given=settings: own.run(
                ["ids", "scores"],
                {"source_ids": rows, "beam_size": np.array(beam, "int32"), **given},
            ),
        )


def measured(
    engines: dict[Hashable, Engine], ids: np.ndarray, times: int = 1
) -> dict[tuple, list[float]]:
    """Return processor seconds per sentence by engine and column, one of each round, with `times`
    as many sentences.
    """
    spent = {}
    for _ in range(ROUNDS):
        for column in COLUMNS:
            beam, batch, sentences = column[0], column[1], column[2] * times
            for name, engine in engines.items():
                started = time.process_time()
                for first in range(0, sentences, batch):
                    engine(ids[first : min(first + batch, sentences)], beam)
                spent.setdefault((name, column), []).append(
                    (time.process_time() - started) / sentences
                )
    return spent


if __name__ == "__main__":
    main()
