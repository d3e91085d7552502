"""The metrics that Prometheus reads at /metrics."""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCH_SIZE_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.requests = Counter(
            "tfk_requests",
            "Requests that were answered.",
            ["method", "path", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "tfk_request_seconds",
            "Seconds from a request's head to the end of its answer.",
            ["path"],
            buckets=LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.texts = Counter("tfk_texts", "Texts of requests.", registry=self.registry)
        self.batch_texts = Histogram(
            "tfk_batch_texts",
            "Texts in a batch.",
            buckets=BATCH_SIZE_BUCKETS,
            registry=self.registry,
        )
        self.queue_texts = Gauge("tfk_queue_texts", "Texts that wait.", registry=self.registry)
        self.in_flight = Gauge(
            "tfk_requests_in_flight", "Requests that are not answered yet.", registry=self.registry
        )
