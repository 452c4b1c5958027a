"""``reverie mcp``: a configuration for each client, without secrets."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from reverie.cli import mcp_clients
from tests.cli.conftest import CommandLine

# Where each client looks, and how it calls the address of a server.
ROOTS = {
    "claude-desktop": ("mcpServers", None),
    "claude-code": ("mcpServers", "url"),
    "cursor": ("mcpServers", "url"),
    "vscode": ("servers", "url"),
    "windsurf": ("mcpServers", "serverUrl"),
    "zed": ("context_servers", "url"),
    "codex": ("mcp_servers", "url"),
    "gemini": ("mcpServers", "httpUrl"),
}


def parsed(pasted: Any) -> Any:
    return tomllib.loads(pasted) if isinstance(pasted, str) else pasted


def test_print_config_of_every_client_starts_this_installation(reverie: CommandLine) -> None:
    configs = reverie.json("mcp", "--print-config", "--space", "work", "--user", "ana")
    assert list(configs) == [*ROOTS, "http"] == list(mcp_clients.CLIENTS)
    for name, (root, address) in ROOTS.items():
        started = parsed(configs[name]["stdio"])[root]["reverie"]
        assert Path(started["command"]).is_absolute()
        assert started["args"][-4:] == [
            "mcp",
            f"--url={reverie.store}",
            "--space=work",
            "--user=ana",
        ]
        if address is None:
            assert "http" not in configs[name]
            continue
        reached = parsed(configs[name]["http"])[root]["reverie"]
        assert reached[address] == "http://127.0.0.1:7424/mcp?space=work&user=ana"
        assert mcp_clients.ENV_VARIABLE in json.dumps(reached) or "Bearer TOKEN" in json.dumps(
            reached
        )
    assert configs["http"]["http"]["url"].startswith("http://127.0.0.1:7424/mcp")
    assert not reverie.store.exists()


def test_print_config_names_the_transport_type_where_a_client_needs_it(
    reverie: CommandLine,
) -> None:
    configs = reverie.json("mcp", "--print-config")
    for name, root in (("vscode", "servers"), ("claude-code", "mcpServers")):
        assert configs[name]["stdio"][root]["reverie"]["type"] == "stdio"
        assert configs[name]["http"][root]["reverie"]["type"] == "http"


def test_printed_config_starts_a_server_that_answers(reverie: CommandLine) -> None:
    config = reverie.json("mcp", "--print-config", "cursor")["cursor"]["stdio"]
    started = config["mcpServers"]["reverie"]
    # The script of another checkout may be beside the interpreter: ours is the module.
    given = started["args"][started["args"].index("mcp") :]
    ping = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    done = subprocess.run(
        [sys.executable, "-m", "reverie", *given],
        input=ping,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout) == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_print_config_for_claude_code_is_a_shell_command(reverie: CommandLine) -> None:
    stdio, http = reverie.json("mcp", "--print-config", "claude-code")["claude-code"]["commands"]
    words = shlex.split(stdio)
    assert words[:7] == ["claude", "mcp", "add", "--scope", "user", "reverie", "--"]
    assert words[-2:] == ["mcp", f"--url={reverie.store}"]
    assert shlex.split(http)[-2:] == [
        "--header",
        f"Authorization: Bearer ${mcp_clients.ENV_VARIABLE}",
    ]


def test_print_config_says_which_file_to_paste_into(reverie: CommandLine) -> None:
    shown = reverie.text("mcp", "--print-config", "codex")
    lines = shown.splitlines()
    assert lines[0] == "# Codex: ~/.codex/config.toml"
    first, second = shown.split("# or through")
    assert tomllib.loads(first)["mcp_servers"]["reverie"]["args"][-2] == "mcp"
    assert "bearer_token_env_var" in second
    every = reverie.text("mcp", "--print-config")
    assert all(f"# {client.title}: " in every for client in mcp_clients.CLIENTS.values())


def test_print_config_contains_no_secret(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVERIE_URL", "postgresql://ana:hunter2@db.example/reverie")
    monkeypatch.setenv("REVERIE_TOKEN", "rv_the_operators_own_token")
    result = reverie.run("mcp", "--print-config")
    assert "hunter2" not in result.output and "rv_the" not in result.output
    assert "REVERIE_URL" in result.stderr
    assert "hunter2" not in reverie.run("mcp", "--print-config", "--json").output


def test_print_config_omits_the_url_of_the_default_store(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REVERIE_URL")
    monkeypatch.setenv("REVERIE_HOST", "::")
    config = reverie.json("mcp", "--print-config", "zed")["zed"]
    assert config["stdio"]["context_servers"]["reverie"]["args"][-1] == "mcp"
    assert config["http"]["context_servers"]["reverie"]["url"] == "http://127.0.0.1:7424/mcp"


def test_print_config_of_an_unknown_client_is_an_error(reverie: CommandLine) -> None:
    assert "'emacs'" in reverie.error("mcp", "--print-config", "emacs", code=2)


def test_mcp_without_its_extra_says_what_to_install(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    monkeypatch.delitem(sys.modules, "reverie.server.mcp.stdio", raising=False)
    monkeypatch.delattr("reverie.server.mcp.stdio", raising=False)
    assert "pip install 'reverie[mcp]'" in reverie.error("mcp", code=2)
