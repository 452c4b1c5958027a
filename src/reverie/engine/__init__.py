"""The databases: SQL for the log, the index and the agenda, and an engine for each database."""

from __future__ import annotations

from reverie.engine.base import BUSY_TIMEOUT
from reverie.engine.upgrade import UpgradeOptions
from reverie.errors import ConfigError, MissingExtra
from reverie.protocols import Engine


def open_engine(
    url: str,
    read_url: str = "",
    busy_timeout: float = BUSY_TIMEOUT,
    upgrade_options: UpgradeOptions | None = None,
) -> Engine:
    """Open the engine for an address. ``read_url`` is a PostgreSQL standby to read from.

    ``busy_timeout`` is how many seconds a writer waits for another one. ``upgrade_options`` say how
    a store of an earlier version is upgraded; by default, with a backup.
    """
    scheme = url.partition("://")[0] if "://" in url else "sqlite"
    if scheme == "sqlite":
        if read_url:
            raise ConfigError("read_url needs a store at a postgresql:// address: leave it out")
        # apsw and numpy take time to load.
        from reverie.engine.sqlite.engine import SQLiteEngine

        return SQLiteEngine(url, busy_timeout, upgrade_options)
    if scheme in {"postgresql", "postgres"}:
        try:
            # psycopg is an optional library.
            from reverie.engine.postgres.engine import PostgresEngine
        except ImportError as error:
            raise MissingExtra("a postgresql:// address", "postgres") from error
        return PostgresEngine(url, read_url, busy_timeout, upgrade_options)
    raise ConfigError(
        f"no engine for {scheme}:// addresses: give a path, "
        "sqlite:///path/to/reverie.db or postgresql://user@host/database"
    )
