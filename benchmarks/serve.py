"""Load `tfk-transformer serve` on loopback, beside the same translator in one process.

    python benchmarks/serve.py MODEL.onnx TEXTS [--requests 10000] [--at-once 64] [--growth 100000]

TEXTS has one text per line. Each request holds one text, and the client is a process of its own, so
server and client share the processors. A round translates the texts in one process, in batches in
the order of the requests, then sends them to the server, to a server without batches (--max-batch
1), and translates them again; the table has medians of the rounds. "Sorted" is one call of
`translate` with all texts, which batches them by length, as no server can. Memory growth is that of
the server's resident memory.
"""

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import aiohttp
from engines.report import print_tables, processor

from tfk_transformer.export.runtime.opening import load


class Load(NamedTuple):
    """What a client measured."""

    seconds: float
    lost: int  # requests without the answer 200
    p50: float  # milliseconds
    p99: float
    client_seconds: float  # of the processor, which server and client share

    @property
    def row(self) -> list[str]:
        """Return the cells of a table."""
        return [str(self.lost), f"{self.p50:.1f}", f"{self.p99:.1f}"]


async def send(url: str, texts: list[str], count: int, at_once: int) -> Load:
    """Send requests, each with one text, so that `at_once` are always open."""
    bodies = [json.dumps({"q": text, "source": "auto", "target": "und"}).encode() for text in texts]
    used, waiting, times, lost = (
        time.process_time(),
        iter(itertools.islice(itertools.cycle(bodies), count)),
        [],
        0,
    )

    async def client() -> None:
        nonlocal lost
        for body in waiting:
            begun = time.perf_counter()
            try:
                async with session.post(
                    f"{url}/translate", data=body, headers={"Content-Type": "application/json"}
                ) as answer:
                    lost += answer.status != 200 or "translatedText" not in json.loads(
                        await answer.read()
                    )
            except aiohttp.ClientError:
                lost += 1
            times.append(time.perf_counter() - begun)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        begun = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(at_once)))
        seconds = time.perf_counter() - begun
    cuts = statistics.quantiles(times, n=100)
    return Load(
        seconds,
        lost + count - len(times),
        1000 * cuts[49],
        1000 * cuts[98],
        time.process_time() - used,
    )


