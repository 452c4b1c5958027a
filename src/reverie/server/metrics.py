"""Metrics for Prometheus: requests and their duration, jobs, memories, connections."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reverie import __version__
from reverie.model import Job, SpaceInfo

JOB_STATES = ("ready", "running", "parked")


class Metrics:
    """The metrics of one server. No label ever holds a name that a user chose."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        names = ("method", "route", "status")
        self._requests = Counter(
            "reverie_requests", "Requests answered.", names, registry=self._registry
        )
        self._seconds = Histogram(
            "reverie_request_seconds",
            "Until the answer began.",
            ("route",),
            registry=self._registry,
        )
        self._jobs = self._gauge("jobs", "Jobs by state.", "state")
        self._memories = self._gauge("memories", "Memories by kind.", "kind")
        self._spaces = self._gauge("spaces", "Spaces.")
        self._up = self._gauge("store_up", "Whether it can be read.")
        self._failed = self._gauge(
            "store_write_failed",
            "1 after a failed write or sync: nothing is stored until the server starts again.",
        )
        self._damaged = self._gauge(
            "damaged_entries", "Damaged entries that were left out of answers."
        )
        self._gauge("info", "This server.", "version").labels(__version__).set(1)

    def _gauge(self, name: str, description: str, *labels: str) -> Gauge:
        return Gauge(f"reverie_{name}", description, labels, registry=self._registry)

    def gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read when the metrics are collected."""
        self._gauge(name, description).set_function(value)

    def observe_request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def set_write_failed(self, *, failed: bool) -> None:
        self._failed.set(failed)

    def set_damaged(self, damaged: int) -> None:
        self._damaged.set(damaged)

    def set_store_state(self, jobs: list[Job] | None, spaces: list[SpaceInfo] | None) -> None:
        """Update the gauges of the store. None: it cannot be read, and they keep their values."""
        self._up.set(jobs is not None and spaces is not None)
        if jobs is None or spaces is None:
            return
        states = collections.Counter(job.state for job in jobs)
        for state in JOB_STATES:
            self._jobs.labels(state).set(states[state])  # type: ignore[index]
        self._spaces.set(len(spaces))
        self._memories.labels("fact").set(sum(space.facts for space in spaces))
        self._memories.labels("note").set(sum(space.notes for space in spaces))

    def render(self) -> bytes:
        return generate_latest(self._registry)


class MetricsMiddleware:
    """Counts and times every request by its route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at = time.perf_counter()

        async def counting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path_format", "other")
                seconds = time.perf_counter() - started_at
                self._metrics.observe_request(_method(scope), route, message["status"], seconds)
            await send(message)

        await self._app(scope, receive, counting_send)


def _method(scope: Scope) -> str:
    known = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
    return scope["method"] if scope["method"] in known else "OTHER"
