"""``reverie serve`` and ``reverie token``, as a person or a script runs them."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.conftest import CommandLine


@contextmanager
def served(tmp_path: Path, *options: str, **environment: str) -> Iterator[dict[str, Any]]:
    """A server of its own process, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reverie", "serve", "--port", "0", "--json", *options],
        env={
            **os.environ,
            "XDG_DATA_HOME": str(tmp_path),
            "REVERIE_EMBEDDER": "hashing",
            **environment,
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "}\n")
        yield json.loads("".join(lines) + "}")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in {0, -signal.SIGTERM}
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_serve_without_options_admits_only_its_user(tmp_path: Path) -> None:
    with served(tmp_path) as places:
        token = Path(places["token"])
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        base = places["rest"].removesuffix("/docs")
        assert base.startswith("http://127.0.0.1:")
        code = places["page"].partition("#code=")[2]
        assert httpx2.post(f"{base}/login", json={"code": code}).json() == {
            "token": token.read_text(encoding="utf-8").strip()
        }
        headers = {"Authorization": f"Bearer {token.read_text(encoding='utf-8').strip()}"}
        made = httpx2.post(f"{base}/api/memory/", json={"content": "kept"}, headers=headers)
        assert made.status_code == 201
    before = token.read_text(encoding="utf-8")
    with served(tmp_path) as places:
        assert token.read_text(encoding="utf-8") == before
        base = places["rest"].removesuffix("/docs")
        assert httpx2.get(f"{base}/api/memory/", headers=headers).json()["total"] == 1


def test_serve_learns_from_turns_without_another_process(tmp_path: Path) -> None:
    with served(tmp_path, REVERIE_TOKEN="x" * 40) as places:
        base = places["rest"].removesuffix("/docs")
        with httpx2.Client(base_url=base, headers={"Authorization": "Bearer " + "x" * 40}) as ask:
            body = {"messages": [{"role": "user", "content": "Remember that I like tea."}]}
            ask.post("/api/sessions/chat/events", json=body)
            with ask.stream("GET", "/api/changes", params={"after": "1"}) as feed:
                change = next(line for line in feed.iter_lines() if line.startswith("data: "))
        assert json.loads(change.removeprefix("data: "))["op"] == "remember"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_serve_on_a_public_address_requires_a_token(reverie: CommandLine, host: str) -> None:
    message = reverie.error("serve", "--host", host, "--port", "0", code=2)
    assert "REVERIE_TOKEN" in message


def test_serve_refuses_an_issued_or_short_token_as_the_operators(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = reverie.text("token", "create", "phone", "--right", "read").strip()
    monkeypatch.setenv("REVERIE_TOKEN", secret)
    assert "another variable" in reverie.error("serve", "--port", "0", code=2)
    monkeypatch.setenv("REVERIE_TOKEN", "short")
    assert "20 characters" in reverie.error("serve", "--port", "0", code=2)


@pytest.mark.parametrize(
    "module", ["fastapi", "httpx2", "prometheus_client", "starlette", "uvicorn"]
)
def test_missing_server_dependency_is_named(reverie: CommandLine, module: str) -> None:
    hidden = (
        f"import sys; sys.modules[{module!r}] = None; from reverie.cli import main; "
        "sys.argv = ['reverie', 'serve', '--port', '0']; main()"
    )
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "pip install 'reverie[server]'" in done.stderr


def test_serve_refuses_trust_local_on_a_public_address(reverie: CommandLine) -> None:
    message = reverie.error("serve", "--host", "0.0.0.0", "--port", "0", "--trust-local", code=2)
    assert "--trust-local" in message


def test_token_file_readable_by_others_is_refused(reverie: CommandLine) -> None:
    folder = reverie.folder / "home" / "data" / "reverie"
    folder.mkdir(parents=True)
    (folder / "token").write_text("x" * 40, encoding="ascii")
    (folder / "token").chmod(0o644)
    assert "chmod 600" in reverie.error("serve", "--port", "0", code=2)


def test_tokens_are_created_listed_and_revoked(reverie: CommandLine) -> None:
    secret = reverie.text("token", "create", "phone", "--right", "read", "--space", "ana").strip()
    assert secret.startswith("rv_") and len(secret) == 55
    (token,) = reverie.json("token", "list")["tokens"]
    assert (token["name"], token["right"], token["spaces"]) == ("phone", "read", ["ana"])
    assert secret not in json.dumps(token)
    assert secret.encode() not in reverie.store.read_bytes()
    assert "phone" in reverie.text("token", "list")
    reverie.run("token", "revoke", token["id"])
    reverie.error("token", "revoke", token["id"], code=3)
    assert reverie.text("token", "list") == ""


def test_admin_token_covers_every_space(reverie: CommandLine) -> None:
    message = reverie.error("token", "create", "boss", "--right", "admin", "--space", "ana", code=2)
    assert "all spaces" in message
