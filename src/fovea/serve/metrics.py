"""What Prometheus is line, and the lines of the log: never a picture, its name or what is in it."""

import json
import logging
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

LOUD = ("uvicorn.error", "python_multipart")
TIMES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("fovea_requests", "Requests answered.", ["route", "status"], registry=self.registry)
        self.seconds = Histogram(
            "fovea_request_seconds", "From request to answer.", ["route"], buckets=TIMES, registry=self.registry
        )
        self.bytes = Counter("fovea_request_bytes", "Of bodies that came.", registry=self.registry)
        self.batches = Histogram(
            "fovea_batch_size",
            "Requests that went together.",
            ["lane"],
            buckets=(1, 2, 4, 8, 16, 32),
            registry=self.registry,
        )
        self.at_work = Gauge("fovea_requests_at_work", "At work or waiting.", registry=self.registry)
        self.replicas = Gauge("fovea_replicas", "Of the networks, that are running.", registry=self.registry)
        self.kept = Gauge(
            "fovea_pictures_kept_bytes", "Of pictures that stay between requests.", registry=self.registry
        )

    def batch(self, lane: str, size: int) -> None:
        self.batches.labels(lane).observe(size)

    def answered(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class Lines(logging.Formatter):
    """One JSON object per line. Of errors, and of what others log, only what is fixed: the rest may be a request's."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {"time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}Z"}
        line |= {"level": record.levelname.lower(), "event": str(record.msg).partition("\n")[0]}
        line |= getattr(record, "facts", {}) if record.name == log.name else {"logger": record.name}
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["at"] = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
                          for frame in traceback.extract_tb(record.exc_info[2])]  # fmt: skip
        return json.dumps(line)


log = logging.getLogger("fovea.serve")


def log_to_stderr() -> None:
    """What we do, and what goes wrong elsewhere; not what packages think of single requests and pictures."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    warnings.simplefilter("ignore")  # of decoders, about pictures
    logging.root.handlers, log.handlers, log.propagate = [handler], [handler], False
    logging.root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
    for name in LOUD:
        logging.getLogger(name).setLevel(logging.ERROR)


def note(event: str, level: int = logging.INFO, error: BaseException | None = None, **facts: Any) -> None:
    log.log(level, event, extra={"facts": facts}, exc_info=error)
