"""Attack `tfk-transformer serve` on loopback, and measure what its other clients notice.

    python benchmarks/strangers.py MODEL [--requests 100000] [--serve-options="--workers 2"]

Each attack has a server of its own, and the clients share its processors. The rows are:

- vanishing clients: 255 clients send eight texts each and leave; then a client sends one text
- an expensive request: 120 texts with beam size 16 and `min_length` 63, and meanwhile one text
- many settings: 2,000 requests at the same time, each with a different `length_penalty`
- honest clients: 64 clients that send one text after another, alone and next to a client that
  sends expensive requests of eight texts one after another
- memory: the resident megabytes of a server before and after `--requests` requests, and after a
  tenth as many clients that leave
"""

import argparse
import asyncio
import contextlib
import functools
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

MODEL = "/v2/models/translator"


async def translate(
    session: aiohttp.ClientSession, texts: list[str], settings: dict[str, Any], timeout: float = 120
) -> tuple[int, float]:
    """Return the status of a request and its seconds. Status 0: the client left at `timeout`."""
    tensor = {"name": "text", "shape": [len(texts)], "datatype": "BYTES", "data": texts}
    body = {"inputs": [tensor], "parameters": settings}
    began = time.perf_counter()
    try:
        async with session.post(
            f"{MODEL}/infer", json=body, timeout=aiohttp.ClientTimeout(timeout)
        ) as answer:
            await answer.read()
            return answer.status, time.perf_counter() - began
    except TimeoutError:
        return 0, time.perf_counter() - began


@contextlib.asynccontextmanager
async def server(options: argparse.Namespace) -> AsyncIterator[tuple[aiohttp.ClientSession, int]]:
    """Yield a session of clients of a new server, and the process of the server."""
    command = [sys.executable, "-m", "tfk_transformer", "serve", "--port", "0", options.model]
    command += shlex.split(options.serve_options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        drain = asyncio.create_task(asyncio.to_thread(process.stdout.read))
        try:
            # The server closes connections that are idle for five seconds.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3)
            async with aiohttp.ClientSession(url, connector=connector) as session:
                for _ in range(20):
                    await translate(session, ["seven"], {})
                yield session, process.pid
        finally:
            process.kill()
            await drain


def expensive_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of an expensive request."""
    return {"beam_size": 16, "min_length": options.min_length}


async def texts_run(session: aiohttp.ClientSession) -> int:
    """Return the number of texts that the model ran."""
    async with session.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return int(float(next(line for line in lines if "batch_texts_sum" in line).split()[1]))


async def vanishing_clients(options: argparse.Namespace) -> str:
    """Measure the time of a client after 255 clients that left."""
    async with server(options) as (session, _):
        before = await texts_run(session)
        texts = ["one hundred seven"] * 8
        clients = (translate(session, texts, {}, timeout=0.05) for _ in range(255))
        statuses = Counter(status for status, _ in await asyncio.gather(*clients))
        status, seconds = await translate(session, ["seven"], {})
        run = await texts_run(session) - before
        return f"{dict(statuses)}; {run} texts were run; the next: {status} after {seconds:.2f} s"


async def expensive_request(options: argparse.Namespace) -> str:
    """Measure the time of a client next to an expensive request."""
    async with server(options) as (session, _):
        expensive = asyncio.create_task(
            translate(session, ["seven"] * 120, expensive_settings(options))
        )
        await asyncio.sleep(0.3)
        status, seconds = await translate(session, ["seven"], {})
        other_status, other_seconds = await expensive
        return (
            f"one text: {status} after {seconds:.2f} s; the expensive request: {other_status} "
            f"after {other_seconds:.1f} s"
        )


async def many_settings(options: argparse.Namespace) -> str:
    """Count the answers to requests that cannot share a batch."""
    async with server(options) as (session, _):
        settings = ({"length_penalty": number / 1000} for number in range(2000))
        began = time.perf_counter()
        answers = await asyncio.gather(*(translate(session, ["seven"], each) for each in settings))
        statuses = Counter(status for status, _ in answers)
        return f"{dict(statuses)} in {time.perf_counter() - began:.1f} s"


async def honest_clients(options: argparse.Namespace, greedy: bool = False) -> str:
    """Measure the throughput and the times of 64 clients."""
    async with server(options) as (session, _):
        times: list[float] = []
        end = time.perf_counter() + options.seconds

        async def client(texts: list[str], settings: dict[str, Any], results: list[float]) -> None:
            while time.perf_counter() < end:
                status, duration = await translate(session, texts, settings)
                assert status == 200, status
                results.append(duration)

        greedy_times: list[float] = []
        clients = [client(["seven"], {}, times) for _ in range(64)]
        if greedy:
            clients.append(client(["seven"] * 8, expensive_settings(options), greedy_times))
        await asyncio.gather(*clients)
        cuts = statistics.quantiles(times, n=100)
        return (
            f"{len(times) / options.seconds:.0f} requests/s, p50 {1000 * cuts[49]:.0f} ms, p99 "
            f"{1000 * cuts[98]:.0f} ms; {len(greedy_times)} expensive requests"
        )


async def memory(options: argparse.Namespace) -> str:
    """Measure the memory of a server after many requests."""
    async with server(options) as (session, process):
        megabytes = [resident_megabytes(process)]
        remaining = iter(range(options.requests))

        async def client(timeout: float) -> None:
            for _ in remaining:
                await translate(session, ["seven"], {}, timeout)

        await asyncio.gather(*(client(120) for _ in range(64)))
        megabytes.append(resident_megabytes(process))
        remaining = iter(range(options.requests // 10))
        await asyncio.gather(*(client(0.002) for _ in range(64)))
        status, _ = await translate(session, ["seven"], {})
        megabytes.append(resident_megabytes(process))
        return f"{', '.join(f'{size:.1f}' for size in megabytes)} MB; the last answer: {status}"


def resident_megabytes(process: int) -> float:
    """Return the resident memory of a process. Linux has it in /proc."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1000


async def measure(options: argparse.Namespace) -> None:
    """Print a line for each attack."""
    for title, attack in (
        ("vanishing clients", vanishing_clients),
        ("an expensive request", expensive_request),
        ("many settings", many_settings),
        ("honest clients", honest_clients),
        ("and a greedy one", functools.partial(honest_clients, greedy=True)),
        ("memory", memory),
    ):
        print(f"{title}: {await attack(options)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--min-length", type=int, default=63, help="of expensive requests")
    parser.add_argument("--serve-options", default="", help='such as "--workers 2"')
    parser.add_argument("--seconds", type=float, default=10, help="of the honest clients")
    parser.add_argument("--requests", type=int, default=100_000, help="for the memory")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    asyncio.run(measure(parser.parse_args()))
