"""The vault through REST: files, history, checkpoints, and who may see them."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from reverie.vault import service
from tests.server.conftest import Running


@pytest.fixture
def root(running: Running, tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    service.init(running.store, folder)
    return folder


def remembered(running: Running, content: str, user: str | None = None) -> str:
    memory = running.store.space("default", user=user).remember(content)
    service.sync(running.store)
    return memory.id


def test_memory_returns_its_vault_file(running: Running, root: Path) -> None:
    id = remembered(running, "Alec is my boss")
    with running.client() as operator, running.client(running.token("read")) as reader:
        whole = operator.get(f"/api/memory/{id}").json()
        part = reader.get(f"/api/memory/{id}").json()
    assert (root / whole["file"]).is_file() and whole["local_file"] == str(root / whole["file"])
    assert part["file"] == whole["file"] and part["local_file"] is None
    assert str(root) not in str(part)


def test_memory_without_a_vault_has_no_file(running: Running) -> None:
    id = running.store.space("default").remember("Alec is my boss").id
    with running.client() as client:
        shown = client.get(f"/api/memory/{id}").json()
        assert (shown["file"], shown["local_file"]) == (None, None)
        assert client.get("/api/vault/history").status_code == 404
        assert client.post("/api/vault/checkpoint").status_code == 404


def test_vault_history_and_checkpoint_routes_work(running: Running, root: Path) -> None:
    id = remembered(running, "Alec is my boss")
    remembered(running, "Berta is my aunt")
    with running.client(running.token("write")) as client:
        commits = client.get("/api/vault/history").json()["commits"]
        assert [each["subject"].partition(" (")[0] for each in commits] == [
            "default: Berta is my aunt",
            "default: Alec is my boss",
        ]
        (own,) = client.get("/api/vault/history", params={"id": id}).json()["commits"]
        assert own == commits[1]
        assert len(client.get("/api/vault/history", params={"limit": 1}).json()["commits"]) == 1
        assert client.get("/api/vault/history", params={"limit": 101}).status_code == 422
        assert client.get("/api/vault/history", params={"id": "absent00"}).status_code == 404
        (root / "mine.txt").write_text("a person's own\n", encoding="utf-8")
        made = client.post("/api/vault/checkpoint", json={"note": "before the move"}).json()
        assert len(made["commit"]) == 40
        assert client.post("/api/vault/checkpoint").json() == {"commit": None}


def test_vault_routes_reveal_nothing_of_other_users(running: Running, root: Path) -> None:
    secret = remembered(running, "Bob has debts", "bob")
    remembered(running, "Eve likes tea", "eve")
    service.sync(running.store)
    eve = running.token("read", spaces=["default"], user="eve")
    shared = running.token("read", spaces=["default"])
    with running.client(eve) as client:
        assert "Eve likes tea" in client.get("/api/vault/history").text
        assert "Bob" not in client.get("/api/vault/history").text
        asked = client.get("/api/vault/history", params={"id": secret})
        assert asked.status_code == 404
    with running.client(shared) as client:
        history = client.get("/api/vault/history").text
    assert "Bob" not in history and "Eve" not in history and "users" not in history


def test_vault_errors_are_shown_to_the_operator_only(
    running: Running, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    id = remembered(running, "Alec is my boss")
    (root / ".reverie" / "vault.json").write_text("{", encoding="utf-8")
    with running.client(running.token("write")) as client:
        answers: list[httpx2.Response] = [
            client.get("/api/vault/history"),
            client.post("/api/vault/checkpoint"),
        ]
        shown = client.get(f"/api/memory/{id}")
    assert [answer.status_code for answer in answers] == [503, 503]
    assert all(str(root) not in answer.text for answer in answers)
    assert shown.status_code == 200 and shown.json()["file"] is None
    assert str(root) in caplog.text
