"""Compare the speed of a training step of this project's `fit`, keras-hub's layers and
torch.nn.Transformer, on the same batches.

python benchmarks/training.py --data folder:multi30k:de-en
    real pairs, as this project batches them
python benchmarks/training.py --random --model base --model big --vocabulary 32000 \\
  --dtype bfloat16 --batch-tokens 32768 --at-once 2 --threads 16
    on a GPU; benchmarks/training.md has the FLOPs and the memory on paper

Every engine has its own process, and the engines take turns. A figure is the median of interleaved
rounds. In each round an engine processes the batches once: forward pass, loss with label smoothing
over the real tokens, backward pass, clipping by the global norm, Adam. Speed is given in real
target tokens per second, without padding, and relative to the fastest PyTorch and the fastest
keras-hub. "share of products" is the rate of model FLOPs (trainers/counts.py has the formula: 6 for
each weight and real token, and attention), divided by the rate that the fastest library reaches in
products of large matrices of the same dtype in the same rounds. On a GPU with --dtype bfloat16,
this is the model FLOPs utilization relative to the measured peak, and peak memory is that of the
process plus that of the accelerator. Engines whose libraries are not installed are left out, and
the report names them. --random needs no TensorFlow, so it can compare JAX and PyTorch without it.
On a CPU, run the benchmark on an idle machine. Waiting engines keep their memory; if it does not
suffice, --at-once loads the engines in smaller groups, one group after the other.

`pip install -e '.[bench]'` installs the peers. They can also be in other environments:
--peers-python needs torch, and --hub-python keras-hub and this project.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from engines.process import EngineSpec
from engines.report import processor
from trainers.data import Epoch, random_batches, real_epoch, spread
from trainers.report import Report
from trainers.task import Sizes, Task
from trainers.trial import Case, Measured, Options, measure

from tfk_transformer.config.presets import PRESETS

MODELS = ("small", "base", "big")  # presets
OWN = "fit, TensorFlow"
SPREAD = 4  # times as many random batches are made as are trained on


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark; what goes wrong is one line, and status 1."""
    options = _parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = run(options, Path(folder))
        except (ValueError, ImportError, OSError) as error:
            sys.exit(f"training.py: {error}")
    report.print()
    if options.json:
        report.write_json(options.json)
    if options.markdown:
        report.write_markdown(options.markdown)


