"""The commands serve and token."""

from __future__ import annotations

import click

from reverie import config
from reverie.cli.options import CommonOptions, examples, store_options
from reverie.cli.output import format_minute, print_json, print_line, print_stderr, to_line
from reverie.errors import MissingExtra
from reverie.model import RIGHTS, Right


@click.command(
    "serve",
    epilog=examples(
        "reverie serve",
        "REVERIE_UPSTREAM=http://127.0.0.1:11434/v1 reverie serve --trust-local",
        "REVERIE_TOKEN=… reverie serve --host 0.0.0.0 --allow-host memory.example.org",
    ),
)
@click.option("--host", metavar="ADDRESS", help="The address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port; 0 for any free one. [default: 7424]"
)
@click.option(
    "--upstream", metavar="URL", help="The OpenAI-compatible server that the proxy sends chats to."
)
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="Accept this host name in requests, besides the address; repeatable.",
)
@click.option(
    "--trust-local",
    is_flag=True,
    help="Let programs on this machine use the proxy with any API key.",
)
@click.option("--no-worker", is_flag=True, help="Leave background jobs to 'reverie worker'.")
@store_options
def serve_command(
    options: CommonOptions,
    host: str | None,
    port: int | None,
    upstream: str | None,
    allowed: tuple[str, ...],
    trust_local: bool,
    no_worker: bool,
) -> None:
    """Start the server: REST, proxy, MCP and the page.

    By default only this machine can reach it, and every request needs a token. The operator's token
    is made on the first start. The printed link logs in to the page, and works once.
    """
    try:
        # fastapi, uvicorn and others are optional libraries.
        from reverie.cli import run_server
    except ModuleNotFoundError as error:
        raise MissingExtra("the server", "server") from error

    settings = config.load(
        url=options.url,
        host=host,
        port=port,
        upstream=upstream,
        upgrade_backup=options.upgrade_backup,
    )
    run_server.run_server(
        settings,
        allowed_hosts=allowed,
        trust_local=trust_local,
        worker=not no_worker,
        as_json=options.as_json,
    )
    if not options.as_json:
        print_line("Stopped.")


# -- tokens ---------------------------------------------------------------------------------------


@click.group(
    "token",
    epilog=examples(
        "reverie token create phone --right read --space ana",
        "reverie token list",
        "reverie token revoke Ab3dE6gH",
    ),
)
def token_command() -> None:
    """Create and revoke access tokens.

    A token has the right to read, to write, or to do everything (admin), in all spaces or in the
    spaces that it names. The store keeps only a hash of it.
    """


@token_command.command(
    "create", epilog=examples("reverie token create phone --right read --space ana")
)
@click.argument("name")
@click.option("--right", type=click.Choice(RIGHTS), default="write", help="What the token may do.")
@click.option(
    "--space",
    "spaces",
    multiple=True,
    metavar="NAME",
    help="A space it may use; repeatable. [default: all]",
)
@click.option(
    "--user", "bound_to", metavar="NAME", help="The only user it may act as. [default: any]"
)
@store_options
def create_command(
    options: CommonOptions, name: str, right: Right, spaces: tuple[str, ...], bound_to: str | None
) -> None:
    """Create a token, and print it this one time."""
    with options.open_store(create=True) as store:
        token, secret = store.create_token(name, right, spaces=spaces or None, user=bound_to)
    if options.as_json:
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
def list_command(options: CommonOptions) -> None:
    """List the tokens."""
    with options.open_store() as store:
        tokens = store.tokens()
    rows = []
    for token in tokens:
        spaces = "all" if token.spaces is None else ", ".join(map(to_line, token.spaces))
        user, created = to_line(token.user) or "any", format_minute(token.created_at)
        rows.append((token.id, to_line(token.name), token.right, spaces, user, created))
    options.print_list(
        {"tokens": tokens},
        ("id", "name", "right", "spaces", "user", "created"),
        rows,
        empty="No tokens: only the operator may come in.",
    )


@token_command.command("revoke", epilog=examples("reverie token revoke Ab3dE6gH"))
@click.argument("id")
@store_options
def revoke_command(options: CommonOptions, id: str) -> None:
    """Revoke a token, from the next request on."""
    with options.open_store() as store:
        store.revoke_token(id)
    options.print_result({"revoked": id}, f"Revoked {id}.")
