"""Who is let in, before any route is reached."""

from __future__ import annotations

from tests.server.conftest import Running


def test_health_is_one_word_for_everybody(running: Running) -> None:
    with running.client("") as client:
        answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_without_a_token_there_is_nothing(running: Running) -> None:
    with running.client("") as client:
        answer = client.get("/api/memory/")
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