def _parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--data",
        metavar="SPEC",
        help="see docs/data.md; the split 'train' is batched, which needs TensorFlow",
    )
    source.add_argument(
        "--random",
        action="store_true",
        help="random ids, of lengths as captions have them (trainers/data.py)",
    )
    parser.add_argument("--model", action="append", choices=MODELS, help="sizes (small)")
    parser.add_argument(
        "--vocabulary",
        action="append",
        type=int,
        metavar="N",
        help="its size; above 8000 real pairs get random ids (8000)",
    )
    parser.add_argument(
        "--batch-tokens",
        action="append",
        type=int,
        metavar="N",
        help="of a batch and side, padding included (4096)",
    )
    parser.add_argument("--max-length", type=int, default=128, help="of a side in tokens (128)")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        default="float32",
        help="bfloat16: mixed precision",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=8,
        help="batches of a round, spread over the lengths of an epoch (8)",
    )
    parser.add_argument("--repeats", type=int, default=5, help="rounds (5)")
    parser.add_argument(
        "--threads", type=int, default=2, help="of each engine, and processors it may use (2)"
    )
    parser.add_argument(
        "--product-size",
        type=int,
        metavar="N",
        help="rows of the matrices multiplied (2048; on a GPU 8192)",
    )
    parser.add_argument(
        "--at-once",
        type=int,
        metavar="N",
        help="engines in memory side by side, which take turns (all)",
    )
    parser.add_argument(
        "--static",
        action="store_true",
        help="torch.compile once more with kernels for each shape: minutes a shape",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NAME",
        help="leave out engines that begin with NAME",
    )
    parser.add_argument(
        "--peers-python", default=sys.executable, metavar="PATH", help="interpreter that has torch"
    )
    parser.add_argument(
        "--hub-python",
        default=sys.executable,
        metavar="PATH",
        help="interpreter that has keras-hub and this project",
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


def run(options, folder: Path) -> Report:
    """Measure every model with every vocabulary and size of batch; `folder` takes what the engines
    read.

    Raises:
        ValueError: if there is nothing to train on, or no engine runs.
    """
    specs = [
        spec
        for spec in engine_specs(options)
        if not any(map(spec.name.startswith, options.without))
    ]
    how = Options(options.threads, options.repeats, options.product_size, options.at_once)
    said, measured, epochs = [], [], []

    def say(line):
        if line not in said:
            print(line, file=sys.stderr, flush=True)
            said.append(line)

    for case, epoch in _cases(options):
        print(
            f"{case.model}, vocabulary {case.vocab_size:,}, {case.batch_tokens:,} tokens a batch …",
            file=sys.stderr,
            flush=True,
        )
        measured.append(measure(case, specs, how, folder / str(len(measured)), say))
        epochs.append(epoch)
    return Report([*_conditions(options), *said, *_inputs(measured, epochs)], measured)


def engine_specs(options) -> list[EngineSpec]:
    """Return every engine there is; the task's folder is given later."""
    kinds = [
        ("TensorFlow", "tensorflow", "plain"),
        ("TensorFlow XLA", "tensorflow", "xla"),
        ("JAX", "jax", "xla"),
    ]
    towers = ("TensorFlow towers", "tensorflow", "towers")  # as `train` does it
    ours = [
        (f"fit, {name}", "keras_model", how, sys.executable)
        for name, *how in (kinds[0], towers, *kinds[1:])
    ]
    hub = [
        (f"keras-hub, {name}", "keras_hub_model", how, options.hub_python) for name, *how in kinds
    ]
    hub.append(
        (
            "our loss, keras-hub's layers",
            "keras_hub_model",
            [*kinds[0][1:], "ours"],
            options.hub_python,
        )
    )
    compilers = ["eager", "compiled", *(["compiled-static"] if options.static else [])]
    torch = [(f"PyTorch {how}", "torch_steps", [how], options.peers_python) for how in compilers]
    return [
        EngineSpec(name, module, Path(), tuple(how), python)
        for name, module, how, python in (*ours, *hub, *torch)
    ]


def _cases(options):
    """Yield each case, and the epoch its batches were taken from, if pairs are real."""
    for model in options.model or ["small"]:
        for vocab_size in options.vocabulary or [8000]:
            for tokens in options.batch_tokens or [4096]:
                batches, epoch = _batches(options, vocab_size, tokens)
                task = Task(preset_sizes(model, vocab_size), batches, options.dtype)
                yield Case(model, vocab_size, tokens, task), epoch


def preset_sizes(preset: str, vocab_size: int) -> Sizes:
    """Return the sizes of a preset's model."""
    return Sizes(
        **{name: PRESETS[preset][name] for name in Sizes._fields if name != "vocab_size"},
        vocab_size=vocab_size,
    )


def _batches(options, vocab_size: int, tokens: int):
    if tokens < options.max_length:
        raise ValueError(
            f"--batch-tokens: expected at least --max-length {options.max_length}, got {tokens}."
        )
    if options.random:
        return spread(
            random_batches(vocab_size, tokens, options.max_length, SPREAD * options.steps),
            options.steps,
        ), None
    epoch = real_epoch(options.data, vocab_size, tokens, options.max_length)
    return spread(epoch.batches, options.steps), epoch


def _conditions(options) -> list[str]:
    what = "random ids" if options.random else f"the split 'train' of {options.data}"
    return [
        (
            f"{what[0].upper()}{what[1:]}; {options.steps} batches spread over its lengths; median "
            "of "
            f"{options.repeats} interleaved rounds."
        ),
        f"{options.dtype}; threads of each engine: {options.threads}. Processor: {processor()}.",
        "Pre-norm, one embedding for source, target and output, dropout 0.1 only on embeddings and "
        "residual connections, label "
        "smoothing 0.1, gradients clipped to a norm of 1, Adam; no metrics beside the loss. Loss "
        "and Adam are each library's own.",
    ]


def _inputs(measured: list[Measured], epochs: list[Epoch | None]) -> list[str]:
    """Return a line about each epoch of real pairs, and what its batches cost in parts of our
    step.
    """
    lines = []
    for case, epoch in zip(measured, epochs, strict=True):
        if epoch is None:
            continue
        what = (
            f"{case.model}, vocabulary {case.vocab_size:,}, {case.batch_tokens:,} tokens: "
            f"{epoch.line()}"
        )
        if OWN in case.engines:
            shares = [
                seconds / len(epoch.batches) / case.step_seconds(OWN)
                for seconds in (epoch.first_seconds, epoch.seconds)
            ]
            what += f" That is {shares[0]:.1%} and {shares[1]:.1%} of a step of '{OWN}'."
        lines.append(what)
    return lines


if __name__ == "__main__":
    main()
