"""A server beside a stopped writer: other spaces are answered, and no request waits forever."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import reverie
from reverie import Settings
from tests.crash.stopped_writer import CONTENT, stopped_writer
from tests.server.conftest import Serve


def test_server_stays_healthy_while_a_writer_is_stopped(
    serve: Serve, engine_url: Callable[[str], str]
) -> None:
    address = engine_url("served")
    settings = Settings(busy_timeout=1, embedder="hashing")
    with reverie.open(address, settings=settings) as store:
        for space in ("stuck", "free"):
            store.space(space).remember("the river is cold")
        running, numbers = serve(store), itertools.count()
        with running.client() as client, stopped_writer(address, "stuck") as writer:

            def write(space: str) -> int:
                headers = {"X-Reverie-Space": space}
                body = {"content": f"and deep {next(numbers)}"}
                return client.post("/api/memory/", json=body, headers=headers).status_code

            assert write("stuck") == 503
            assert client.get("/healthz").status_code == 200
            response = client.get("/api/memory/", headers={"X-Reverie-Space": "stuck"})
            assert response.status_code == 200 and "river" in response.text
            # Writers of one file take turns; on PostgreSQL those of another space wait for nobody.
            assert write("free") == (201 if address.startswith("postgresql") else 503)
            writer.go_on()
            assert write("stuck") == 201 and write("free") == 201
        assert CONTENT in {memory.content for memory in store.space("stuck").memories()}
        assert store.verify().ok
