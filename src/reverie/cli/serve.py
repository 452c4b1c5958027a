"""The server, and who may come in."""

from __future__ import annotations

import contextlib
import ipaddress
import sys
from typing import TYPE_CHECKING, Any

import click

from reverie.cli.options import CommonOptions, examples, store_options
from reverie.cli.output import (
    format_minute,
    print_json,
    print_line,
    print_stderr,
    print_table,
    table,
    to_line,
)
from reverie.cli.runtime import watch_vault
from reverie.errors import ConfigError
from reverie.model import RIGHTS, Right

if TYPE_CHECKING:
    from reverie.memory import Store
    from reverie.server.run import ServerContext


@click.command(
    "serve",
    epilog=examples(
        "reverie serve",
        "REVERIE_UPSTREAM=http://127.0.0.1:11434/v1 reverie serve --trust-local",
        "REVERIE_TOKEN=… reverie serve --host 0.0.0.0 --allow-host memory.example.org",
    ),
)
@click.option("--host", metavar="ADDRESS", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0: any that is free. [default: 7424]")
@click.option("--upstream", metavar="URL", help="Where the proxy sends chats on to.")
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="A name under which the server answers, besides its address.",
)
@click.option(
    "--trust-local",
    is_flag=True,
    help="Let programs of this machine use the proxy with any key.",
)
@click.option("--no-worker", is_flag=True, help="Leave the agenda to 'reverie worker'.")
@store_options
def serve_command(
    asked: CommonOptions,
    host: str | None,
    port: int | None,
    upstream: str | None,
    allowed: tuple[str, ...],
    trust_local: bool,
    no_worker: bool,
) -> None:
    """Start the server: REST, proxy, MCP and the page.

    It listens on this machine alone and wants a token; the one of this machine's user is made on
    the first start. The page opens with a code that is good once.
    """
    from reverie import config
    from reverie.aio import AsyncStore
    from reverie.cli.runtime import log_to_stderr
    from reverie.memory import open as open_store
    from reverie.server.connections import limits_from_settings
    from reverie.server.run import (
        ServerContext,
        bind_socket,
        create_server,
        operator_token,
        run,
    )

    settings = config.load(url=asked.url, host=host, port=port, upstream=upstream)
    outside = not _is_loopback(settings.host)
    if outside and trust_local:
        raise ConfigError("--trust-local is for a server that only this machine reaches")
    with (
        open_store(settings=settings) as store,
        contextlib.closing(bind_socket(settings.host, settings.port)) as bound,
        log_to_stderr(settings.log_level),
    ):
        if outside and not (settings.token or store.tokens()):
            raise ConfigError(
                f"{settings.host} can be reached by others: set REVERIE_TOKEN, "
                "or let them in one by one with 'reverie token create'"
            )
        if settings.token and store.authenticate(settings.token) is not None:
            raise ConfigError(
                "REVERIE_TOKEN is the operator's token and may do everything; this one was made "
                "for somebody else: keep it under another name"
            )
        chosen = bound.getsockname()[1]
        serving = ServerContext(
            AsyncStore(store),
            settings,
            operator_token(settings),
            hosts=_allowed_hosts(settings.host, allowed),
            port=chosen,
            trust_local=trust_local,
            limits=limits_from_settings(settings),
        )
        made = create_server(serving)
        _print_addresses(asked, store, serving)
        with contextlib.ExitStack() as meanwhile:
            if not no_worker:
                store.start_worker()
                meanwhile.enter_context(watch_vault(store))
            run(made, bound)
    if not asked.as_json:
        print_line("Stopped.")


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _allowed_hosts(host: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """What may stand in the Host of a request."""
    from reverie.server.guard import LOOPBACK_HOSTS

    own = f"[{host}]" if ":" in host else host
    everywhere = host in {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound
    return (*LOOPBACK_HOSTS, *(() if everywhere else (own,)), *allowed)


def _print_addresses(asked: CommonOptions, store: Store, serving: ServerContext) -> None:
    """Where everything is."""
    from reverie.server.guard import LOOPBACK_HOSTS
    from reverie.server.run import token_file

    host = serving.settings.host
    shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - shown, not bound
    base = f"http://[{shown}]:{serving.port}" if ":" in shown else f"http://{shown}:{serving.port}"
    token = "REVERIE_TOKEN" if serving.settings.token else str(token_file())
    places: dict[str, Any] = {
        "page": f"{base}/#code={serving.new_login_code()}",
        "rest": f"{base}/docs",
        "proxy": f"{base}/v1",
        "upstream": serving.settings.upstream or None,
        "mcp": f"{base}/mcp",
        "token": token,
        "store": store.url,
        "vault": None if store.vault is None else str(store.vault),
    }
    if asked.as_json:
        print_json(places)
        sys.stdout.flush()
        return
    to = places["upstream"] or "no upstream yet: set REVERIE_UPSTREAM"
    print_line(f"The page     {places['page']}")
    print_line("             (this link opens it once)")
    print_line(f"REST         {places['rest']}")
    print_line(f"OpenAI proxy {places['proxy']} → {to}")
    print_line(f"MCP          {places['mcp']}   or on stdio: reverie mcp --print-config")
    print_line(f"Token        {token}")
    if serving.trust_local:
        print_line("             (programs of this machine may use the proxy with any key)")
    print_line(f"Store        {places['store']}")
    if places["vault"]:
        print_line(f"Vault        {places['vault']}")
    if not _is_loopback(host) and serving.hosts == LOOPBACK_HOSTS:
        print_line("Others are turned away: --allow-host says under which name they may come.")
    print_line("Stop with Ctrl-C.")
    sys.stdout.flush()


# -- who may come in ------------------------------------------------------------------------------


@click.group(
    "token",
    epilog=examples(
        "reverie token create phone --right read --space ana",
        "reverie token list",
        "reverie token revoke Ab3dE6gH",
    ),
)
def token_command() -> None:
    """Let others in, and shut them out.

    A token may read, write, or do everything (admin), in all spaces or in those that are named.
    The store keeps only what it hashes to.
    """


@token_command.command(
    "create", epilog=examples("reverie token create phone --right read --space ana")
)
@click.argument("name")
@click.option(
    "--right", type=click.Choice(RIGHTS), default="write", show_default=True, help="What it may do."
)
@click.option(
    "--space", "spaces", multiple=True, metavar="NAME", help="A space it is for. Without: all."
)
@click.option("--user", "bound_to", metavar="NAME", help="The user it is for. Without: any.")
@store_options
def create_command(
    asked: CommonOptions, name: str, right: Right, spaces: tuple[str, ...], bound_to: str | None
) -> None:
    """Make a token, and show it this once."""
    with asked.open_store(create=True) as store:
        token, secret = store.create_token(name, right, spaces=spaces or None, user=bound_to)
    if asked.as_json:
        print_json({"token": secret, "id": token.id})
        return
    click.echo(secret)
    where = (
        "in all spaces" if token.spaces is None else f"in {', '.join(map(to_line, token.spaces))}"
    )
    who = "as any user" if token.user is None else f"as {to_line(token.user)}"
    print_stderr(f"Token {token.id} may {right} {where}, {who}. It is shown only now.")


@token_command.command("list", epilog=examples("reverie token list", "reverie token list --json"))
@store_options
def list_command(asked: CommonOptions) -> None:
    """List who may come in."""
    with asked.open_store() as store:
        tokens = store.tokens()
    if asked.as_json:
        print_json({"tokens": tokens})
        return
    if not tokens:
        print_stderr("No tokens: only the operator may come in.")
        return
    shown = table("id", "name", "right", "spaces", "user", "created")
    for token in tokens:
        spaces = "all" if token.spaces is None else ", ".join(map(to_line, token.spaces))
        created = format_minute(token.created_at)
        shown.add_row(
            token.id,
            to_line(token.name),
            token.right,
            spaces,
            to_line(token.user) or "any",
            created,
        )
    print_table(shown)


@token_command.command("revoke", epilog=examples("reverie token revoke Ab3dE6gH"))
@click.argument("id")
@store_options
def revoke_command(asked: CommonOptions, id: str) -> None:
    """Shut somebody out, from the next request on."""
    with asked.open_store() as store:
        store.revoke_token(id)
    if asked.as_json:
        print_json({"revoked": id})
    else:
        print_line(f"Revoked {id}.")
