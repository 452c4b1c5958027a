"""The transports of MCP: HTTP behind the guard, and standard input and output."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from reverie.errors import MissingExtra
from reverie.server.mcp import http
from tests.server.agents import ACCEPT, arguments, environment
from tests.server.conftest import Running, Serve

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def test_mcp_http_is_stateless_and_refuses_get(running: Running) -> None:
    with running.client() as client:
        answer = client.post("/mcp", json=LIST, headers=ACCEPT)
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
        assert "mcp-session-id" not in answer.headers
        for method in ("GET", "DELETE", "PUT", "OPTIONS"):
            refused = client.request(method, "/mcp", headers=ACCEPT)
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


def test_mcp_http_requires_token_host_and_origin(running: Running) -> None:
    with running.client("") as client:
        assert client.post("/mcp", json=LIST, headers=ACCEPT).status_code == 401
    with running.client() as client:
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Origin": "https://evil.example"}, 403),
            ({"Authorization": "Bearer rv_wrong"}, 401),
        ):
            answer = client.post("/mcp", json=LIST, headers={**ACCEPT, **headers})
            assert answer.status_code == status


def test_query_string_that_is_not_utf8_is_refused(running: Running) -> None:
    with running.client() as client:
        refused = client.get("/api/memory/?space=%ff")
        assert (refused.status_code, refused.json()["detail"]) == (422, "the query is not UTF-8")
        answer = client.post("/mcp?space=%ff", json=LIST, headers=ACCEPT)
        assert answer.json()["error"]["message"] == "the query is not UTF-8"


def test_mcp_empty_user_is_refused(running: Running) -> None:
    """A variable that was never set must not turn one user's memory into everyone's."""
    with running.client() as client:
        for query, headers in (("?user=", {}), ("", {"X-Reverie-User": ""})):
            refused = client.get(f"/api/memory/{query}", headers=headers)
            assert refused.status_code == 422, refused.text
            answer = client.post(f"/mcp{query}", json=LIST, headers={**ACCEPT, **headers})
            assert "must not be empty" in answer.json()["error"]["message"]


def test_server_without_the_mcp_extra_says_what_to_install(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    monkeypatch.delitem(sys.modules, "reverie.server.mcp.server")
    monkeypatch.delattr("reverie.server.mcp.server")
    running = serve()
    with running.client() as client:
        answer = client.post("/mcp", json=LIST, headers=ACCEPT)
        assert answer.status_code == 501
        assert "reverie[mcp]" in answer.json()["detail"]
        assert client.get("/healthz").status_code == 200


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "a test", "version": "1"},
    },
}


def piped(store: Path, *lines: str) -> list[dict[str, Any]]:
    """What a process answers to lines that come all at once."""
    done = subprocess.run(
        [sys.executable, "-m", "reverie", *arguments(store)],
        input="\n".join(lines) + "\n",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_mcp_stdio_answers_unreadable_lines(tmp_path: Path) -> None:
    odd = '{"jsonrpc": "2.0", "id": 7, "method": 5}'
    replies = piped(tmp_path / "own.db", "no json", json.dumps(HELLO), "[1, 2]", odd, "{")
    assert sorted(str(each["id"]) for each in replies) == ["1", "None", "None", "None", "None"]


def test_mcp_stdio_answers_every_request_before_it_ends(tmp_path: Path) -> None:
    calls = [
        {
            "jsonrpc": "2.0",
            "id": f"call {n}",
            "method": "tools/call",
            "params": {"name": "remember", "arguments": {"content": f"Fact number {n}"}},
        }
        for n in range(20)
    ]
    replies = piped(tmp_path / "own.db", json.dumps(HELLO), *map(json.dumps, calls))
    kept = [
        each["result"]["structuredContent"]["remembered"] for each in replies if each["id"] != 1
    ]
    assert kept == [True] * 20


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has said hello."""
    with subprocess.Popen(
        [sys.executable, "-m", "reverie", *arguments(tmp_path / "own.db")],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdin and started.stdout
        started.stdin.write(json.dumps(HELLO) + "\n")
        started.stdin.flush()
        assert json.loads(started.stdout.readline())["id"] == 1
        yield started
        started.kill()


def test_mcp_stdio_ends_quietly_when_its_client_is_gone(process: subprocess.Popen[str]) -> None:
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.write('{"jsonrpc": "2.0", "id": 2, "method": "ping"}\n')
    process.stdin.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == ""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_mcp_stdio_ends_with_a_signal(
    process: subprocess.Popen[str], number: signal.Signals
) -> None:
    process.send_signal(number)
    assert process.wait(30) == -number
    assert process.stderr and process.stderr.read() == ""


def test_mcp_library_that_failed_to_load_is_loaded_by_the_next_request(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = (
        http._load_manager,
        [OSError("Too many open files"), MissingExtra("MCP", "mcp")],
    )

    def loaded() -> Any:
        if failures:
            raise failures.pop(0)
        return real()

    monkeypatch.setattr(http, "_load_manager", loaded)
    with serve().client() as client:
        answers = [client.post("/mcp", json=LIST, headers=ACCEPT, timeout=10) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [500, 501, 200]


def test_mcp_endpoint_answers_after_a_restart() -> None:
    endpoint, ping = http.McpEndpoint(), {"jsonrpc": "2.0", "id": 1, "method": "ping"}

    async def ask() -> int:
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(endpoint), base_url="http://x")
        async with endpoint.lifespan(None), client, asyncio.timeout(10):
            return (await client.post("/", json=ping, headers=ACCEPT)).status_code

    assert [asyncio.run(ask()), asyncio.run(ask())] == [200, 200]
