"""Failures of the server: logged for the operator, without paths in any answer."""

from __future__ import annotations

import importlib
import json
import logging
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import reverie
from reverie import Settings, errors
from reverie.engine.schema import SCHEMA_VERSION
from reverie.errors import ReverieError
from reverie.server import errors as problem_details
from reverie.server.mcp import server
from reverie.server.proxy import commands
from tests.crash.failing_vfs import FailingVFS, Fault
from tests.server.conftest import CHAT, Running, Serve
from tests.server.test_rights import ROUTES, ask

# Errors about what the caller gave: their message is the caller's, and must be read by them.
OF_CALLERS = {
    errors.InvalidInput,
    errors.NotFound,
    errors.Conflict,
    errors.VersionConflict,
    errors.KeyConflict,
    errors.SubjectExists,
    errors.SequenceConflict,
    errors.ContextTooSmall,
    errors.SharedReadOnly,
    errors.MissingExtra,
    errors.EmbedderMissing,
}
SECRET_PLACE = "/srv/private place/reverie.db"
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def every_error(kind: type[ReverieError] = ReverieError) -> Iterator[type[ReverieError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from every_error(each)


def server_errors() -> list[type[ReverieError]]:
    """Every typed error of the package but those about what the caller gave."""
    # The cases must not depend on which modules were imported before.
    for module in pkgutil.walk_packages(reverie.__path__, "reverie."):
        importlib.import_module(module.name)
    found = [each for each in every_error() if each.__module__.startswith("reverie.")]
    return sorted(set(found) - OF_CALLERS, key=lambda each: each.__name__)


def made(kind: type[ReverieError]) -> ReverieError:
    """An error of any class, with a message that names a place."""
    error = kind.__new__(kind)
    Exception.__init__(error, f"{SECRET_PLACE} cannot be used: repair it")
    return error


@pytest.mark.parametrize("kind", server_errors(), ids=lambda kind: kind.__name__)
def test_server_error_body_contains_no_path(
    kind: type[ReverieError], caplog: pytest.LogCaptureFixture
) -> None:
    problem_details._logged.clear()
    error = made(kind)
    refused = problem_details.problem_from_error(error)

    class Broken:
        def memories(self, **_: Any) -> Any:
            raise error

    bodies = [
        bytes(refused.response().body).decode(),
        bytes(refused.to_openai_response().body).decode(),
        server._error_line(error),
        commands.run_command(Broken(), "list", may_write=True),  # type: ignore[arg-type]
    ]
    assert not any("private" in each for each in bodies), bodies
    assert all(len(each) > 20 for each in bodies)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"{kind.__name__}: {error}"], "the operator reads it once"


def test_caller_error_says_what_was_wrong() -> None:
    for kind in OF_CALLERS:
        assert problem_details.public_detail(made(kind)) == str(made(kind))


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[tuple[reverie.Store, FailingVFS]]:
    vfs = FailingVFS()
    folder = tmp_path / "private place"
    folder.mkdir()
    url = f"sqlite://{folder}/reverie.db?vfs={vfs.vfs_name}"
    settings = Settings(embedder="hashing", upstream="http://127.0.0.1:9/v1")
    with reverie.open(url, settings=settings) as store:
        store.space("here").remember("known")
        yield store, vfs
    vfs.unregister()


def healthy(running: Running) -> tuple[int, str]:
    with running.client("") as client:
        answer = client.get("/healthz")
    return answer.status_code, answer.json()["status"]


def number(running: Running, name: str) -> str:
    with running.client() as client:
        text = client.get("/metrics").text
    return next(line.split()[1] for line in text.splitlines() if line.startswith(name + " "))


def test_failed_sync_is_reported_by_health_metrics_and_log(
    failing: tuple[reverie.Store, FailingVFS], serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    store, vfs = failing
    problem_details._logged.clear()
    running = serve(store)
    assert healthy(running) == (200, "ok")
    assert number(running, "reverie_store_write_failed") == "0.0"
    vfs.arm(Fault("sync", apsw.SQLITE_IOERR_FSYNC, 1))
    with running.client(headers={"X-Reverie-Space": "here"}) as client:
        answers = [client.post("/api/memory/", json={"content": f"lost {n}"}) for n in range(3)]
    assert [answer.status_code for answer in answers] == [500] * 3
    assert {answer.json()["title"] for answer in answers} == {"StoreFailed"}
    assert healthy(running) == (503, "write_failed")
    assert number(running, "reverie_store_write_failed") == "1.0"
    assert number(running, "reverie_store_up") == "1.0"
    first = [record for record in caplog.records if record.name == "reverie.engine"]
    assert len(first) == 1 and first[0].levelno == logging.ERROR
    assert "private%20place" in first[0].getMessage(), "the operator learns which file"


def test_store_upgraded_meanwhile_is_reported_by_answers_health_and_log(
    tmp_path: Path, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "reverie.db"
    with reverie.open(path, settings=Settings(embedder="hashing")) as store:
        running = serve(store)
        with running.client(headers={"X-Reverie-Space": "here"}) as client:
            assert client.post("/api/memory/", json={"content": "zebra"}).status_code == 201
            connection = apsw.Connection(str(path))
            connection.pragma("user_version", SCHEMA_VERSION + 1)
            connection.close()
            for _ in range(2):
                refused = client.post("/api/memory/", json={"content": "horse"})
                assert (refused.status_code, refused.json()["title"]) == (503, "NewerSchema")
                assert "starts again with that version" in refused.json()["detail"]
            assert client.get("/api/memory/").json()["total"] == 1
        assert healthy(running) == (503, "write_failed")
    first = [record for record in caplog.records if record.name == "reverie.upgrade"]
    assert len(first) == 1 and first[0].levelno == logging.ERROR


def test_metrics_work_when_the_store_cannot_be_read(
    failing: tuple[reverie.Store, FailingVFS], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = failing
    running = serve(store)

    def fail(_: reverie.Store) -> Any:
        raise errors.StoreUnavailable("postgresql://private/db cannot be reached")

    monkeypatch.setattr(reverie.Store, "jobs", fail)
    assert number(running, "reverie_store_up") == "0.0"


def test_no_route_reveals_a_path_after_a_failed_sync(
    failing: tuple[reverie.Store, FailingVFS], serve: Serve
) -> None:
    store, vfs = failing
    running = serve(store)
    vfs.arm(Fault("sync", apsw.SQLITE_IOERR_FSYNC, 1, lasting=True))
    chat = {"model": "m", "messages": [{"role": "user", "content": "How are you?"}]}
    params = {"name": "remember", "arguments": {"content": "x"}}
    failed = 0
    with running.client(headers=ACCEPT) as client:
        answers = [client.post("/api/memory/", json={"content": "x"})]
        answers += [ask(client, method, path) for method, path in ROUTES if path != "/login"]
        answers += [client.post(CHAT, json=chat)]
        answers += [client.post("/mcp", json={**CALL, "params": params})]
    for answer in answers:
        failed += answer.status_code >= 500 or '"isError":true' in answer.text
        assert "private place" not in answer.text and "reverie.db" not in answer.text
    assert failed >= 15
    assert "isError" in answers[-1].text and "starts again" in answers[-1].text
    assert json.loads(answers[-2].text)["error"]["code"] == "storefailed"
