"""Addresses of PostgreSQL databases: what the driver needs to know, and what may be shown."""

from __future__ import annotations

import urllib.parse
from typing import NamedTuple

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from reverie.errors import ConfigError

APPLICATION_NAME = "reverie"
# What a connection does where its address does not say: a machine that is gone without a word is
# noticed within seconds, and of several the one that can be written is taken.
_DEFAULTS = {
    "connect_timeout": "3",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "5000",
    "application_name": APPLICATION_NAME,
    # Whatever the encoding of the database is.
    "client_encoding": "utf8",
}
# Parameters that are never shown.
_SECRET_OPTIONS = {
    "password",
    "sslpassword",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
}


class Address(NamedTuple):
    """A database. ``shown`` is without its password."""

    conninfo: str
    shown: str
    read_only: bool


def parse(url: str) -> Address:
    """An address as libpq has it; ``mode=ro`` among its parameters is ours."""
    scheme, _, rest = url.partition("://")
    # A name and a password end at the first @, if it stands before the first slash.
    login, at, place = rest.partition("@") if "@" in rest.partition("/")[0] else ("", "", rest)
    plain, _, query = place.partition("?")
    options = [pair for pair in query.split("&") if pair]
    kept = [pair for pair in options if _option_name(pair) != "mode"]
    address = _join_url(f"{scheme}://{login}{at}{plain}", kept)
    try:
        if "@" in plain:
            raise ProgrammingError("two of them")
        given = conninfo_to_dict(address)
    except (ProgrammingError, UnicodeError) as error:
        # What it says is not told: it may quote a password.
        raise ConfigError(
            f"this {scheme}:// address is none of a database: give "
            "postgresql://user@host/database, and write @, / and % in a password as %40, %2F, %25"
        ) from error
    several = "," in str(given.get("host", ""))
    defaults = _DEFAULTS | ({"target_session_attrs": "read-write"} if several else {})
    user = login.partition(":")[0]
    shown = _join_url(
        f"{scheme}://{user}{at}{plain}",
        [pair for pair in kept if _option_name(pair) not in _SECRET_OPTIONS],
    )
    return Address(make_conninfo("", **{**defaults, **given}), shown, "mode=ro" in options)


def _join_url(plain: str, options: list[str]) -> str:
    return "?".join(part for part in (plain, "&".join(options)) if part)


def _option_name(option: str) -> str:
    return urllib.parse.unquote(option.partition("=")[0])
