"""Generates the configuration with which MCP clients find this installation.

Over HTTP every client sends a token. It is never printed: clients that can read an environment
variable are told to, the others get a placeholder. 'reverie token create' makes a token.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from reverie.config import Settings

SERVER_NAME = "reverie"
# Not REVERIE_TOKEN, which a server in the same environment would take for the operator's token.
ENV_VARIABLE = "REVERIE_MCP_TOKEN"
TRANSPORT_NOTES = {
    "stdio": "the client starts Reverie itself:",
    "http": f"or through a server ('reverie serve'), with a token in {ENV_VARIABLE}:",
}


@dataclass(frozen=True, slots=True)
class Installation:
    """The command that starts this installation, and the address of its server."""

    command: str
    arguments: tuple[str, ...]
    url: str
    url_hidden: bool
    """Whether the address of the store is left out of the arguments: it may hold a password."""

    @classmethod
    def detect(cls, settings: Settings, file: Path | None) -> Installation:
        """Find out how the running program was installed; ``file`` is its SQLite store, if any."""
        script = Path(sys.executable).with_name(SERVER_NAME)
        start = [str(script)] if script.exists() else [sys.executable, "-m", SERVER_NAME]
        scope = {"space": settings.space if settings.space != Settings().space else ""}
        scope["user"] = settings.user
        named = {name: value for name, value in scope.items() if value}
        arguments = [f"--{name}={value}" for name, value in named.items()]
        # The default store needs no --url; any other path is absolute, because clients start in
        # another folder.
        if settings.url and file is not None:
            arguments.insert(0, f"--url={file.absolute()}")
        query = f"?{urlencode(named)}" if named else ""
        return cls(
            start[0],
            (*start[1:], "mcp", *arguments),
            f"{server_url(settings.host, settings.port or Settings().port)}/mcp{query}",
            url_hidden=file is None,
        )


def server_url(host: str, port: int | None) -> str:
    """Return the address of a server for a client on the same machine."""
    near = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared, not bound
    return f"http://[{near}]:{port}" if ":" in near else f"http://{near}:{port}"


class McpClient(NamedTuple):
    """One client: where its configuration is, and how it looks; None: not supported by it."""

    title: str
    where: str
    stdio: Callable[[Installation], Any] | None
    http: Callable[[Installation], Any] | None
    commands: Callable[[Installation], tuple[str, ...]] | None = None


def config(name: str, installation: Installation) -> dict[str, Any]:
    """Return the configuration of one client: JSON values, or text if its file is not JSON."""
    client = CLIENTS[name]
    parts = {"commands": client.commands, "stdio": client.stdio, "http": client.http}
    made = {part: make(installation) for part, make in parts.items() if make is not None}
    return {"title": client.title, "where": client.where, **made}


def _stdio(root: str, **more: str) -> Callable[[Installation], Any]:
    return lambda here: {
        root: {SERVER_NAME: {**more, "command": here.command, "args": [*here.arguments]}}
    }


def _http(root: str, token: str, url: str = "url", **more: str) -> Callable[[Installation], Any]:
    return lambda here: {root: {SERVER_NAME: {**more, url: here.url, "headers": _bearer(token)}}}


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _claude_commands(here: Installation) -> tuple[str, ...]:
    started = shlex.join([here.command, *here.arguments])
    return (
        f"claude mcp add --scope user {SERVER_NAME} -- {started}",
        f"claude mcp add --scope user --transport http {SERVER_NAME} {shlex.quote(here.url)} "
        f'--header "Authorization: Bearer ${ENV_VARIABLE}"',
    )


def _codex_stdio(here: Installation) -> str:
    listed = ", ".join(map(_toml, here.arguments))
    return f"[mcp_servers.{SERVER_NAME}]\ncommand = {_toml(here.command)}\nargs = [{listed}]"


def _codex_http(here: Installation) -> str:
    return (
        f"[mcp_servers.{SERVER_NAME}]\nurl = {_toml(here.url)}\n"
        f"bearer_token_env_var = {_toml(ENV_VARIABLE)}"
    )


def _toml(text: str) -> str:
    """Write a TOML string; TOML escapes the same way as JSON, and also the character DEL."""
    return json.dumps(text).replace("\x7f", "\\u007f")


CLIENTS: dict[str, McpClient] = {
    "claude-desktop": McpClient(
        "Claude Desktop",
        "claude_desktop_config.json (Settings, Developer, Edit Config)",
        _stdio("mcpServers"),
        None,
    ),
    "claude-code": McpClient(
        "Claude Code",
        ".mcp.json of a project",
        _stdio("mcpServers", type="stdio"),
        _http("mcpServers", f"${{{ENV_VARIABLE}}}", type="http"),
        _claude_commands,
    ),
    "cursor": McpClient(
        "Cursor",
        "~/.cursor/mcp.json, or .cursor/mcp.json of a project",
        _stdio("mcpServers"),
        _http("mcpServers", f"${{env:{ENV_VARIABLE}}}"),
    ),
    "vscode": McpClient(
        "VS Code",
        ".vscode/mcp.json of a workspace, or 'MCP: Open User Configuration'",
        _stdio("servers", type="stdio"),
        _http("servers", f"${{env:{ENV_VARIABLE}}}", type="http"),
    ),
    "windsurf": McpClient(
        "Windsurf",
        "~/.codeium/windsurf/mcp_config.json",
        _stdio("mcpServers"),
        _http("mcpServers", f"${{env:{ENV_VARIABLE}}}", "serverUrl"),
    ),
    "zed": McpClient(
        "Zed",
        "settings.json ('zed: open settings file')",
        _stdio("context_servers"),
        _http("context_servers", "TOKEN"),
    ),
    "codex": McpClient("Codex", "~/.codex/config.toml", _codex_stdio, _codex_http),
    "gemini": McpClient(
        "Gemini CLI",
        "~/.gemini/settings.json, or .gemini/settings.json of a project",
        _stdio("mcpServers"),
        _http("mcpServers", f"${ENV_VARIABLE}", "httpUrl"),
    ),
    "http": McpClient(
        "Any client of streamable HTTP",
        "an address and a header",
        None,
        lambda here: {"url": here.url, "headers": _bearer("TOKEN")},
    ),
}
