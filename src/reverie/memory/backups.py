"""Backups: an online copy that is verified, and its way back."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from reverie.engine import copy_store, index, log, open_engine
from reverie.engine.log import Entry
from reverie.errors import ConfigError, StoreDamaged
from reverie.memory import upkeep, writes
from reverie.memory.resources import Resources
from reverie.memory.writes import Author, Stamp
from reverie.model import Scope, VerifyReport
from reverie.protocols import Transaction


class Tombstone(NamedTuple):
    """What remains of an erased memory: its entries, without what they said."""

    scope: Scope
    entries: list[Entry]


def backup(resources: Resources, target: Path) -> VerifyReport:
    """Copy, then open the copy and verify it: a backup that cannot be read is none."""
    if target.exists():
        raise ConfigError(f"{target} exists already: give another name")
    resources.engine.backup(target)
    return check(resources, target)


def check(resources: Resources, source: Path) -> VerifyReport:
    """Verify a backup on a copy of it, so that looking changes nothing."""
    with _copied(resources, source) as (_, report):
        return report


def restore(resources: Resources, source: Path) -> VerifyReport:
    """Bring a copy up to date with what was erased since, then put it in place in one step."""
    engine = resources.engine
    if source.is_file() and source.samefile(engine.describe()["file"]):
        raise ConfigError(f"{source} is this store itself: give the path of a backup")
    with _copied(resources, source) as (copy, _), engine.exclusive():
        erased, newest, unread = _erasures(resources)
        with copy.engine.write() as tx:
            # Vectors that processes hold in memory belong to numbers that mean something else now.
            tx.run("UPDATE statistics SET epoch = ?", (newest + 1,))
            tx.run(
                "INSERT INTO meta (key, value) VALUES ('lineage', ?) "
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                (str(newest + 1),),
            )
            for tombstone in erased:
                _erase_again(tx, copy, tombstone)
        copy.engine.scrub()
        engine.restore(Path(copy.engine.describe()["file"]))
    engine.scrub()
    report = upkeep.verify(resources)
    return replace(report, problems=(*report.problems, *unread))


def _erasures(resources: Resources) -> tuple[list[Tombstone], int, tuple[str, ...]]:
    """What was erased here, the newest epoch, and what of it could not be read."""
    try:
        with resources.engine.read() as tx:
            row = tx.one("SELECT COALESCE(MAX(epoch), 0) FROM statistics") or (0,)
            return _tombstones(tx), max(row[0], log.lineage(tx)), ()
    except StoreDamaged:
        # A damaged store must not keep its own backup from coming back.
        unread = "the former store is damaged: what was erased in it may be back"
        return [], resources.clock.now(), (unread,)


@contextlib.contextmanager
def _copied(resources: Resources, source: Path) -> Iterator[tuple[Resources, VerifyReport]]:
    """A sound backup, copied and opened."""
    if not source.is_file():
        raise ConfigError(f"{source} does not exist: give the path of a backup")
    with tempfile.TemporaryDirectory(prefix="reverie-") as folder:
        file = Path(folder) / "copy.db"
        copy_store(source, file)
        copy = replace(resources, engine=open_engine(str(file)))
        try:
            upkeep.refresh_index(copy)
            report = upkeep.verify(copy)
            if not report.ok:
                raise StoreDamaged(
                    f"{source} is not sound ({report.problems[0]}): use another backup"
                )
            yield copy, report
        finally:
            copy.engine.close()


def _tombstones(tx: Transaction) -> list[Tombstone]:
    return [
        Tombstone(log.scope_of(tx, owner), log.versions(tx, owner, entry.memory))
        for owner in upkeep.all_owners(tx)
        for entry in log.all_entries(tx, owner)
        if entry.op == "erase"
    ]


def _erase_again(tx: Transaction, resources: Resources, tombstone: Tombstone) -> None:
    scope, entries = tombstone
    owner = log.ensure_owner(tx, scope.space, scope.user)
    memory = entries[0].memory
    held = log.versions(tx, owner, memory)
    place = index.find(tx, owner, memory)
    if place is not None and held[0].uuid == entries[0].uuid:
        author = Author(scope, "reverie", "agent")
        stamp = Stamp(reason="it was erased after this backup was made")
        with_source = bool((entries[-1].body or {}).get("sources"))
        writes.erase_in(tx, resources, owner, author, place, held, with_source, stamp)
    elif not log.id_taken(tx, owner, memory):
        # The backup never knew it: the tombstone must still keep an import from bringing it back.
        for entry in entries:
            position, recorded_at = log.advance(tx, owner.space, entry.recorded_at)
            body = None if entry.body is None else {**entry.body, "entries": []}
            log.append(
                tx,
                owner,
                replace(entry, position=position, recorded_at=recorded_at, key=None, body=body),
            )
