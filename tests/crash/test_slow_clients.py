"""Clients without a token that hold connections: the others do not notice them.

Nothing here asserts a time of its own: what a healthy client waits is compared with what it waited
in the same run while nobody else was there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.conftest import PROVE
from tests.crash.processes import connections, cpu_share, descriptors_of, served
from tests.crash.served import TOKEN
from tests.crash.test_load import resident
from tests.figures import figure

SLOW = int(os.environ.get("REVERIE_LOAD_SLOW_CLIENTS", "1000" if PROVE else "200"))
REQUESTS = 1_000 if PROVE else 200
CHUNKS, ATTEMPTS = 5, 4
MAX_TIMES = 3.0
# What most systems allow a process; slow clients want more connections than that.
USUAL_DESCRIPTORS = 1024
# Below this a p99 tells more of the machine's other work than of the server.
FLOOR_SECONDS = 0.005
MAX_GROWTH = 32 * 1024 * 1024
MAX_LOGGED = 64 * 1024
PATIENCE = 30.0
UNREAD = 200
# Bytes that an unread answer may take: what waits in the server, and the connection itself.
MAX_UNREAD = 400 * 1024


@contextlib.contextmanager
def slow_clients(base: str, number: int) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.crash.slow_clients", base.rpartition(":")[2]]
    with subprocess.Popen(
        [*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as attack:
        assert attack.stdout is not None and attack.stdin is not None
        try:
            assert attack.stdout.readline() == b"open\n"
            yield
        finally:
            attack.stdin.close()
            attack.wait(PATIENCE)


def client(base: str) -> httpx2.Client:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx2.Client(base_url=base, headers=headers, timeout=PATIENCE, verify=False)


Ask = Callable[[], int]


@contextlib.contextmanager
def kept_connection(base: str) -> Iterator[Ask]:
    """Asks on one connection."""
    with client(base) as kept:
        yield lambda: kept.post("/api/recall", json={"query": "tea"}).status_code


@contextlib.contextmanager
def new_connections(base: str) -> Iterator[Ask]:
    """Asks on a connection of its own each time, as commands and hooks do."""
    request = f"GET /healthz HTTP/1.1\r\nHost: {base.rpartition('/')[2]}\r\n"
    request += f"Authorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
    port = int(base.rpartition(":")[2])

    def ask() -> int:
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as wire:
            wire.sendall(request.encode())
            received = b""
            while part := wire.recv(65536):
                received += part
        return int(received.split(b" ")[1])

    yield ask


def p99(ask: Ask) -> float:
    """The best p99 of several intervals: the cost of the server, not of other processes."""
    found = []
    for _ in range(CHUNKS):
        took = []
        for _ in range(REQUESTS // CHUNKS):
            began = time.perf_counter()
            assert ask() == 200
            took.append(time.perf_counter() - began)
        found.append(sorted(took)[int(len(took) * 0.99)])
    return min(found)


def times(attacked: float, quiet: float) -> float:
    return max(attacked, FLOOR_SECONDS) / max(quiet, FLOOR_SECONDS)


@pytest.mark.parametrize("way", [kept_connection, new_connections])
@pytest.mark.prove
def test_healthy_client_is_not_delayed_by_slow_clients(
    tmp_path: Path, way: Callable[[str], contextlib.AbstractContextManager[Ask]]
) -> None:
    with served(tmp_path, USUAL_DESCRIPTORS) as (server, base, errors), way(base) as ask:
        p99(ask)
        quiet = p99(ask)
        with slow_clients(base, SLOW):
            p99(ask)
            before = resident(server.pid)
            # Other work of the machine comes in bursts; what the server itself costs stays.
            attacked = p99(ask)
            for _ in range(ATTEMPTS):
                if times(attacked, quiet) > MAX_TIMES:
                    attacked = min(attacked, p99(ask))
            held = connections(server.pid)
            grown = resident(server.pid) - before
        logged = errors.stat().st_size
    print(
        f"{SLOW} slow clients, {way.__name__}: p99 {quiet * 1000:.1f} ms quiet, "
        f"{attacked * 1000:.1f} ms attacked, {times(attacked, quiet):.2f} times; "
        f"{held} connections, {grown / 2**20:.1f} MB more, {logged} bytes logged"
    )
    figure("slow clients", SLOW, "min")
    figure("p99 beside slow clients, times the quiet one", times(attacked, quiet), "max")
    assert held >= min(SLOW, 300), "the slow clients were not there"
    assert times(attacked, quiet) <= MAX_TIMES
    assert grown <= MAX_GROWTH
    assert logged <= MAX_LOGGED


@pytest.mark.prove
def test_connections_never_reach_the_descriptor_limit(tmp_path: Path) -> None:
    descriptors = 128
    with (
        served(tmp_path, descriptors) as (server, base, errors),
        kept_connection(base) as kept,
        new_connections(base) as fresh,
    ):
        assert kept() == 200
        with slow_clients(base, descriptors * 2):
            shares = []
            for _ in range(5):
                assert kept() == 200 and fresh() == 200
                shares.append(cpu_share(server.pid, 1))
            taken, held = descriptors_of(server.pid), connections(server.pid)
            with client(base) as other:
                for number in range(20):
                    answer = other.post("/api/memory/", json={"content": f"thing {number}"})
                    assert answer.status_code == 201
        logged = errors.read_bytes()
    print(
        f"limit {descriptors}: {taken} descriptors in use, {min(shares):.3f} of a core, "
        f"{len(logged)} bytes logged"
    )
    assert taken < descriptors and held >= descriptors // 4
    assert min(shares) < 0.5
    assert len(logged) <= MAX_LOGGED


@pytest.mark.prove
def test_descriptor_exhaustion_is_logged_once_without_a_busy_loop(tmp_path: Path) -> None:
    """The limit is lowered under a running server: what it has open already is more than that."""
    if not hasattr(__import__("resource"), "prlimit"):
        pytest.skip("this platform cannot lower the limit of another process")
    import resource

    with served(tmp_path) as (server, base, errors), new_connections(base) as fresh:
        with kept_connection(base) as kept:
            assert kept() == 200
        held = max(int(path.name) for path in Path(f"/proc/{server.pid}/fd").iterdir())
        _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        # Not one descriptor more than there are.
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (held + 1, hard))
        port = int(base.rpartition(":")[2])
        with contextlib.ExitStack() as stack:
            for _ in range(100):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            shares = [cpu_share(server.pid, 1) for _ in range(5)]
        logged = errors.read_text(encoding="utf-8")
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))
        assert fresh() == 200
    print(f"{min(shares):.3f} of a core, {len(logged)} bytes logged")
    assert logged.count("no connection can be accepted") == 1
    assert len(logged) <= MAX_LOGGED
    assert min(shares) < 0.5


@pytest.mark.prove
def test_unread_responses_take_no_memory(tmp_path: Path) -> None:
    """The largest thing that is served without a token, asked for by many who do not read it."""
    with served(tmp_path) as (server, base, _), new_connections(base) as fresh:
        host = base.rpartition("/")[2]
        request = f"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        assert fresh() == 200
        with contextlib.ExitStack() as stack:

            def ask() -> None:
                wire = stack.enter_context(socket.socket())
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                wire.connect(("127.0.0.1", int(host.rpartition(":")[2])))
                wire.sendall(request * 4)

            for _ in range(10):
                ask()
            assert fresh() == 200
            before = resident(server.pid)
            for _ in range(UNREAD):
                ask()
            assert fresh() == 200
            grown = resident(server.pid) - before
    print(f"{UNREAD} unread answers: {grown / 2**20:.1f} MB more")
    assert grown <= UNREAD * MAX_UNREAD
