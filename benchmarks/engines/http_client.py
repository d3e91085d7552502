"""A client that sends requests to `tfk-transformer serve`, each with one text."""

import asyncio
import itertools
import json
import statistics
import time

import aiohttp

HEADERS = {"Content-Type": "application/json"}


class Engine:
    """A client that keeps `at_once` requests open."""

    version = f"aiohttp {aiohttp.__version__}"

    def __init__(self, threads: int, url: str, at_once: int):
        self._url, self._at_once = f"{url}/translate", at_once

    def prepare(self, texts: list[str], count: int):
        """Return the bodies of `count` requests."""
        bodies = (json.dumps({"q": q, "source": "auto", "target": "und"}).encode() for q in texts)
        return list(itertools.islice(itertools.cycle(list(bodies)), count))

    def run(self, inputs):
        """Send all requests."""
        return asyncio.run(self._send(inputs))

    def result(self, outputs):
        """Return how many requests were lost, and percentiles of the milliseconds."""
        seconds, lost = outputs
        cuts = statistics.quantiles(seconds, n=100)
        return {"lost": lost, "p50": 1000 * cuts[49], "p99": 1000 * cuts[98]}

    async def _send(self, bodies):
        remaining, seconds, lost = iter(bodies), [], 0

        async def client() -> None:
            nonlocal lost
            for body in remaining:
                begun = time.perf_counter()
                try:
                    async with session.post(self._url, data=body, headers=HEADERS) as answer:
                        text = await answer.read()
                        lost += answer.status != 200 or b"translatedText" not in text
                except aiohttp.ClientError:
                    lost += 1
                seconds.append(time.perf_counter() - begun)

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(client() for _ in range(self._at_once)))
        return seconds, lost
