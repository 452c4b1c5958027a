"""Where the log, the index and the agenda are kept: SQL shared by every engine, and the engines."""

from __future__ import annotations

from pathlib import Path

from reverie.errors import ConfigError
from reverie.protocols import Engine


def open_engine(url: str) -> Engine:
    """The one place where an address becomes an engine."""
    scheme = url.partition("://")[0] if "://" in url else "sqlite"
    if scheme == "sqlite":
        from reverie.engine.sqlite import SQLiteEngine

        return SQLiteEngine(url)
    raise ConfigError(
        f"no engine for {scheme}:// addresses: give a path, or sqlite:///path/to/reverie.db"
    )


def is_store(path: Path) -> bool:
    """Whether a file is a whole store or a copy of one, going by its first page and its length."""
    from reverie.engine.sqlite import is_store_file

    return is_store_file(path)
