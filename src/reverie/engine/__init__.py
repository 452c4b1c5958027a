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


def copy_store(source: Path, target: Path) -> None:
    """Copy the file of a store, with what its write-ahead log holds; nothing else will do."""
    from reverie.engine.files import copy_store_file

    copy_store_file(source, target)
