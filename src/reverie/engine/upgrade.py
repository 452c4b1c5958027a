"""What an upgrade needs on every engine: its options, its progress, and checks of the schema."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from reverie.engine import index, schema
from reverie.engine.seals import Statements
from reverie.errors import NewerSchema, StoreError
from reverie.protocols import UpgradeProgress

logger = logging.getLogger("reverie.upgrade")

# A shorter upgrade is over before anybody asks how far it is.
MIN_LOGGED_TOTAL = 50_000


def log_progress() -> UpgradeProgress:
    """Return a callback that logs every tenth of a long upgrade."""
    logged: dict[str, int] = {}

    def report(what: str, done: int, total: int) -> None:
        tenth = done * 10 // total if total else 10
        if total >= MIN_LOGGED_TOTAL and logged.get(what) != tenth:
            logged[what] = tenth
            logger.warning("%s: %d of %d", what, done, total)

    return report


@dataclass(frozen=True, slots=True)
class UpgradeOptions:
    """How a store of an earlier version is upgraded when it is opened."""

    backup: bool = True
    """Keep a copy of a SQLite store, or say how to make one of a PostgreSQL database."""
    progress: UpgradeProgress = field(default_factory=log_progress)

    def report(self, what: str) -> Callable[[int, int], None]:
        """Return the callback for one part of the upgrade."""
        return lambda done, total: self.progress(what, done, total)


# For a store that is itself a temporary copy.
NO_BACKUP = UpgradeOptions(backup=False)


def mark_index(db: Statements) -> None:
    """Mark an index of other rules for its rebuild, in the transaction of the schema steps.

    That rebuild then needs no backup of its own, also when the process is killed before it starts.
    """
    db.many(
        "UPDATE meta SET value = ? WHERE key = 'index' AND value <> ?",
        [(index.REBUILDING, index.INDEX_VERSION)],
    )


def newer_schema(where: str, found: int) -> NewerSchema:
    """Return the error for opening a store that a newer Reverie wrote."""
    return NewerSchema(
        f"{where} has schema {found}, this Reverie knows {schema.SCHEMA_VERSION}: "
        "upgrade with pip install --upgrade reverie"
    )


def require_known_schema(found: int) -> None:
    """Refuse to write if the schema is another one than when this process opened the store."""
    if found > schema.SCHEMA_VERSION:
        raise NewerSchema(
            f"the store was upgraded to schema {found} while this process had it open: start the "
            "process again, with the new version of Reverie"
        )
    if found < schema.SCHEMA_VERSION:
        raise StoreError(
            f"the store was replaced by one of schema {found} while this process had it open: "
            "open it again"
        )
