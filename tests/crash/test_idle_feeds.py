"""Feeds on which nothing happens: what they cost the server."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

import httpx2
import pytest

from tests.conftest import PROVE
from tests.crash.processes import cpu_share, served
from tests.crash.served import TOKEN

FEEDS = int(os.environ.get("REVERIE_LOAD_FEEDS", "200" if PROVE else "60"))
SECONDS = 10.0 if PROVE else 2.0
# Of a core: one look for all of them four times a second, and a heartbeat of each now and then.
MAX_SHARE = 0.01 + FEEDS * 0.0002
PATIENCE = 30.0


def feed(port: int) -> socket.socket:
    """An open feed, of which the first line has come."""
    wire = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    request = f"GET /api/changes HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    wire.sendall(f"{request}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
    received = b""
    while b": reverie" not in received:
        part = wire.recv(65536)
        assert part, received
        received += part
    return wire


def quietest(pid: int, seconds: float) -> float:
    """The smallest share of a core that a process uses in one of several intervals."""
    return min(cpu_share(pid, seconds / 2) for _ in range(2))


@pytest.mark.prove
def test_idle_change_feeds_use_little_cpu(tmp_path: Path) -> None:
    with served(tmp_path, REVERIE_MAX_FEEDS=str(FEEDS)) as (server, base, _):
        port = int(base.rpartition(":")[2])
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(base_url=base, headers=headers, timeout=PATIENCE) as client:
            assert client.post("/api/memory/", json={"content": "known"}).status_code == 201
            time.sleep(1)
            without = quietest(server.pid, SECONDS)
            with contextlib.ExitStack() as stack:
                wires = [stack.enter_context(contextlib.closing(feed(port))) for _ in range(FEEDS)]
                time.sleep(1)
                idle = quietest(server.pid, SECONDS)
                assert client.post("/api/memory/", json={"content": "new"}).status_code == 201
                for wire in wires:
                    received = b""
                    while b"event: change" not in received:
                        received += wire.recv(65536)
    print(f"{without:.4f} of a core without feeds, {idle:.4f} with {FEEDS} idle ones")
    assert idle - without <= MAX_SHARE
