"""Copy a whole store, with its history, into another database: SQLite to PostgreSQL or back.

Rows are copied unchanged, in the order of their keys, a chunk in each transaction, so that a
migration that was stopped continues where it was. The target cannot be opened until every row has
been compared.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reverie.engine import open_engine, table_copy
from reverie.engine.schema import MIGRATION_KEY, TABLES
from reverie.engine.upgrade import UpgradeOptions
from reverie.errors import ConfigError, StoreDamaged
from reverie.maintenance import damage, rebuild
from reverie.protocols import Engine, Progress, Transaction


class MigrationReport(NamedTuple):
    """What a migration did: ``rows`` is the number of all rows, ``copied`` those of this run.

    ``digest`` is the hash of every row, equal in both stores.
    """

    spaces: int
    rows: int
    copied: int
    digest: str


def migrate(
    source: str,
    target: str,
    progress: Progress | None = None,
    upgrade_options: UpgradeOptions | None = None,
) -> MigrationReport:
    """Copy the store at ``source`` into the empty one at ``target``; both are locked meanwhile.

    A source of an earlier version is upgraded first.
    """
    with contextlib.ExitStack() as opened:
        before = opened.enter_context(
            contextlib.closing(open_engine(source, upgrade_options=upgrade_options))
        )
        after = opened.enter_context(contextlib.closing(open_engine(target)))
        _require_distinct(before, after)
        if not before.read_only:
            opened.enter_context(before.exclusive())
        opened.enter_context(after.exclusive())
        old = opened.enter_context(before.read())
        old.enter_all_owners()
        rebuild.require_migrated(old, before.url)
        _require_undamaged(old, before.url)
        _mark_unfinished(old, after)
        done = _CopyProgress(table_copy.count_rows(old), progress)
        _copy(old, after, done)
        return _finish(old, after, done)


def _require_undamaged(old: Transaction, url: str) -> None:
    problems = damage.find_damage(old)
    if problems:
        raise StoreDamaged(
            f"{url} is damaged ({problems[0]}): run 'reverie salvage' and migrate what it makes"
        )


def _require_distinct(before: Engine, after: Engine) -> None:
    """Raise ConfigError when both are the same store, which would wait for its own lock."""
    files = [engine.describe().get("file") for engine in (before, after)]
    if before.url == after.url or (files[0] and files[1] and Path(files[0]).samefile(files[1])):
        raise ConfigError("a store cannot be migrated into itself: give another --to")


class _CopyProgress:
    """Reports progress in three steps for each row: copied once, read twice to be compared."""

    def __init__(self, rows: int, progress: Progress | None) -> None:
        self.rows = rows
        self.copied = 0
        self._done = 0
        self._progress = progress

    def add(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(min(self._done, 3 * self.rows), 3 * self.rows)


def _mark_unfinished(old: Transaction, after: Engine) -> None:
    """Mark the target as unfinished, and empty it if an earlier run copied another state."""
    state = json.dumps({"state": table_copy.write_fingerprint(old)})
    with after.write() as new:
        new.enter_all_owners()
        row = new.one("SELECT value FROM meta WHERE key = ?", (MIGRATION_KEY,))
        if row is None and new.one("SELECT 1 FROM spaces LIMIT 1") is not None:
            raise ConfigError(f"{after.url} is not empty: migrate into a fresh store")
        if row is not None and row[0] == state:
            return
        table_copy.delete_rows(new)
        new.run(
            "INSERT INTO meta (key, value) VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (MIGRATION_KEY, state),
        )


def _copy(old: Transaction, after: Engine, done: _CopyProgress) -> None:
    for table in TABLES:
        with after.read() as new:
            new.enter_all_owners()
            last = table_copy.last_key(new, table)
        for rows in table_copy.read_rows(old, table, last):
            with _writing(after) as new:
                table_copy.put_rows(new, table, rows)
            done.copied += len(rows)
            done.add(len(rows))
    for owner, generation in table_copy.list_vector_sets(old):
        with after.read() as new:
            new.enter_all_owners()
            copied = set(new.vector_numbers(owner, generation))
        missing = [n for n in old.vector_numbers(owner, generation) if n not in copied]
        for numbers in table_copy.chunks(missing):
            with _writing(after) as new:
                table_copy.copy_vectors(old, new, owner, generation, numbers)
            done.copied += len(numbers)
            done.add(len(numbers))


@contextlib.contextmanager
def _writing(engine: Engine) -> Iterator[Transaction]:
    with engine.write() as tx:
        tx.enter_all_owners()
        yield tx


def _finish(old: Transaction, after: Engine, done: _CopyProgress) -> MigrationReport:
    expected = table_copy.content_digest(old, done.add)
    with _writing(after) as new:
        digest = table_copy.content_digest(new, done.add)
        if digest != expected:
            raise StoreDamaged(
                f"the rows copied to {after.url} differ from the source: empty it and migrate again"
            )
        new.run("DELETE FROM meta WHERE key = ?", (MIGRATION_KEY,))
        (spaces,) = new.one("SELECT COUNT(*) FROM spaces") or (0,)
    return MigrationReport(spaces, done.rows, done.copied, digest)
