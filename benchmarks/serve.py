"""Load `tfk-transformer serve` on loopback, next to the same translator in one process.

    python benchmarks/serve.py MODEL.onnx TEXTS [--requests 10000] [--at-once 64] [--growth 100000]

TEXTS has one text per line. Each request has one text, and the client has its own process, so
server and client share the processors. In each round, one process translates the texts in batches
in the order of the requests; the server gets them; a server without batches (--max-batch 1) gets
some of them; and one call of `translate` gets all texts ("sorted": it batches them by length, as no
server can). --growth watches the server's resident memory over many requests.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from functools import partial
from pathlib import Path

from harness import EngineSpec, arguments_parser, processor, report, started, take_turns

IN_PROCESS, SERVER, UNBATCHED = "in process", "server", "server, unbatched"
SORTED = "in process, sorted"


class Server:
    """`tfk-transformer serve` in its own process."""

    def __init__(self, options: Namespace, *more: str) -> None:
        command = [sys.executable, "-m", "tfk_transformer", "serve", options.model, "--port", "0"]
        command += ["--beam-size", str(options.beam_size), *options.serve.split(), *more]
        # Not a pipe, whose reader would take time from the server.
        self._log = tempfile.NamedTemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=self._log)
        while not (line := Path(self._log.name).read_text().partition("\n")[0]):
            if self.process.poll() is not None:
                raise SystemExit("the server did not start")
            time.sleep(0.1)
        self.url = json.loads(line)["url"]

    @property
    def megabytes(self) -> float:
        """Resident memory."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def client(self, name: str, at_once: int) -> EngineSpec:
        """Return a client of the server."""
        return EngineSpec(name, "engines.http_client", (self.url, at_once), os.cpu_count())

    def stop(self) -> int:
        """End the server, and return its exit status."""
        self.process.terminate()
        return self.process.wait(60)


def compare(options: Namespace, texts: list[str]) -> None:
    """Print the table of throughput and latency."""
    count, at_once = options.requests, options.at_once
    every = list(itertools.islice(itertools.cycle(texts), count))
    counts = dict.fromkeys((IN_PROCESS, SERVER, UNBATCHED, SORTED), count)
    counts[UNBATCHED] = max(1, count // options.unbatched_part)
    batched, unbatched = Server(options), Server(options, "--max-batch", "1")
    specs = [
        EngineSpec(IN_PROCESS, "engines.any_model", (options.model,), os.cpu_count()),
        batched.client(SERVER, at_once),
        unbatched.client(UNBATCHED, at_once),
    ]
    search = {"beam_size": options.beam_size, "batch_size": min(at_once, 64)}
    with started(specs) as (model, client, slow_client):
        model.ask(texts=every[:at_once], group_size=at_once, **search)
        runs = {
            IN_PROCESS: partial(model.ask, texts=every, group_size=at_once, **search),
            SERVER: partial(client.ask, texts=texts, count=count),
            UNBATCHED: partial(slow_client.ask, texts=texts, count=counts[UNBATCHED]),
            SORTED: partial(model.ask, texts=every, **search),
        }
        answers = take_turns(runs, options.rounds)
    statuses = [batched.stop(), unbatched.stop()]
    speeds = {name: [counts[name] / a.seconds for a in given] for name, given in answers.items()}
    table = [["", "texts/s", "ratio", "lost", "p50 ms", "p99 ms"]]
    for name, own in speeds.items():
        ratios = [speed / base for speed, base in zip(own, speeds[IN_PROCESS], strict=True)]
        cells = [f"{statistics.median(own):.0f}", f"{statistics.median(ratios):.2f}"]
        table.append([name, *cells, *latency([a.result for a in answers[name]])])
    lost = sum(a.result["lost"] for name in (SERVER, UNBATCHED) for a in answers[name])
    busy = statistics.median(a.processor_seconds / a.seconds for a in answers[SERVER])
    sent = (count + counts[UNBATCHED]) * options.rounds
    conditions = [
        f"Processors: {processor()}. Other programs may run at the same time: compare ratios.",
        f"{Path(options.model).name}, beam size {options.beam_size}, {at_once} requests at once, "
        f"{options.rounds} rounds; {options.serve or 'default options'}.",
        f"{sent} requests in all, {lost} lost; the servers ended with status {statuses}. The "
        f"client took {busy:.2f} processors.",
    ]
    report(conditions, [table], options.markdown)


def latency(results: list) -> list[str]:
    """Return lost requests and percentiles of the round with the median p99."""
    if not isinstance(results[0], dict):
        return ["", "", ""]
    middle = sorted(results, key=lambda result: result["p99"])[len(results) // 2]
    return [str(middle["lost"]), f"{middle['p50']:.1f}", f"{middle['p99']:.1f}"]


def growth(options: Namespace, texts: list[str]) -> None:
    """Print the resident memory of a server after each tenth of many requests."""
    server, part = Server(options), options.growth // 10
    table = [["requests", "MB", "seconds"], ["0", f"{server.megabytes:.1f}", "0"]]
    begun, lost = time.perf_counter(), 0
    with started([server.client(SERVER, options.at_once)]) as (client,):
        for number in range(1, 11):
            lost += client.ask(texts=texts, count=part).result["lost"]
            seconds = time.perf_counter() - begun
            table.append([str(number * part), f"{server.megabytes:.1f}", f"{seconds:.0f}"])
    condition = f"Memory of the server over {10 * part} requests, {lost} lost; "
    report([f"{condition}it ended with status {server.stop()}."], [table])


def main() -> None:
    """Print the tables."""
    parser = arguments_parser(__doc__)
    add = parser.add_argument
    add("model")
    add("texts", type=Path)
    add("--requests", type=int, default=10_000, help="in each round; 0: no comparison")
    add("--at-once", type=int, default=64)
    add("--rounds", type=int, default=3)
    add("--beam-size", type=int, default=1)
    add(
        "--unbatched-part", type=int, default=10, help="the unbatched server gets one of N requests"
    )
    add("--growth", type=int, default=0, help="requests over which memory is watched; 0: none")
    add("--serve", default="", help="more options of the server, in one word")
    options = parser.parse_args()
    texts = [line for line in options.texts.read_text("utf-8").splitlines() if line.strip()]
    if options.requests:
        compare(options, texts)
    if options.growth:
        growth(options, texts)


if __name__ == "__main__":
    main()
