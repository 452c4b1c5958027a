"""Addresses of PostgreSQL databases: what the driver needs to know, and what may be shown."""

from __future__ import annotations

import urllib.parse
from typing import NamedTuple

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from reverie.errors import ConfigError

APPLICATION_NAME = "reverie"
# Connection parameters for those that the address does not set: a server that vanishes without
# closing its connections is noticed within seconds.
_DEFAULTS = {
    "connect_timeout": "3",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "2",
    "tcp_user_timeout": "5000",
    "application_name": APPLICATION_NAME,
    # Independent of the encoding of the database.
    "client_encoding": "utf8",
}
# Parameters that are left out of Address.shown.
_SECRET_OPTIONS = {
    "password",
    "sslpassword",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
}


class Address(NamedTuple):
    """The address of a database: for the driver, and as shown to people, without secrets."""

    conninfo: str
    shown: str
    read_only: bool


def parse(url: str) -> Address:
    """Parse a libpq address; the parameter ``mode=ro`` is Reverie's own."""
    scheme, _, rest = url.partition("://")
    # User and password end at the first @, if it is before the first slash.
    login, at, rest_of_url = (
        rest.partition("@") if "@" in rest.partition("/")[0] else ("", "", rest)
    )
    location, _, query = rest_of_url.partition("?")
    options = [pair for pair in query.split("&") if pair]
    kept = [pair for pair in options if _option_name(pair) != "mode"]
    address = _join_url(f"{scheme}://{login}{at}{location}", kept)
    try:
        if "@" in location:
            raise ProgrammingError("two of them")
        parameters = conninfo_to_dict(address)
    except (ProgrammingError, UnicodeError) as error:
        # The driver's message is not shown: it may quote a password.
        raise ConfigError(
            f"this {scheme}:// address is not that of a database: give "
            "postgresql://user@host/database, and write @, / and % in a password as %40, %2F, %25"
        ) from error
    # Of several hosts, the one that accepts writes is used.
    several = "," in str(parameters.get("host", ""))
    defaults = _DEFAULTS | ({"target_session_attrs": "read-write"} if several else {})
    user = login.partition(":")[0]
    shown = _join_url(
        f"{scheme}://{user}{at}{location}",
        [pair for pair in kept if _option_name(pair) not in _SECRET_OPTIONS],
    )
    return Address(make_conninfo("", **{**defaults, **parameters}), shown, "mode=ro" in options)


def _join_url(plain: str, options: list[str]) -> str:
    return "?".join(part for part in (plain, "&".join(options)) if part)


def _option_name(option: str) -> str:
    return urllib.parse.unquote(option.partition("=")[0])
