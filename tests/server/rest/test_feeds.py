"""Feeds of changes: one poll serves all, and each reports every change of its own scope only."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from reverie import Space, Store
from reverie.errors import StoreUnavailable
from reverie.server import change_watcher
from reverie.server.guard import Limits
from reverie.server.rest import admin
from tests.server.conftest import Running, Serve

PATIENCE = 30.0


class Feed:
    """An open feed, read by a thread of its own."""

    def __init__(self, client: httpx2.Client, **params: str) -> None:
        self._answer = client.send(
            client.build_request("GET", "/api/changes", params=params), stream=True
        )
        self.status = self._answer.status_code
        self.changes: list[dict[str, Any]] = []
        self.comments: list[str] = []
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(httpx2.HTTPError, httpx2.StreamError):
            for line in self._answer.iter_lines():
                if line.startswith("data: "):
                    self.changes.append(json.loads(line.removeprefix("data: ")))
                elif line.startswith(": "):
                    self.comments.append(line.removeprefix(": "))
        self.over.set()

    def close(self) -> None:
        """Go away, although a thread still reads."""
        wire = self._answer.extensions["network_stream"].get_extra_info("socket")
        with contextlib.suppress(OSError):
            wire.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    @property
    def positions(self) -> list[int]:
        return [change["position"] for change in self.changes]


@contextlib.contextmanager
def feeds(running: Running, number: int, token: str | None = None, **params: str) -> Iterator[Any]:
    most = httpx2.Limits(max_connections=number)
    with running.client(token, limits=most) as client:
        opened = [Feed(client, **params) for _ in range(number)]
        eventually(lambda: all(feed.comments for feed in opened))
        yield opened
        for feed in opened:
            feed.close()


def eventually(true: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.02)


class Reads:
    """Counts how often the store is asked for changes and for positions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changes = self.positions = 0
        changes, positions = Space.changes, Store.positions

        def counted_changes(*given: Any, **options: Any) -> Any:
            self.changes += 1
            return changes(*given, **options)

        def counted_positions(*given: Any, **options: Any) -> Any:
            self.positions += 1
            return positions(*given, **options)

        monkeypatch.setattr(Space, "changes", counted_changes)
        monkeypatch.setattr(Store, "positions", counted_positions)

    def settle(self) -> None:
        """Wait until the feeds have stopped looking for themselves."""
        before = -1
        while before != self.changes:
            before, looked = self.changes, self.positions
            eventually(lambda looked=looked: self.positions >= looked + 3)


def test_idle_feeds_share_one_query(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(monkeypatch)
    running.store.space("default").remember("known before")
    with feeds(running, 40):
        reads.settle()
        before, looked = reads.changes, reads.positions
        eventually(lambda: reads.positions >= looked + 8)
        assert reads.changes == before


def test_store_is_not_polled_without_a_feed(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(monkeypatch)
    with feeds(running, 3):
        reads.settle()
    eventually(lambda: not running.server_context.connections.open)
    time.sleep(1)
    before = reads.positions
    time.sleep(1)
    assert reads.positions == before


def test_every_feed_gets_every_change_once_and_in_order(running: Running) -> None:
    space = running.store.space("default")
    with feeds(running, 5) as opened:
        for number in range(30):
            space.remember(f"thing {number}")
        eventually(lambda: all(len(feed.changes) >= 30 for feed in opened))
        assert {tuple(feed.positions) for feed in opened} == {tuple(range(1, 31))}
    with feeds(running, 1, after="10") as (again,):
        eventually(lambda: len(again.changes) >= 20)
        assert again.positions == list(range(11, 31))


def test_feed_sees_writes_of_another_process(running: Running) -> None:
    with feeds(running, 1, space="elsewhere") as (feed,):
        written = "import sys, reverie; s = reverie.open(sys.argv[1], embedder='hashing'); "
        written += "s.space('elsewhere').remember('from another process'); s.close()"
        subprocess.run([sys.executable, "-c", written, running.store.url], check=True)
        eventually(lambda: feed.positions == [1])


def test_feed_contains_nothing_of_other_scopes(running: Running) -> None:
    """A change of another user wakes it, and it finds nothing of its own."""
    ana = running.token("read", spaces=["a"], user="ana")
    with feeds(running, 1, token=ana) as (feed,):
        running.store.space("b").remember("canary of another space")
        running.store.space("a", user="bob").remember("canary of another user")
        running.store.space("a", user="ana").remember("hers")
        eventually(lambda: feed.changes)
        time.sleep(1)
        assert [change["user"] for change in feed.changes] == ["ana"]


def test_idle_feed_sends_heartbeats(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "HEARTBEAT_SECONDS", 0.2)
    with feeds(running, 1) as (feed,):
        eventually(lambda: feed.comments.count("still here") >= 3)


def test_feed_of_a_user_sends_heartbeats_while_others_write(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "HEARTBEAT_SECONDS", 1.5)
    monkeypatch.setattr(change_watcher, "POLL_SECONDS", 0.05)
    running.store.space("a", user="ana").remember("hers")
    with feeds(running, 1, token=running.token("read", spaces=["a"], user="ana")) as (feed,):
        for number in range(200):
            if feed.comments.count("still here") >= 2:
                break
            running.store.space("a", user="bob").remember(f"his, number {number}")
            time.sleep(0.1)
        assert feed.comments.count("still here") >= 2


def test_feed_ends_when_the_server_stops(running: Running) -> None:
    with feeds(running, 3) as opened:
        running.server_context.stopping.set()
        eventually(lambda: all(feed.over.is_set() for feed in opened))


def test_feed_ends_when_the_store_is_unavailable(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("no route")

    with feeds(running, 2) as opened:
        monkeypatch.setattr(Store, "positions", away)
        monkeypatch.setattr(Space, "changes", away)
        monkeypatch.setattr(Space, "position", away)
        eventually(lambda: all(feed.over.is_set() for feed in opened))
    with running.client() as client:
        assert client.get("/api/changes", headers={"Last-Event-ID": "1"}).status_code == 503
    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    # At most one line, without a traceback: the same failure is logged once a minute.
    assert [record.getMessage() for record in logged] in ([], ["StoreUnavailable: no route"])
    assert not any(record.exc_info for record in logged)


def test_feeds_are_limited_by_token(serve: Serve) -> None:
    running = serve(limits=Limits(feeds=2, total_feeds=3))
    one, other = running.token("read"), running.token("read")
    with feeds(running, 2, token=one) as opened, running.client(one) as client:
        refused = client.get("/api/changes")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert refused.headers["content-type"] == "application/problem+json"
        assert "close one" in refused.json()["detail"]
        assert client.get("/api/memory/").status_code == 200
        with feeds(running, 1, token=other), running.client(other) as late:
            assert late.get("/api/changes").status_code == 503
        assert not any(feed.over.is_set() for feed in opened)
    eventually(lambda: running.server_context.quotas.feeds.held == 0)
