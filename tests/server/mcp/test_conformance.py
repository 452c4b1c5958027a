"""The official inspector and the conformance suite of MCP, from npm, against our server.

They take a minute and are fetched from the registry of npm, so they run with --prove only.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROVE
from tests.server.agents import arguments, environment
from tests.server.conftest import Running, Serve

pytestmark = pytest.mark.skipif(not PROVE, reason="runs with --prove: it installs from npm")
# They need a newer node than many systems have; npm has that as well.
PACKAGES = (
    "node@22",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/conformance@0.1.16",
)
# The other scenarios ask for tools, resources and prompts of the suite's own example server, for
# log levels, which the protocol gave up, and for subscriptions, which we do not offer.
SCENARIOS = {
    "server-initialize": 1,
    "ping": 1,
    "completion-complete": 1,
    "tools-list": 1,
    "resources-list": 1,
    "prompts-list": 1,
    "dns-rebinding-protection": 2,
}
ERAS = ("legacy", "modern")


@dataclass(frozen=True)
class Npm:
    """A folder with the programs."""

    folder: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        modules = self.folder / "node_modules"
        path = os.pathsep.join([str(modules / "node" / "bin"), os.environ["PATH"]])
        return subprocess.run(
            [str(modules / ".bin" / program), *arguments],
            env={**os.environ, "PATH": path, "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def npm(request: pytest.FixtureRequest) -> Npm:
    """What npm installed, this time or an earlier one."""
    program = shutil.which("npm")
    if program is None:
        pytest.skip("npm is not there: install Node.js to run the inspector and the suite")
    # Not the cache of pytest, which make prove turns off.
    folder = request.config.rootpath / ".pytest_cache" / "npm"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers need the same programs
        if not all((folder / "node_modules" / ".bin" / each).exists() for each in _PROGRAMS):
            done = subprocess.run(
                [program, "install", "--prefix", str(folder), "--no-audit", "--no-fund", *PACKAGES],
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            if done.returncode:
                pytest.skip(f"npm could not install: {done.stderr.strip()[-300:]}")
    return Npm(folder)


_PROGRAMS = ("mcp-inspector", "conformance")
Inspect = Callable[..., Any]


@pytest.fixture(params=["stdio", "http"])
def inspect(request: pytest.FixtureRequest, npm: Npm, tmp_path: Path, running: Running) -> Inspect:
    """Run the inspector on one transport, and return its answers."""
    if request.param == "stdio":
        kept = {name: environment()[name] for name in ("PYTHONPATH", "REVERIE_EMBEDDER")}
        target = [sys.executable, "-m", "reverie", *arguments(tmp_path / "own.db")]
        options = [part for name, value in kept.items() for part in ("-e", f"{name}={value}")]
    else:
        target = [f"{running.url}/mcp"]
        options = ["--header", f"Authorization: Bearer {running.server_context.token}"]

    def inspected(method: str, *more: str, era: str = "legacy") -> Any:
        given = ["--cli", *target, *options, "--protocol-era", era, "--format", "json"]
        done = npm.run("mcp-inspector", *given, "--method", method, *more)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return json.loads(done.stdout)["result"]

    return inspected


@pytest.mark.parametrize("era", ERAS)
def test_mcp_inspector_finds_no_problem(inspect: Inspect, era: str) -> None:
    tools = inspect("tools/list", "--strict", era=era)["tools"]
    assert len(tools) == 7
    given = ["--tool-name", "remember", "--tool-args-json", json.dumps({"content": "It is blue"})]
    kept = inspect("tools/call", *given, era=era)["structuredContent"]
    runtime = inspect("resources/list", era=era)["resources"]
    assert [each["uri"] for each in runtime] == [
        "reverie://profile",
        f"reverie://memory/{kept['id']}",
    ]
    read = inspect("resources/read", "--uri", runtime[1]["uri"], era=era)
    assert json.loads(read["contents"][0]["text"])["content"] == "It is blue"
    templates = inspect("resources/templates/list", era=era)["resourceTemplates"]
    assert [each["uriTemplate"] for each in templates] == ["reverie://memory/{id}"]
    prompts = inspect("prompts/list", era=era)["prompts"]
    assert [each["name"] for each in prompts] == ["recall-first", "save-session"]
    asked = ("--prompt-name", "recall-first", "--prompt-args", "task=What colour?")
    prompt = inspect("prompts/get", *asked, era=era)
    assert "It is blue" in prompt["messages"][0]["content"]["text"]


def test_mcp_inspector_load_test_meets_no_error(inspect: Inspect) -> None:
    found = inspect(
        "tools/call",
        *("--tool-name", "recall", "--tool-args-json", '{"query": "boat"}'),
        *("--load", "--load-requests", "300", "--load-concurrency", "10"),
    )
    print(found)
    assert (found["ok"], found["toolErrors"], found["errors"]) == (300, 0, 0)


def test_mcp_conformance_suite_passes(
    npm: Npm, serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from reverie.server import app

    create = app.create_app

    def with_token(serving: Any) -> Any:
        """The suite cannot send a token, so every request is given one."""
        inner = create(serving)

        async def relay(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                token = (b"authorization", f"Bearer {serving.token}".encode())
                scope = {**scope, "headers": [*scope["headers"], token]}
            await inner(scope, receive, send)

        return relay

    monkeypatch.setattr(app, "create_app", with_token)
    running = serve()
    passed = {}
    for scenario in SCENARIOS:
        given = ("server", "--url", f"{running.url}/mcp", "--scenario", scenario)
        done = npm.run("conformance", *given, "--output-dir", str(tmp_path))
        assert done.returncode == 0, (scenario, done.stdout, done.stderr)
        found = re.search(r"Passed: (\d+)/(\d+), (\d+) failed", done.stdout)
        assert found is not None, done.stdout
        assert found[3] == "0" and found[1] == found[2], done.stdout
        passed[scenario] = int(found[1])
    assert passed == SCENARIOS