class Server:
    """`tfk-transformer serve` in a process of its own."""

    def __init__(self, model: str, *options: str) -> None:
        command = [sys.executable, "-m", "tfk_transformer", "serve", model, "--port", "0", *options]
        # Not a pipe, whose reader would take time from the server.
        self._log = tempfile.NamedTemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=self._log)
        while not (line := Path(self._log.name).read_text().partition("\n")[0]):
            if self.process.poll() is not None:
                raise SystemExit("the server did not start")
            time.sleep(0.1)
        self.url = json.loads(line)["url"]

    @property
    def memory(self) -> float:
        """Resident memory, MB."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def load(self, options: argparse.Namespace, count: int) -> Load:
        """Send requests from another process."""
        command = [sys.executable, __file__, options.model, options.texts, "--url", self.url]
        command += ["--requests", str(count), "--at-once", str(options.at_once)]
        return Load(*json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))

    def stop(self) -> int:
        """End the server, and return its exit status."""
        self.process.terminate()
        return self.process.wait(60)


def in_process(model: str, texts: list[str], size: int, beam_size: int) -> float:
    """Return the seconds in which a process translates texts in batches of this size, in their
    order.
    """
    translator = load(model)
    for warm in (texts[:1], texts[:size]):
        translator.translate(warm, beam_size=beam_size)
    begun = time.perf_counter()
    for start in range(0, len(texts), size):
        translator.translate(
            texts[start : start + size], batch_size=min(size, 64), beam_size=beam_size
        )
    return time.perf_counter() - begun


def compare(options: argparse.Namespace, texts: list[str]) -> None:
    """Print the table of throughput and latency."""
    count, beam, more = options.requests, options.beam_size, options.serve.split()
    every = list(itertools.islice(itertools.cycle(texts), count))
    alone = every[: max(1, count // options.unbatched_part)]
    batched = Server(options.model, "--beam-size", str(beam), *more)
    unbatched = Server(options.model, "--beam-size", str(beam), *more, "--max-batch", "1")
    found: dict[str, list[float]] = {
        "in process": [],
        "in process, sorted": [],
        "server": [],
        "server, unbatched": [],
    }
    loads: dict[str, list[Load]] = {"server": [], "server, unbatched": []}
    for _ in range(options.rounds):
        found["in process"].append(count / in_process(options.model, every, options.at_once, beam))
        for name, server, part in (
            ("server", batched, count),
            ("server, unbatched", unbatched, len(alone)),
        ):
            loads[name].append(server.load(options, part))
            found[name].append(part / loads[name][-1].seconds)
        found["in process, sorted"].append(count / in_process(options.model, every, count, beam))
    table = [["", "texts/s", "ratio", "lost", "p50 ms", "p99 ms"]]
    for name, speeds in found.items():
        ratios = [speed / base for speed, base in zip(speeds, found["in process"], strict=True)]
        cells = (
            sorted(loads[name], key=lambda load: load.p99)[len(speeds) // 2].row
            if name in loads
            else ["", "", ""]
        )
        table.append(
            [name, f"{statistics.median(speeds):.0f}", f"{statistics.median(ratios):.2f}", *cells]
        )
    statuses = [batched.stop(), unbatched.stop()]
    lost = sum(load.lost for several in loads.values() for load in several)
    sent = (count + len(alone)) * options.rounds
    client = statistics.median(load.client_seconds / load.seconds for load in loads["server"])
    conditions = [
        f"Processors: {processor()}. Other programs may run at the same time: compare ratios.",
        f"{Path(options.model).name}, beam size {beam}, {options.at_once} requests at once, "
        f"{options.rounds} rounds; "
        f"{options.serve or 'default options'}.",
        (
            f"{sent} requests in all, {lost} lost; the servers ended with status {statuses}. The "
            f"client took {client:.2f} processors."
        ),
    ]
    print_tables(conditions, [table])


def growth(options: argparse.Namespace) -> None:
    """Print the resident memory of a server after each tenth of many requests."""
    server = Server(options.model, "--beam-size", str(options.beam_size), *options.serve.split())
    table, done, begun, lost = (
        [["requests", "MB", "seconds"], ["0", f"{server.memory:.1f}", "0"]],
        0,
        time.perf_counter(),
        0,
    )
    while done < options.growth and time.perf_counter() - begun < options.growth_seconds:
        lost += server.load(options, options.growth // 10).lost
        done += options.growth // 10
        table.append([str(done), f"{server.memory:.1f}", f"{time.perf_counter() - begun:.0f}"])
    print_tables(
        [
            (
                f"Memory of the server over {done} requests, {lost} lost; it ended with status "
                f"{server.stop()}."
            )
        ],
        [table],
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beam-size", type=int, default=1)
    parser.add_argument(
        "--unbatched-part",
        type=int,
        default=10,
        help="the unbatched server gets one of this many requests",
    )
    parser.add_argument(
        "--growth", type=int, default=0, help="requests over which memory is watched; 0: none"
    )
    parser.add_argument(
        "--growth-seconds", type=float, default=300, help="stop watching after these"
    )
    parser.add_argument("--serve", default="", help="more options of the server, in one word")
    parser.add_argument(
        "--url", help="only send requests to this server, and print what was measured as JSON"
    )
    options = parser.parse_args()
    texts = [
        line
        for line in Path(options.texts).read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    if options.url:
        print(json.dumps(asyncio.run(send(options.url, texts, options.requests, options.at_once))))
        return
    if options.requests:
        compare(options, texts)
    if options.growth:
        growth(options)


if __name__ == "__main__":
    main()
