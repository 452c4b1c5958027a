"""What to paste into the programs that speak MCP, so that they find this installation.

Over HTTP every client sends a token. It is left to the environment where a client can read that,
and never printed: 'reverie token create' makes one.
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
# Not REVERIE_TOKEN: a server in the same environment would take it for the operator's own.
ENV_VARIABLE = "REVERIE_MCP_TOKEN"
TRANSPORT_NOTES = {
    "stdio": "the client starts Reverie itself:",
    "http": f"or through a server ('reverie serve'), with a token in {ENV_VARIABLE}:",
}


@dataclass(frozen=True, slots=True)
class Installation:
    """This installation: how it is started, and where its server answers."""

    command: str
    arguments: tuple[str, ...]
    url: str
    url_hidden: bool
    """Whether the store has an address that is not among the arguments."""

    @classmethod
    def found(cls, settings: Settings, file: Path | None) -> Installation:
        script = Path(sys.executable).with_name(SERVER_NAME)
        start = [str(script)] if script.exists() else [sys.executable, "-m", SERVER_NAME]
        scope = {"space": settings.space if settings.space != Settings().space else ""}
        scope["user"] = settings.user
        named = {name: value for name, value in scope.items() if value}
        given = [f"--{name}={value}" for name, value in named.items()]
        # The user's own store needs no address, and clients do not start where we are.
        if settings.url and file is not None:
            given.insert(0, f"--url={file.absolute()}")
        host = "127.0.0.1" if settings.host in {"0.0.0.0", "::"} else settings.host  # noqa: S104
        place = f"[{host}]" if ":" in host else host
        query = f"?{urlencode(named)}" if named else ""
        return cls(
            start[0],
            (*start[1:], "mcp", *given),
            f"http://{place}:{settings.port or Settings().port}/mcp{query}",
            url_hidden=file is None,
        )


class McpClient(NamedTuple):
    """One program: where its file is, and the shapes it takes. None: it has no such way."""

    title: str
    where: str
    stdio: Callable[[Installation], Any] | None
    http: Callable[[Installation], Any] | None
    commands: Callable[[Installation], tuple[str, ...]] | None = None


def config(name: str, here: Installation) -> dict[str, Any]:
    """What one client needs, as values; a text where its file is no JSON."""
    client = CLIENTS[name]
    made: dict[str, Any] = {"title": client.title, "where": client.where}
    if client.commands is not None:
        made["commands"] = client.commands(here)
    if client.stdio is not None:
        made["stdio"] = client.stdio(here)
    if client.http is not None:
        made["http"] = client.http(here)
    return made


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
    """A basic string of TOML; what JSON escapes, TOML escapes the same way."""
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
