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

NAME = "reverie"
# Not REVERIE_TOKEN: a server in the same environment would take it for the operator's own.
VARIABLE = "REVERIE_MCP_TOKEN"
ABOUT = {
    "stdio": "the client starts Reverie itself:",
    "http": f"or through a server ('reverie serve'), with a token in {VARIABLE}:",
}


@dataclass(frozen=True, slots=True)
class Here:
    """This installation: how it is started, and where its server answers."""

    command: str
    arguments: tuple[str, ...]
    url: str
    unprinted: bool
    """Whether the store has an address that is not among the arguments."""

    @classmethod
    def found(cls, settings: Settings, file: Path | None) -> Here:
        script = Path(sys.executable).with_name(NAME)
        start = [str(script)] if script.exists() else [sys.executable, "-m", NAME]
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
            unprinted=file is None,
        )


class Client(NamedTuple):
    """One program: where its file is, and the shapes it takes. None: it has no such way."""

    title: str
    where: str
    stdio: Callable[[Here], Any] | None
    http: Callable[[Here], Any] | None
    commands: Callable[[Here], tuple[str, ...]] | None = None


def config(name: str, here: Here) -> dict[str, Any]:
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


def _stdio(root: str, **more: str) -> Callable[[Here], Any]:
    return lambda here: {root: {NAME: {**more, "command": here.command, "args": [*here.arguments]}}}


def _http(root: str, token: str, url: str = "url", **more: str) -> Callable[[Here], Any]:
    return lambda here: {root: {NAME: {**more, url: here.url, "headers": _bearer(token)}}}


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _claude_commands(here: Here) -> tuple[str, ...]:
    started = shlex.join([here.command, *here.arguments])
    return (
        f"claude mcp add --scope user {NAME} -- {started}",
        f"claude mcp add --scope user --transport http {NAME} {shlex.quote(here.url)} "
        f'--header "Authorization: Bearer ${VARIABLE}"',
    )


def _codex_stdio(here: Here) -> str:
    listed = ", ".join(map(_toml, here.arguments))
    return f"[mcp_servers.{NAME}]\ncommand = {_toml(here.command)}\nargs = [{listed}]"


def _codex_http(here: Here) -> str:
    return (
        f"[mcp_servers.{NAME}]\nurl = {_toml(here.url)}\nbearer_token_env_var = {_toml(VARIABLE)}"
    )


def _toml(text: str) -> str:
    """A basic string of TOML; what JSON escapes, TOML escapes the same way."""
    return json.dumps(text).replace("\x7f", "\\u007f")


CLIENTS: dict[str, Client] = {
    "claude-desktop": Client(
        "Claude Desktop",
        "claude_desktop_config.json (Settings, Developer, Edit Config)",
        _stdio("mcpServers"),
        None,
    ),
    "claude-code": Client(
        "Claude Code",
        ".mcp.json of a project",
        _stdio("mcpServers", type="stdio"),
        _http("mcpServers", f"${{{VARIABLE}}}", type="http"),
        _claude_commands,
    ),
    "cursor": Client(
        "Cursor",
        "~/.cursor/mcp.json, or .cursor/mcp.json of a project",
        _stdio("mcpServers"),
        _http("mcpServers", f"${{env:{VARIABLE}}}"),
    ),
    "vscode": Client(
        "VS Code",
        ".vscode/mcp.json of a workspace, or 'MCP: Open User Configuration'",
        _stdio("servers", type="stdio"),
        _http("servers", f"${{env:{VARIABLE}}}", type="http"),
    ),
    "windsurf": Client(
        "Windsurf",
        "~/.codeium/windsurf/mcp_config.json",
        _stdio("mcpServers"),
        _http("mcpServers", f"${{env:{VARIABLE}}}", "serverUrl"),
    ),
    "zed": Client(
        "Zed",
        "settings.json ('zed: open settings file')",
        _stdio("context_servers"),
        _http("context_servers", "TOKEN"),
    ),
    "codex": Client("Codex", "~/.codex/config.toml", _codex_stdio, _codex_http),
    "gemini": Client(
        "Gemini CLI",
        "~/.gemini/settings.json, or .gemini/settings.json of a project",
        _stdio("mcpServers"),
        _http("mcpServers", f"${VARIABLE}", "httpUrl"),
    ),
    "http": Client(
        "Any client of streamable HTTP",
        "an address and a header",
        None,
        lambda here: {"url": here.url, "headers": _bearer("TOKEN")},
    ),
}
