"""Malformed messages over both transports: no crash, no hang, no growth.

500 messages by default; with --prove it is 5,000, and how much the process grew counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import PROVE
from tests.figures import figure
from tests.server.agents import arguments, environment
from tests.server.mcp import malformed

MANY = 5_000 if PROVE else 500
# Caches, arenas and threads are what they will be after so many.
WARM = 500 if PROVE else 100
# A process that starts on a busy machine does not hang.
START_SECONDS = 60
LONGEST_SECONDS = 5.0
MAX_GROWTH = 20 * 1024 * 1024
AT_ONCE = 16
SEED = 20
TOKEN = "a token of the operator, long enough"


@contextlib.contextmanager
def started(*command: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of ours with pipes to it, gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reverie", *command],
        env={**environment(), **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def grown_to(process: subprocess.Popen[bytes]) -> int:
    """Bytes of memory that a process has now."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def report(what: str, statuses: Counter[Any], grown: int) -> None:
    figure("messages", MANY)
    figure("growth of memory", grown / 2**20, "max")
    print(f"{what}: {MANY} messages, {dict(statuses)}, grew by {grown / 1024 / 1024:.1f} MB")
    if PROVE:
        assert grown <= MAX_GROWTH


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_malformed_mcp_requests_over_http_do_not_stop_the_server(tmp_path: Path) -> None:
    with started(
        "serve", "--port", "0", "--json", "--url", str(tmp_path / "fuzzed.db"), REVERIE_TOKEN=TOKEN
    ) as process:
        assert process.stdout is not None
        places = json.loads(b"".join(iter(process.stdout.readline, b"}\n")) + b"}")
        statuses, grown = asyncio.run(_sent(places["mcp"], process))
        assert process.poll() is None
    assert sum(statuses.values()) == MANY + WARM
    figure("answers of 5xx", sum(n for status, n in statuses.items() if status >= 500))
    assert all(status < 500 for status in statuses), statuses
    report("HTTP", statuses, grown)


async def _sent(url: str, process: subprocess.Popen[bytes]) -> tuple[Counter[int], int]:
    statuses: Counter[int] = Counter()
    chance = random.Random(SEED)
    limit = asyncio.Semaphore(AT_ONCE)
    token = (b"Authorization", f"Bearer {TOKEN}".encode())
    async with httpx2.AsyncClient(timeout=LONGEST_SECONDS) as client:

        async def send(body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
            async with limit:
                while True:
                    answer = await client.post(url, content=body, headers=[*headers, token])
                    if answer.status_code != 429:
                        break
                    await asyncio.sleep(float(answer.headers["retry-after"]))
                statuses[answer.status_code] += 1
                if answer.content and "json" in answer.headers.get("content-type", ""):
                    answer.json()

        async def send_all(seed: int, count: int) -> None:
            await asyncio.gather(
                *(send(body, malformed.headers(chance)) for body in malformed.bodies(seed, count))
            )

        await send_all(SEED + 1, WARM)
        before = grown_to(process)
        for part in range(0, MANY, 250):
            await send_all(SEED + 2 + part, 250)
        grown = grown_to(process) - before
        call = {"name": "remember", "arguments": {"content": "The boat is blue"}}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        answer = await client.post(
            url, json=asked, headers=[(b"Accept", b"application/json, text/event-stream"), token]
        )
        assert answer.json()["result"]["structuredContent"]["remembered"] is True
    return statuses, grown


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_malformed_mcp_requests_on_stdio_do_not_stop_the_server(tmp_path: Path) -> None:
    with started(*arguments(tmp_path / "fuzzed.db")) as process:
        stdio = _Stdio(process)
        stdio.send({"id": "hello", "method": "initialize", "params": _HELLO})
        stdio.await_id("hello", START_SECONDS)
        stdio.send({"method": "notifications/initialized"})
        for body in malformed.bodies(SEED + 1, WARM):
            stdio.write(body)
        stdio.ping("warm")
        before = grown_to(process)
        for number, body in enumerate(malformed.bodies(SEED + 2, MANY)):
            stdio.write(body)
            if number % 25 == 24:
                stdio.ping(f"ping-{number}")
        grown = grown_to(process) - before
        call = {"name": "remember", "arguments": {"content": "The boat is blue"}}
        stdio.send({"id": "last", "method": "tools/call", "params": call})
        assert stdio.await_id("last")["result"]["structuredContent"]["remembered"] is True
        assert process.poll() is None
    report("stdio", stdio.statuses, grown)


_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "a test", "version": "1"},
}


class _Stdio:
    """A client that writes whatever it likes, and takes what comes as it comes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.statuses: Counter[str] = Counter()
        for stream, keep in ((process.stdout, True), (process.stderr, False)):
            threading.Thread(target=self._drain, args=(stream, keep), daemon=True).start()

    def _drain(self, stream: Any, keep: bool) -> None:
        for line in stream:
            if keep:
                self._lines.put(line)

    def write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def ping(self, id: str) -> None:
        self.send({"id": id, "method": "ping"})
        assert self.await_id(id)["result"] == {}

    def await_id(self, id: str, seconds: float = LONGEST_SECONDS) -> dict[str, Any]:
        """The answer with this id; every line before it is one message of the protocol."""
        while True:
            reply: dict[str, Any] = json.loads(self._lines.get(timeout=seconds))
            assert reply["jsonrpc"] == "2.0"
            if reply.get("id") == id:
                return reply
            self.statuses["error" if "error" in reply else "result"] += 1
