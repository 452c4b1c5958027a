"""Runs the server for ``reverie serve``: checks who could reach it, and prints its addresses."""

from __future__ import annotations

import contextlib
import sys
from importlib.util import find_spec
from typing import Any

from reverie.aio import AsyncStore
from reverie.cli.mcp_clients import server_url
from reverie.cli.options import open_showing_upgrade
from reverie.cli.output import print_json, print_line
from reverie.cli.runtime import log_to_stderr, watch_vault
from reverie.config import Settings
from reverie.errors import ConfigError, MissingExtra
from reverie.http_guard import is_loopback
from reverie.memory import Store
from reverie.server.connections import limits_from_settings
from reverie.server.context import ServerContext
from reverie.server.guard import LOOPBACK_HOSTS
from reverie.server.run import (
    bind_socket,
    create_server,
    limit_malloc_arenas,
    operator_token,
    run,
    token_file,
)


def run_server(
    settings: Settings,
    *,
    allowed_hosts: tuple[str, ...],
    trust_local: bool,
    worker: bool,
    as_json: bool,
) -> None:
    """Serve until a signal stops the process; with ``worker``, run jobs and watch the vault too."""
    is_public = not is_loopback(settings.host)
    if is_public and trust_local:
        raise ConfigError("--trust-local is for a server that only this machine reaches")
    limit_malloc_arenas()
    with (
        open_showing_upgrade(settings) as store,
        contextlib.closing(bind_socket(settings.host, settings.port)) as listening_socket,
        log_to_stderr(settings.log_level),
    ):
        _check_tokens(settings, store, is_public=is_public)
        server_context = ServerContext(
            AsyncStore(store),
            settings,
            operator_token(settings),
            hosts=_accepted_hosts(settings.host, allowed_hosts),
            port=listening_socket.getsockname()[1],
            trust_local=trust_local,
            limits=limits_from_settings(settings),
        )
        server = create_server(server_context)
        _print_addresses(store, server_context, as_json=as_json)
        with contextlib.ExitStack() as meanwhile:
            if worker:
                store.start_worker()
                meanwhile.enter_context(watch_vault(store))
            run(server, listening_socket)


def _check_tokens(settings: Settings, store: Store, *, is_public: bool) -> None:
    """Refuse a public server without a token, and an operator's token that is somebody else's."""
    if is_public and not (settings.token or store.tokens()):
        raise ConfigError(
            f"{settings.host} can be reached by others: set REVERIE_TOKEN, "
            "or create a token for each of them with 'reverie token create'"
        )
    if settings.token and store.authenticate(settings.token) is not None:
        raise ConfigError(
            "REVERIE_TOKEN must be the operator's token, but is one created for a client: "
            "use another variable for it"
        )


def _accepted_hosts(host: str, allowed_hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of Host that the server accepts."""
    own = f"[{host}]" if ":" in host else host
    everywhere = host in {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
    return (*LOOPBACK_HOSTS, *(() if everywhere else (own,)), *allowed_hosts)


def _print_addresses(store: Store, server_context: ServerContext, *, as_json: bool) -> None:
    """Print the addresses of the server, and where its token and its store are."""
    host = server_context.settings.host
    base = server_url(host, server_context.port)
    addresses: dict[str, Any] = {
        "page": f"{base}/#code={server_context.new_login_code()}",
        "rest": f"{base}/docs",
        "proxy": f"{base}/v1",
        "upstream": server_context.settings.upstream or None,
        "mcp": None if find_spec("mcp") is None else f"{base}/mcp",
        "token": "REVERIE_TOKEN" if server_context.settings.token else str(token_file()),
        "store": store.url,
        "vault": None if store.vault is None else str(store.vault),
    }
    if as_json:
        print_json(addresses)
        sys.stdout.flush()
        return
    upstream = addresses["upstream"] or "no upstream yet: set REVERIE_UPSTREAM"
    print_line(f"The page     {addresses['page']}")
    print_line("             (this link opens it once)")
    print_line(f"REST         {addresses['rest']}")
    print_line(f"OpenAI proxy {addresses['proxy']} → {upstream}")
    if addresses["mcp"]:
        print_line(f"MCP          {addresses['mcp']}   or on stdio: reverie mcp --print-config")
    else:
        print_line(f"MCP          {MissingExtra('MCP', 'mcp')}")
    print_line(f"Token        {addresses['token']}")
    if server_context.trust_local:
        print_line("             (programs of this machine may use the proxy with any key)")
    print_line(f"Store        {addresses['store']}")
    if addresses["vault"]:
        print_line(f"Vault        {addresses['vault']}")
    if not is_loopback(host) and server_context.hosts == LOOPBACK_HOSTS:
        print_line("Others are turned away: --allow-host says under which name they may come.")
    print_line("Stop with Ctrl-C.")
    sys.stdout.flush()
