"""The table of rights: every route, and what each caller gets. A route that is not in it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from reverie.model import RIGHTS
from reverie.server.mcp import server
from tests.figures import figure
from tests.server.conftest import Running, Serve
from tests.tables import cases_in_one_test

# What a route asks for. None: everybody may.
ROUTES: dict[tuple[str, str], str | None] = {
    ("GET", "/healthz"): None,
    ("POST", "/login"): None,
    ("GET", "/metrics"): "admin",
    ("GET", "/api/whoami"): "read",
    ("GET", "/api/spaces"): "read",
    ("GET", "/api/memory/"): "read",
    ("POST", "/api/memory/"): "write",
    ("POST", "/api/memory/batch"): "write",
    ("GET", "/api/memory/{id}"): "read",
    ("PUT", "/api/memory/{id}"): "write",
    ("PATCH", "/api/memory/{id}"): "write",
    ("DELETE", "/api/memory/{id}"): "write",
    ("POST", "/api/memory/{id}/restore"): "write",
    ("POST", "/api/memory/{id}/erase"): "admin",
    ("POST", "/api/recall"): "read",
    ("GET", "/api/categories"): "read",
    ("GET", "/api/profile"): "read",
    ("GET", "/api/sessions"): "read",
    ("POST", "/api/sessions"): "write",
    ("POST", "/api/sessions/follow"): "write",
    ("GET", "/api/sessions/{id}"): "read",
    ("GET", "/api/sessions/{id}/events"): "read",
    ("POST", "/api/sessions/{id}/events"): "write",
    ("GET", "/api/sessions/{id}/memories"): "read",
    ("GET", "/api/sessions/{id}/recalls"): "read",
    ("POST", "/api/sessions/{id}/context"): "read",
    ("GET", "/api/sessions/{id}/summary"): "read",
    ("PUT", "/api/sessions/{id}/summary"): "write",
    ("GET", "/api/sessions/{id}/scratchpad"): "read",
    ("PUT", "/api/sessions/{id}/scratchpad"): "write",
    ("DELETE", "/api/sessions/{id}/scratchpad"): "write",
    ("POST", "/api/sessions/{id}/refresh"): "write",
    ("POST", "/api/sessions/{id}/hide"): "write",
    ("POST", "/api/sessions/{id}/restore"): "write",
    ("POST", "/api/sessions/{id}/erase"): "admin",
    ("GET", "/api/proposals"): "read",
    ("POST", "/api/proposals/{id}/accept"): "write",
    ("POST", "/api/proposals/{id}/reject"): "write",
    ("GET", "/api/jobs"): "admin",
    ("POST", "/api/jobs/{space}/{job}/retry"): "admin",
    ("DELETE", "/api/jobs/{space}/{job}"): "admin",
    ("GET", "/api/export"): "read",
    ("POST", "/api/import"): "write",
    ("GET", "/api/changes"): "read",
    ("GET", "/api/vault/history"): "read",
    ("POST", "/api/vault/checkpoint"): "write",
}
BODIES: dict[str, Any] = {
    "/login": {"code": "x"},
    "/api/memory/": {"content": "new"},
    "/api/memory/batch": {"items": [{"content": "new"}]},
    "/api/memory/{id}": {"content": "changed"},
    "/api/recall": {"query": "new"},
    "/api/sessions/follow": {"history": [{"role": "user", "content": "x"}]},
    "/api/sessions/{id}/events": {"messages": [{"role": "user", "content": "x"}]},
    "/api/sessions/{id}/summary": {"text": "x", "upper": 0, "expected_epoch": 0},
    "/api/sessions/{id}/scratchpad": {"items": ["x"]},
}
# What is passed on to the upstream: what a path there asks for. None but the operator reaches more.
UPSTREAM: dict[tuple[str, str], str] = {
    ("GET", "/v1/models"): "read",
    ("GET", "/v1/models/{id}"): "read",
    ("POST", "/v1/chat/completions"): "write",
    ("POST", "/v1/completions"): "write",
    ("POST", "/v1/responses"): "write",
    ("POST", "/v1/messages"): "write",
    ("POST", "/v1/embeddings"): "write",
    ("GET", "/v1/files/{id}/content"): "admin",
    ("POST", "/v1/files"): "admin",
    ("DELETE", "/v1/models/{id}"): "admin",
    ("GET", "/v1/responses/{id}"): "admin",
    ("GET", "/v1/anything/else"): "admin",
}
# What a token may know of itself, whatever space a request names.
OF_ITSELF = {"/api/whoami", "/api/spaces"}
CALLERS = ("none", "read", "write", "admin", "other space", "other user")


@pytest.fixture(scope="module")
def running_and_tokens(serve_once: Serve) -> Iterator[tuple[Running, dict[str, str]]]:
    running = serve_once()
    store = running.store
    store.space("here").remember("known")
    tokens = {
        "none": "",
        **{right: running.token(right, spaces=["here"]) for right in ("read", "write")},
        "admin": running.token("admin"),
        "other space": running.token("write", spaces=["elsewhere"]),
        "other user": running.token("write", spaces=["here"], user="bob"),
    }
    yield running, tokens


def ask(client: httpx2.Client, method: str, path: str) -> httpx2.Response:
    filled = path.format(id="absent00", space="here", job="1")
    body = BODIES.get(path) if method in {"POST", "PUT", "PATCH"} else None
    scope = {"space": "here", "user": "ana", "wait": "false"}
    return client.request(method, filled, params=scope, json=body)


def allowed(caller: str, right: str | None) -> int | None:
    """The status of who is turned away; None: not turned away."""
    if right is None:
        return None
    if caller == "none":
        return 401
    held = caller if caller in RIGHTS else "write"
    short = RIGHTS.index(held) < RIGHTS.index(right)
    return 403 if short or caller in {"other space", "other user"} else None


@cases_in_one_test(
    "caller, method, path",
    [(caller, method, path) for caller in CALLERS for method, path in sorted(ROUTES)],
)
def test_every_route_and_caller_has_the_status_of_the_table(
    running_and_tokens: tuple[Running, dict[str, str]], caller: str, method: str, path: str
) -> None:
    running, tokens = running_and_tokens
    with running.client(tokens[caller]) as client:
        answer = ask(client, method, path)
    turned_away = allowed(caller, ROUTES[method, path])
    figure("cells", 1)
    if path in OF_ITSELF and caller.startswith("other"):
        assert answer.status_code == 200
        assert ('"here"' in answer.text) == (caller == "other user")
    elif turned_away is not None:
        assert answer.status_code == turned_away, answer.text
        assert "known" not in answer.text
    elif path != "/login":
        assert answer.status_code in {200, 201, 204, 404, 422}, answer.text
    else:
        assert answer.status_code == 403  # no such code, whoever asks


@cases_in_one_test(
    "caller, method, path",
    [(caller, method, path) for caller in CALLERS for method, path in sorted(UPSTREAM)],
)
def test_every_upstream_path_and_caller_has_the_status_of_the_table(
    running_and_tokens: tuple[Running, dict[str, str]], caller: str, method: str, path: str
) -> None:
    """This server has no upstream: a caller who is let through gets the error that says so."""
    running, tokens = running_and_tokens
    body = {"messages": [{"role": "user", "content": "x"}]} if method == "POST" else None
    with running.client(tokens[caller]) as client:
        answer = client.request(method, path.format(id="m1"), json=body)
    right = UPSTREAM[method, path]
    held = caller if caller in RIGHTS else "write"
    short = caller != "none" and RIGHTS.index(held) < RIGHTS.index(right)
    assert answer.status_code == (401 if caller == "none" else 403 if short else 503), answer.text


def test_rights_table_has_every_route(running_and_tokens: tuple[Running, dict[str, str]]) -> None:
    running, _ = running_and_tokens
    with running.client() as client:
        described = client.get("/openapi.json").json()["paths"]
    found = {
        (method.upper(), path)
        for path, methods in described.items()
        for method in methods
        if not path.startswith("/v1/")
    }
    assert found == set(ROUTES)


def test_routes_outside_openapi_are_public_pages_or_need_a_token(
    running_and_tokens: tuple[Running, dict[str, str]],
) -> None:
    """Routes outside the description: pages for everybody, all else behind a token."""
    running, _ = running_and_tokens
    with running.client("") as client:
        for path in ("/v1/models", "/mcp", "/api", "/api/memory", "/page", "/metrics/", "/v1/"):
            assert client.get(path).status_code == 401, path


# The route of REST that does what a tool of MCP does.
TOOLS = {
    "remember": ("POST", "/api/memory/"),
    "recall": ("POST", "/api/recall"),
    "memories": ("GET", "/api/memory/"),
    "revise": ("PUT", "/api/memory/{id}"),
    "forget": ("DELETE", "/api/memory/{id}"),
    "history": ("GET", "/api/memory/{id}"),
    "context": ("POST", "/api/sessions/{id}/context"),
}


def test_mcp_tool_needs_the_right_of_its_route() -> None:
    assert {tool: ROUTES[route] for tool, route in TOOLS.items()} == dict(server.TOOL_RIGHTS)


@cases_in_one_test("caller, tool", [(caller, tool) for caller in CALLERS for tool in sorted(TOOLS)])
def test_every_mcp_tool_and_caller_has_the_status_of_the_table(
    running_and_tokens: tuple[Running, dict[str, str]], caller: str, tool: str
) -> None:
    """A call by hand, as a client would make it that does not ask which tools there are."""
    running, tokens = running_and_tokens
    arguments = {
        "remember": {"content": f"by {caller}"},
        "recall": {"query": "known"},
        "memories": {},
        "context": {},
        "revise": {"id": "absent00", "content": "x"},
    }.get(tool, {"id": "absent00"})
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body = {**call, "params": {"name": tool, "arguments": arguments}}
    headers = {"Accept": "application/json, text/event-stream", "X-Reverie-Space": "here"}
    with running.client(tokens[caller], headers={**headers, "X-Reverie-User": "ana"}) as client:
        answer = client.post("/mcp", json=body)
    turned_away = allowed(caller, ROUTES[TOOLS[tool]])
    figure("cells", 1)
    if turned_away == 401:
        assert answer.status_code == 401
        return
    assert answer.status_code == 200, answer.text
    result = answer.json()["result"]
    why = ("may read; this needs write", "for other spaces", "for another user")
    refused = any(each in answer.text for each in why)
    assert refused == (turned_away == 403), answer.text
    assert not refused or (result["isError"] and "known" not in answer.text)


def test_read_token_creates_no_space_and_no_user(running: Running) -> None:
    """Neither a space nor a user comes into being because somebody looked for it."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body = {**call, "params": {"name": "context", "arguments": {"query": "known"}}}
    headers = {"Accept": "application/json, text/event-stream", "X-Reverie-Session": "s"}
    with running.client(running.token("read")) as client:
        for (method, path), right in ROUTES.items():
            if right == "read":
                assert ask(client, method, path).status_code in {200, 404}, path
        asked = client.post("/mcp?space=here&user=ana", json=body, headers=headers)
    assert "Nothing is remembered yet." in asked.text
    assert running.store.spaces() == []
